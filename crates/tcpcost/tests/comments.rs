//! Comments of the Rust sources begin with a noun or a verb, so that the first sentence makes sense alone in a list.

use std::fs;
use std::path::{Path, PathBuf};

/// First words that need the text before or after them.
const FORBIDDEN: [&str; 7] = ["Of", "As", "The same", "Those", "They", "What", "Whether"];

/// Adds all Rust sources below a folder.
fn add_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            add_sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Text of a line that is a comment, with its marker: `///`, `//!` or `//`.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let marker = ["///", "//!", "//"]
        .into_iter()
        .find(|marker| line.starts_with(marker))?;
    Some((marker, line[marker.len()..].trim()))
}

/// Numbers of the lines at which a comment begins with forbidden words.
fn forbidden(text: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut before = None;
    for (index, line) in text.lines().enumerate() {
        let own = comment(line);
        let marker = own.map(|(marker, _)| marker);
        let begins = own.is_some_and(|(_, words)| {
            FORBIDDEN.iter().any(|forbidden| {
                let rest = words.strip_prefix(forbidden);
                rest.is_some_and(|rest| rest.starts_with([' ', ',']))
            })
        });
        if begins && marker != before {
            lines.push(index + 1);
        }
        before = marker;
    }
    lines
}

#[test]
fn comments_begin_with_a_noun_or_a_verb() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut sources = Vec::new();
    add_sources(&root.join("crates"), &mut sources);
    assert!(sources.len() > 500, "{} sources", sources.len());
    let mut found = Vec::new();
    for source in sources {
        let name = source.strip_prefix(&root).unwrap().display().to_string();
        let lines = forbidden(&fs::read_to_string(&source).unwrap());
        found.extend(lines.iter().map(|line| format!("{name}:{line}")));
    }
    assert!(
        found.is_empty(),
        "begin with a noun or a verb:\n{}",
        found.join("\n")
    );
}

#[test]
fn only_the_first_line_of_a_comment_counts() {
    let text = "/// Returns a name.\n/// Of more there is none.\nfn a();\n\n    // As before.\n/// Asks.\n//! Whether so.\n";
    assert_eq!(forbidden(text), [5, 7]);
}
