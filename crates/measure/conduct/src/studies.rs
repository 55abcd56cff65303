//! Studies by name or path: built-in ones, study files, and profiles of uperf as studies.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tcpcost_console::exit::usage;
use tcpcost_console::output::say;
use tcpcost_study::{
    ConvertedProfile, UperfProfile, UperfSurroundings, convert_uperf_profile, is_uperf_profile,
    nearest, read_uperf_profile,
};

/// Finds a study by its built-in name or by its path; converts a uperf profile into a study. Returns its name, its text, and the
/// file's name for error messages.
///
/// # Errors
/// No study has this name, the file cannot be read, or the profile is wrong: exit code 2.
pub fn find(named: &str) -> anyhow::Result<(String, String, String)> {
    let (name, text, file) = find_text(named)?;
    if !is_uperf_profile(&text) {
        return Ok((name, text, file));
    }
    let text = study(&name, &text, &file)?;
    Ok((name, text, format!("{file} as a study")))
}

/// Finds a study like [`find`], and converts nothing.
///
/// # Errors
/// No study has this name, or the file cannot be read: exit code 2.
pub fn find_text(named: &str) -> anyhow::Result<(String, String, String)> {
    if let Some(text) = built_in(named) {
        return Ok((
            named.to_string(),
            text.to_string(),
            format!("{named} (built in)"),
        ));
    }
    let path = Path::new(named);
    let is_path = named.contains('/') || path.extension().is_some();
    match read(path) {
        Ok(text) => {
            let stem = path
                .file_stem()
                .map_or_else(|| named.into(), |stem| stem.to_string_lossy());
            Ok((stem.into_owned(), text, named.to_string()))
        }
        Err(error) if is_path => Err(usage(format!("read {named}: {error}"))),
        Err(_) => {
            let names = BUILT_IN.iter().map(|(name, _)| *name);
            let near = nearest(named, names.clone());
            let meant = near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
            Err(usage(format!(
                "no study \"{named}\"{meant}: built in are {}; a file is named by its path, e.g. ./{named}.toml",
                names.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

/// Longest study, 1 MiB. The limit ends the reading of an endless file such as /dev/zero.
pub(crate) const STUDY_BYTES_MAX: u64 = 1 << 20;

/// Reads a text that the user named: a file, or a pipe such as `<(COMMAND)`.
///
/// # Errors
/// FileTooLarge beyond 1 MiB; InvalidData if the text is not UTF-8; else the kernel's error.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(STUDY_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > STUDY_BYTES_MAX {
        let reason = "longer than 1 MiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// Returns the output of `tcpcost study convert PROFILE`: the text of a study file.
///
/// # Errors
/// The file cannot be read, is no profile, or is a wrong one: exit code 2.
pub fn convert(named: &str) -> anyhow::Result<String> {
    let (name, text, file) = find_text(named)?;
    if !is_uperf_profile(&text) {
        return Err(usage(format!(
            "{file}: no profile of uperf (XML): a study file needs no converting"
        )));
    }
    study(&name, &text, &file)
}

/// Converts a profile into the text of a study. Prints what differs from uperf on standard error.
fn study(name: &str, text: &str, file: &str) -> anyhow::Result<String> {
    let converted = convert_uperf_profile(name, text, file, &SURROUNDINGS);
    let ConvertedProfile { toml, notes } = converted.map_err(usage)?;
    for note in notes {
        say!("tcpcost: {note}");
    }
    Ok(toml)
}

/// Reads a profile of uperf from a file. Prints what differs from uperf on standard error.
///
/// # Errors
/// The file cannot be read, or is a wrong profile: exit code 2.
pub fn profile(file: &str) -> anyhow::Result<UperfProfile> {
    let text = read(Path::new(file)).map_err(|error| usage(format!("read {file}: {error}")))?;
    let (profile, notes) = read_uperf_profile(&text, file, &SURROUNDINGS).map_err(usage)?;
    for note in notes {
        say!("uperf: {note}");
    }
    Ok(profile)
}

/// Environment and folders of this process.
const SURROUNDINGS: UperfSurroundings<'static> = UperfSurroundings {
    variable: &|name| std::env::var(name).ok(),
    files: &|folder| {
        let (mut sizes, mut left) = (Vec::new(), FILES_MAX);
        add_files(folder, &mut sizes, &mut left)?;
        Ok(sizes)
    },
};

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

/// Lists the built-in studies: name and text.
macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../studies/", $name, ".toml")))),+]
    };
}

/// Built-in studies: name and text.
pub const BUILT_IN: &[(&str, &str)] = built_in![
    "tour",
    "cost-of-tcp",
    "acks",
    "ack-limits",
    "ack-bursts",
    "tso-split",
    "fair-queue",
    "stacks",
    "accounting",
    "copy-paths",
    "send-paths",
    "relay",
    "crossover",
    "on-read",
    "segmentation",
    "write-size",
    "connections",
    "transmit",
    "lso",
    "ack-ratio",
    "scale",
    "request-response",
    "beside",
    "profile",
    "fleet-check",
    "prices",
    "knob",
];

/// Returns the text of a built-in study. `None` if no study has this name.
pub fn built_in(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(built_in, _)| *built_in == name);
    found.map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tcpcost_study::Study;

    use super::*;

    #[test]
    fn every_file_of_the_studies_folder_is_shipped() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/studies");
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(built_in(name).is_some(), "{name} is in no list");
        }
    }

    #[test]
    fn shipped_studies_parse_and_say_what_they_ask() {
        for (name, text) in BUILT_IN {
            let study = Study::parse(name, text, name).unwrap_or_else(|error| panic!("{error}"));
            assert!(study.title.starts_with(name), "{name}: {}", study.title);
        }
    }

    #[test]
    fn every_shipped_study_is_done_in_a_minute() {
        for (name, text) in BUILT_IN {
            let mut study = Study::parse(name, text, name).unwrap();
            study.make_quick();
            let of_cell = |cell| {
                let (warm_up, duration) = study.times(cell);
                // A trial with a capture also waits for the capture and reads it.
                let trial = TRIAL * if cell.captured.is_some() { 2 } else { 1 };
                (warm_up + duration + trial) * study.repetitions(cell)
            };
            let all: Duration = study.cells.iter().map(of_cell).sum();
            assert!(!all.is_zero(), "{name}");
            assert!(all < Duration::from_secs(56), "{name}: {all:?}");
        }
    }

    /// Time that a trial takes beyond its warm-up and its interval.
    const TRIAL: Duration = Duration::from_millis(120);
}
