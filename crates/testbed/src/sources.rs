use std::fs;
use std::path::{Path, PathBuf};

/// Folder `src` of every crate of the workspace, for tests that read the sources.
pub fn source_folders() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .to_path_buf(),
    ];
    while let Some(folder) = left.pop() {
        if folder.join("Cargo.toml").is_file() {
            found.push(folder.join("src"));
            continue;
        }
        let entries = fs::read_dir(&folder).unwrap();
        left.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_dir()),
        );
    }
    found.sort();
    found
}
