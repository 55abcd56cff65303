//! Parses options like getopt(3): `-t TCP_RR`, `-tTCP_RR`, `-cC`; the first `--` ends the list.
//!
//! clap cannot do this. netperf's `-c`, `-C`, `-k`, `-o` and `-O` take the next word or not, depending on its
//! form. A second list of options with other meanings follows the `--`.

use std::collections::VecDeque;

use crate::Failure;

/// Words that have not been parsed yet.
pub struct Words {
    words: VecDeque<String>,
    /// Letters left of a word with several.
    cluster: String,
}

/// A parsed option or word.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A letter without an argument.
    Option(char),
    /// A letter with its argument.
    With(char, String),
    /// A word that is no option.
    Word(String),
    /// An unknown letter, or one without its argument: the error message of getopt(3).
    Invalid(String),
}

impl Words {
    /// Starts to parse a command line.
    pub fn new(words: impl IntoIterator<Item = String>) -> Words {
        Words {
            words: words.into_iter().collect(),
            cluster: String::new(),
        }
    }

    /// The next option. `None` after the last word, or at `--`, which is removed. `letters` as in getopt(3):
    /// a colon follows each letter that has an argument.
    pub fn next(&mut self, letters: &str) -> Option<Found> {
        if self.cluster.is_empty() {
            let word = self.words.pop_front()?;
            match word.strip_prefix('-') {
                Some("-") => return None,
                Some("") | None => return Some(Found::Word(word)),
                Some(letters) => self.cluster = letters.to_string(),
            }
        }
        let letter = self.cluster.remove(0);
        let at = letters.find(letter).filter(|_| letter != ':');
        let Some(at) = at else {
            let complaint = format!("invalid option -- '{letter}'");
            return Some(Found::Invalid(complaint));
        };
        if !letters[at + letter.len_utf8()..].starts_with(':') {
            return Some(Found::Option(letter));
        }
        let argument = match std::mem::take(&mut self.cluster) {
            rest if rest.is_empty() => self.words.pop_front(),
            rest => Some(rest),
        };
        Some(match argument {
            Some(argument) => Found::With(letter, argument),
            None => Found::Invalid(format!("option requires an argument -- '{letter}'")),
        })
    }

    /// Error for an option that cannot be ignored.
    pub fn invalid(complaint: &str) -> Failure {
        Failure::usage(format!("{complaint} (see -h)"))
    }

    /// The next word if it matches: an optional argument.
    pub fn next_if(&mut self, is_argument: impl FnOnce(&str) -> bool) -> Option<String> {
        let next = self.words.front()?;
        match self.cluster.is_empty() && is_argument(next) {
            true => self.words.pop_front(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(line: &str) -> Words {
        Words::new(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn letters_stand_alone_together_or_with_their_argument() {
        let mut words = words("-cC -tTCP_RR -l 10 -P0 host -- -D");
        let mut found = Vec::new();
        while let Some(one) = words.next("cCt:l:P:") {
            found.push(one);
        }
        let with = |letter, text: &str| Found::With(letter, text.to_string());
        assert_eq!(
            found,
            [
                Found::Option('c'),
                Found::Option('C'),
                with('t', "TCP_RR"),
                with('l', "10"),
                with('P', "0"),
                Found::Word("host".into()),
            ]
        );
        assert_eq!(words.next("D"), Some(Found::Option('D')));
        assert_eq!(words.next("D"), None);
    }

    #[test]
    fn an_argument_may_begin_with_a_dash() {
        assert_eq!(
            words("-D -0.2").next("D:"),
            Some(Found::With('D', "-0.2".into()))
        );
    }

    #[test]
    fn an_unknown_letter_and_a_missing_argument_are_complained_of_and_passed_over() {
        let invalid = |text: &str| Some(Found::Invalid(text.to_string()));
        let mut words = words("-xC -: -D");
        assert_eq!(words.next("CD:"), invalid("invalid option -- 'x'"));
        assert_eq!(words.next("CD:"), Some(Found::Option('C')));
        assert_eq!(words.next("CD:"), invalid("invalid option -- ':'"));
        assert_eq!(
            words.next("CD:"),
            invalid("option requires an argument -- 'D'")
        );
        assert_eq!(words.next("CD:"), None);
    }

    proptest! {
        #[test]
        fn any_words_end(line in proptest::collection::vec("\\PC{0,5}", 0..9)) {
            let mut words = Words::new(line);
            for _ in 0..100 {
                if words.next("a:bcé:").is_none() {
                    break;
                }
            }
        }
    }
}
