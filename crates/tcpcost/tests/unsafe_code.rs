//! `unsafe` needs permission: each crate forbids it or denies it, so a file or function with `unsafe`
//! must allow it.

use std::fs;
use std::path::Path;

#[test]
fn every_crate_forbids_unsafe_code_or_denies_it_but_for_files_that_say_why() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut without = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        let root = ["lib.rs", "main.rs"].map(|file| source.join(file));
        let root = root.iter().find(|file| file.is_file()).unwrap();
        let text = fs::read_to_string(root).unwrap();
        let says =
            |line: &str| ["#![forbid(unsafe_code)]", "#![deny(unsafe_code)]"].contains(&line);
        if !text.lines().any(says) {
            without.push(root.display().to_string());
        }
    }
    assert!(without.is_empty(), "{}", without.join("\n"));
}
