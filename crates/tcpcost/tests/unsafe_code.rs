//! `unsafe` is in few files: no crate has any but where a file, or a function, says why.

use std::fs;

use tcpcost_testbed::source_folders;

#[test]
fn every_crate_forbids_unsafe_code_or_denies_it_but_for_files_that_say_why() {
    let mut without = Vec::new();
    for source in source_folders() {
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
