//! No modules of a crate import each other in a circle, but for parent and child: what is below in ARCHITECTURE.md's
//! order stays below inside a crate, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

/// A module by its path, the crate's root being empty.
type Module = Vec<String>;

/// The sources of a crate without their tests, by module.
fn modules(root: &Path, folder: &Path, found: &mut BTreeMap<Module, String>) {
    let tests = Regex::new(r"#\[cfg\((?:all\()?test").unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            modules(root, &path, found);
        }
        if path.extension().is_none_or(|extension| extension != "rs")
            || ["tests", "testing"].contains(&name)
        {
            continue;
        }
        let below = path.with_extension("");
        let parts = below.strip_prefix(root).unwrap().iter();
        let mut module: Module = parts
            .map(|part| part.to_str().unwrap().to_string())
            .collect();
        if ["mod", "lib", "main"].contains(&name) {
            module.pop();
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = tests.split(&text).next().unwrap();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        found.insert(module, lines.collect::<Vec<_>>().join("\n"));
    }
}

/// Modules that a source names, as far as they are files.
fn named(module: &Module, code: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let path = Regex::new(r"\b(crate|super|self)((?:::[a-z_0-9]+)*)(?:::\{([^;]*?)\};)?").unwrap();
    let inner = Regex::new(r"(?:^|[,{\s])([a-z_0-9]+)::").unwrap();
    let mut found = BTreeSet::new();
    for one in path.captures_iter(code) {
        let mut target: Module = match &one[1] {
            "crate" => Vec::new(),
            "self" => module.clone(),
            _ => module[..module.len().saturating_sub(1)].to_vec(),
        };
        for part in one[2].split("::").filter(|part| !part.is_empty()) {
            match part {
                "super" => drop(target.pop()),
                part => target.push(part.to_string()),
            }
        }
        let group = one.get(3).map_or("", |group| group.as_str());
        let inside = inner
            .captures_iter(group)
            .map(|name| [&target[..], &[name[1].to_string()]].concat());
        for mut target in inside.chain([target.clone()]) {
            while !all.contains_key(&target) && target.pop().is_some() {}
            found.insert(target);
        }
    }
    found
}

/// A circle among the siblings below each module.
fn circle(all: &BTreeMap<Module, String>) -> Option<String> {
    let mut below: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, code) in all {
        for target in named(module, code, all) {
            let common = module
                .iter()
                .zip(&target)
                .take_while(|(one, other)| one == other)
                .count();
            // One is above the other: parent and child.
            if common < module.len() && common < target.len() {
                let siblings = below.entry(module[..common].to_vec()).or_default();
                let from = siblings.entry(module[common].clone()).or_default();
                from.insert(target[common].clone());
            }
        }
    }
    below.into_iter().find_map(|(parent, mut siblings)| {
        // Takes away who names none of those that are left, until nothing changes.
        loop {
            let left: BTreeSet<String> = siblings.keys().cloned().collect();
            siblings.retain(|_, named| named.iter().any(|name| left.contains(name)));
            if siblings.len() == left.len() {
                break;
            }
        }
        (!siblings.is_empty()).then(|| format!("{}: {siblings:?}", parent.join("::")))
    })
}

#[test]
fn no_modules_import_each_other_but_parent_and_child() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut count = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let root = entry.unwrap().path().join("src");
        if !root.is_dir() {
            continue;
        }
        let mut all = BTreeMap::new();
        modules(&root, &root, &mut all);
        count += all.len();
        if let Some(circle) = circle(&all) {
            panic!("{}: {circle}", root.display());
        }
    }
    assert!(count > 200, "{count} modules");
}

#[test]
fn a_circle_is_found_and_parent_and_child_are_none() {
    let all = |sources: &[(&str, &str)]| {
        let module = |path: &str| {
            path.split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_string)
                .collect()
        };
        sources
            .iter()
            .map(|(path, code)| (module(path), (*code).to_string()))
            .collect::<BTreeMap<Module, String>>()
    };
    let straight = [
        ("", "mod a; mod b;"),
        ("a", "use crate::b::B;\nuse self::c::C;"),
        ("a::c", "use super::A;"),
        ("b", ""),
    ];
    assert_eq!(circle(&all(&straight)), None);
    let mut round = straight;
    round[3].1 = "use crate::{a::A, x};";
    assert!(
        circle(&all(&round)).is_some_and(|text| text.contains("\"a\"") && text.contains("\"b\""))
    );
}
