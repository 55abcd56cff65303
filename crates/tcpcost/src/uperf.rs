//! uperf profiles as studies, and `tcpcost study convert` and `tcpcost uperf`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use tcpcost_study::{ConvertedProfile, UperfSurroundings, convert_uperf_profile, is_uperf_profile};

use crate::cli;
use crate::exit::usage;
use crate::output;
use crate::studies;

/// Returns the words of the command line that runs a profile: `tcpcost run PROFILE …`.
pub fn run_words(args: &cli::Uperf) -> Vec<OsString> {
    let details: &[&str] = if args.all {
        &["--format", "details"]
    } else {
        &[]
    };
    let words = ["tcpcost", "run", &args.profile];
    let options = args.run.iter().map(String::as_str);
    let words = words.into_iter().chain(details.iter().copied());
    words.chain(options).map(OsString::from).collect()
}

/// Returns the output of `tcpcost study convert PROFILE`: the text of a study file.
pub fn convert(named: &str) -> anyhow::Result<String> {
    let (name, text, file) = studies::find(named)?;
    if !is_uperf_profile(&text) {
        return Err(usage(format!(
            "{file}: no profile of uperf (XML): a study file needs no converting"
        )));
    }
    study(&name, &text, &file)
}

/// Finds a study like [`studies::find`]; converts a uperf profile into a study.
pub fn find(named: &str) -> anyhow::Result<(String, String, String)> {
    let (name, text, file) = studies::find(named)?;
    if !is_uperf_profile(&text) {
        return Ok((name, text, file));
    }
    let text = study(&name, &text, &file)?;
    Ok((name, text, format!("{file} as a study")))
}

/// Converts a profile into the text of a study. Prints what differs from uperf on standard error.
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
    let ConvertedProfile { toml, notes } = converted.map_err(usage)?;
    for note in notes {
        output::say!("tcpcost: {note}");
    }
    Ok(toml)
}

/// Limit of the entries in a folder and in the folders below it. It stops a slip such as `dir=/`.
const FILES_MAX: usize = 100_000;

fn add_files(folder: &Path, sizes: &mut Vec<u64>, left: &mut usize) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        *left = left.checked_sub(1).ok_or_else(|| {
            let what = format!("more than {FILES_MAX} files and folders");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })?;
        // `DirEntry::metadata` does not follow links.
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            add_files(&entry.path(), sizes, left)?;
        } else if metadata.is_file() {
            sizes.push(metadata.len());
        }
    }
    Ok(())
}
