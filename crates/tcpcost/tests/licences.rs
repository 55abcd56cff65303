//! Compares docs/dev/licences.md with all packages linked into the command. cargo-deny decides which
//! licences are allowed (`make licences`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const MARK: &str = "<!-- made by cargo test -p tcpcost --test licences -->\n";

/// Names of packages by the licence that they state, as `scripts/copyright` lists them.
fn linked() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = Command::new(root.join("scripts/copyright"))
        .arg("--list")
        .env("CARGO", env!("CARGO"))
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .unwrap();
    assert!(
        list.status.success(),
        "{}",
        String::from_utf8_lossy(&list.stderr)
    );
    let mut by_licence: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8(list.stdout).unwrap().lines() {
        let (name, rest) = line.split_once(' ').unwrap();
        let (_version, licence) = rest.split_once(' ').unwrap();
        // The slash was the notation before SPDX.
        let licence = licence.replace(" / ", "/").replace('/', " OR ");
        by_licence
            .entry(licence)
            .or_default()
            .insert(name.to_string());
    }
    by_licence
}

#[test]
fn the_page_lists_all_that_is_linked() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dev/licences.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, table) = page.split_once(MARK).unwrap();
    let mut now = "\n| licence, as the package states it | packages |\n|---|---|\n".to_string();
    for (licence, names) in linked() {
        let names: Vec<String> = names.into_iter().collect();
        now += &format!("| {licence} | {} |\n", names.join(", "));
    }
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        std::fs::write(path, format!("{head}{MARK}{now}")).unwrap();
        return;
    }
    assert_eq!(table, now, "rewrite it with TCPCOST_REWRITE=1");
}
