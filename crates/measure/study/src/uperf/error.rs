//! Errors of a profile and notes about it, each with its line.

use tcpcost_counts::printable;

/// Error with its place.
#[derive(Debug)]
pub(super) struct ProfileError {
    /// Line, from 1.
    pub(super) line: usize,
    /// Name of the element, attribute or option. Empty for a place without a name.
    pub(super) name: String,
    pub(super) what: String,
}

impl ProfileError {
    pub(super) fn new(line: usize, name: &str, what: impl Into<String>) -> ProfileError {
        ProfileError {
            line,
            name: shown(name),
            what: what.into(),
        }
    }
}

/// Makes a word of the file safe for any terminal, and cuts it if it is long.
pub(super) fn shown(word: &str) -> String {
    let word = printable(word);
    let mut text: String = word.chars().take(SHOWN).collect();
    if word.chars().count() > SHOWN {
        text.push('…');
    }
    text
}

const SHOWN: usize = 60;

/// Difference from uperf or from XML, at a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) line: usize,
    pub(super) text: String,
}
