//! Enums that are a choice of words in a study file.

macro_rules! words {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[doc = $variant_doc])+ $variant,)+ }

        impl $name {
            /// All variants.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// Words of all variants, as a knob's row lists them.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// Finds the variant of a word of a study file. `None` for an unknown word.
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }

            /// Word of the variant in a study file.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }
    };
}

pub(crate) use words;
