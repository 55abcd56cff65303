//! `unsafe` needs permission: each crate forbids it or denies it, so a file or function with `unsafe`
//! must allow it.

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
