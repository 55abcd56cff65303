//! Profiles of uperf: what a profile asks of this machine, and `tcpcost convert`.

use std::io;
use std::path::Path;

use tcpcost_study::{ConvertedProfile, UperfSurroundings, convert_uperf_profile, is_uperf_profile};

use crate::exit::usage;
use crate::output;
use crate::studies;

/// `tcpcost convert PROFILE`.
pub fn convert(named: &str) -> anyhow::Result<String> {
    let (name, text, file) = studies::find(named)?;
    if !is_uperf_profile(&text) {
        return Err(usage(format!(
            "{file}: no profile of uperf (XML): a study file needs no converting"
        )));
    }
    study(&name, &text, &file)
}

/// As of [`studies::find`], or a profile as the study that it amounts to.
pub fn find(named: &str) -> anyhow::Result<(String, String, String)> {
    let (name, text, file) = studies::find(named)?;
    if !is_uperf_profile(&text) {
        return Ok((name, text, file));
    }
    let text = study(&name, &text, &file)?;
    Ok((name, text, format!("{file} as a study")))
}

/// The text of the study. What is not as in uperf is said.
fn study(name: &str, text: &str, file: &str) -> anyhow::Result<String> {
    let surroundings = UperfSurroundings {
        variable: &|name| std::env::var(name).ok(),
        files: &|folder| {
            let (mut sizes, mut left) = (Vec::new(), FILES_MAX);
            add_files(folder, &mut sizes, &mut left)?;
            Ok(sizes)
        },
    };
    let converted = convert_uperf_profile(name, text, file, &surroundings);
    let ConvertedProfile { toml, notes } = converted.map_err(|error| usage(error.to_string()))?;
    for note in notes {
        output::say!("tcpcost: {note}");
    }
    Ok(toml)
}

/// Entries of a folder and of those below it, at most: a slip such as `dir=/` ends in time.
const FILES_MAX: usize = 100_000;

fn add_files(folder: &Path, sizes: &mut Vec<u64>, left: &mut usize) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        *left = left.checked_sub(1).ok_or_else(|| {
            let what = format!("more than {FILES_MAX} files and folders");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        // Of the entry itself: links are not followed.
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            add_files(&entry.path(), sizes, left)?;
        } else if metadata.is_file() {
            sizes.push(metadata.len());
        }
    }
    Ok(())
}
