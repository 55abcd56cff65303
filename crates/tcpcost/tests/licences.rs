//! Compares docs/licences.md with all packages linked into the command. cargo-deny decides which
//! licences are allowed (`make licences`).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

const MARK: &str = "<!-- made by cargo test -p tcpcost --test licences -->\n";

/// Names of packages by the licence that they state.
fn linked() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(
        cargo.status.success(),
        "{}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let by_id = |list: &Value| -> BTreeMap<String, Value> {
        let each = list.as_array().unwrap().iter();
        each.map(|one| (one["id"].as_str().unwrap().to_string(), one.clone()))
            .collect()
    };
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let root = packages
        .iter()
        .find(|(_, package)| package["name"] == "tcpcost");
    let mut to_see = vec![root.unwrap().0.clone()];
    let mut seen = BTreeSet::new();
    while let Some(id) = to_see.pop() {
        // Dependencies of a procedural macro run in the compiler only.
        let targets = packages[&id]["targets"].as_array().unwrap();
        let is_macro = |target: &Value| target["kind"][0] == "proc-macro";
        if targets.iter().any(is_macro) || !seen.insert(id.clone()) {
            continue;
        }
        for dependency in nodes[&id]["deps"].as_array().unwrap() {
            let kinds = dependency["dep_kinds"].as_array().unwrap();
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                to_see.push(dependency["pkg"].as_str().unwrap().to_string());
            }
        }
    }
    let mut by_licence: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in seen.iter().map(|id| &packages[id]) {
        if package["source"].is_null() {
            continue; // Ours.
        }
        // The slash was the notation before SPDX.
        let licence = package["license"].as_str().unwrap().replace(" / ", "/");
        let name = package["name"].as_str().unwrap().to_string();
        let licence = licence.replace('/', " OR ");
        by_licence.entry(licence).or_default().insert(name);
    }
    by_licence
}

#[test]
fn the_page_lists_all_that_is_linked() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/licences.md");
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
