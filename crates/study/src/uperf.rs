//! uperf's profiles: its XML language read into a study file's text, by which everything else goes on.
//!
//! Meanings and defaults are those of uperf 1.0.8's sources; `uperf/rows.rs` lists what is honoured, what has no effect, and what
//! is refused. Nothing here reads the environment or a folder: who calls gives what a profile asks of them.

mod element;
mod number;
mod profile;
mod rows;
mod translate;
mod write;

use std::path::Path;

use crate::parse::StudyError;

pub use self::rows::{UperfHandling, UperfRow, uperf_table};

/// What a profile asks of the machine that it is read on.
pub struct UperfSurroundings<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Sizes of the files in a folder and in those below it, bytes, in any order.
    pub files: &'a dyn Fn(&Path) -> std::io::Result<Vec<u64>>,
}

/// A profile as a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertedProfile {
    /// The text of the study file.
    pub toml: String,
    /// What is not as in uperf, a line each, with the file and its line.
    pub notes: Vec<String>,
}

/// Whether a text is XML, which no study file is.
pub fn is_uperf_profile(text: &str) -> bool {
    text.trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with('<')
}

/// Reads a profile. `name` is the study's, `file` what messages call the file.
///
/// # Errors
/// The first thing that is wrong or cannot be honoured: line, name, why.
pub fn convert_uperf_profile(
    name: &str,
    text: &str,
    file: &str,
    surroundings: &UperfSurroundings<'_>,
) -> Result<ConvertedProfile, StudyError> {
    let in_file = |wrong: element::Wrong| StudyError {
        file: file.to_string(),
        line: wrong.line,
        key: wrong.name,
        expected: wrong.what,
    };
    let root = element::read(text).map_err(in_file)?;
    let profile = profile::Profile::read(&root, surroundings).map_err(in_file)?;
    let study = translate::study(&profile, surroundings).map_err(in_file)?;
    let title = match profile.name.as_str() {
        "" => name,
        title => title,
    };
    let notes = profile.notes.iter().chain(&study.notes);
    let mut notes: Vec<(usize, &String)> = notes.map(|note| (note.line, &note.text)).collect();
    notes.sort();
    notes.dedup();
    Ok(ConvertedProfile {
        toml: write::toml(title, file, &study),
        notes: notes
            .into_iter()
            .map(|(line, text)| format!("{file}:{line}: {text}"))
            .collect(),
    })
}

#[cfg(test)]
mod tests;
