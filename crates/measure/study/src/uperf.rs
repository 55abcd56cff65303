//! Conversion of uperf's profiles to the text of a study file; from there on they are
//! ordinary studies.
//!
//! Meanings and defaults are those in the sources of uperf 1.0.8. `uperf/rows.rs` lists the words
//! that are honoured, have no effect, or are refused. This module does not read the environment or
//! a folder: the caller provides what a profile requires of them.

mod element;
mod error;
mod number;
mod profile;
mod rows;
mod translate;
mod write;

use std::path::Path;

use crate::parse::StudyError;

pub use self::profile::{
    Flowop as UperfFlowop, Group as UperfGroup, Kind as UperfKind, Options as UperfOptions,
    Profile as UperfProfile, Transaction as UperfTransaction, Value as UperfValue,
};
pub use self::rows::{UperfHandling, UperfRow, uperf_table};

/// Information that a profile requires of the machine on which it is read.
pub struct UperfSurroundings<'a> {
    /// Value of an environment variable. `None` if it is not set.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Sizes of the files in a folder and below it, bytes, in any order.
    pub files: &'a dyn Fn(&Path) -> std::io::Result<Vec<u64>>,
}

/// Profile converted to a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertedProfile {
    /// Text of the study file.
    pub toml: String,
    /// Differences from uperf, a line each, with the file and its line.
    pub notes: Vec<String>,
}

/// Parses a time of uperf: `10ms`, and seconds without a unit.
///
/// # Errors
/// What is expected instead.
pub fn uperf_time(text: &str) -> Result<std::time::Duration, &'static str> {
    number::time(text)
}

/// True if a text is XML, which no study file is.
pub fn is_uperf_profile(text: &str) -> bool {
    text.trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with('<')
}

/// Converts a profile. `name`: name of the study. `file`: name of the file in messages.
///
/// # Errors
/// The first mistake, or the first word that is refused: line, name, reason.
pub fn convert_uperf_profile(
    name: &str,
    text: &str,
    file: &str,
    surroundings: &UperfSurroundings<'_>,
) -> Result<ConvertedProfile, StudyError> {
    let in_file = |wrong| in_file(wrong, file);
    let profile = read(text, surroundings).map_err(in_file)?;
    let study = translate::study(&profile, surroundings).map_err(in_file)?;
    let title = match profile.name.as_str() {
        "" => name,
        title => title,
    };
    Ok(ConvertedProfile {
        toml: write::toml(title, file, &study),
        notes: lines(profile.notes.iter().chain(&study.notes), file),
    })
}

/// Reads a profile, and the notes about it, a line each. `file`: name of the file in messages.
///
/// # Errors
/// The first mistake, or the first word that is refused: line, name, reason.
pub fn read_uperf_profile(
    text: &str,
    file: &str,
    surroundings: &UperfSurroundings<'_>,
) -> Result<(UperfProfile, Vec<String>), StudyError> {
    let profile = read(text, surroundings).map_err(|wrong| in_file(wrong, file))?;
    let notes = lines(&profile.notes, file);
    Ok((profile, notes))
}

fn read(
    text: &str,
    surroundings: &UperfSurroundings<'_>,
) -> Result<UperfProfile, error::ProfileError> {
    let (root, notes) = element::read(text)?;
    UperfProfile::read(&root, notes, surroundings)
}

fn in_file(wrong: error::ProfileError, file: &str) -> StudyError {
    StudyError {
        file: file.to_string(),
        line: wrong.line,
        key: wrong.name,
        expected: wrong.what,
    }
}

/// Formats notes, in the order of their lines, each once.
fn lines<'a>(notes: impl IntoIterator<Item = &'a error::Note>, file: &str) -> Vec<String> {
    let notes = notes.into_iter().map(|note| (note.line, &note.text));
    let notes: std::collections::BTreeSet<_> = notes.collect();
    let line = |(line, text)| format!("{file}:{line}: {text}");
    notes.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests;
