//! Modules of a crate do not import each other in a circle, except parent and child: the order of
//! ARCHITECTURE.md also holds inside a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;
use tcpcost_testbed::source_folders;

/// Path of a module. The crate's root is empty.
type Module = Vec<String>;

/// Collects the sources of a crate by module, without the files of tests.
fn modules(root: &Path, folder: &Path, found: &mut BTreeMap<Module, String>) {
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
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        found.insert(module, without_tests(&lines.collect::<Vec<_>>().join("\n")));
    }
}

/// Removes the items that only tests have.
fn without_tests(code: &str) -> String {
    let tests = Regex::new(r"#\[cfg\((?:all\()?test[^\]]*\]").unwrap();
    let mut parts = tests.split(code);
    let mut left = parts.next().unwrap_or_default().to_string();
    for part in parts {
        // An item ends with its first semicolon, or with the brace that closes its first block.
        let end = part.find([';', '{']).unwrap_or(part.len());
        left += match part[end..].strip_prefix('{') {
            Some(block) => block.get(group(block).len() + 1..).unwrap_or_default(),
            None => &part[end..],
        };
    }
    left
}

/// Modules that a source names, if they are files. A name that another module imports stands for
/// the imported module.
fn named(module: &Module, code: &str, all: &BTreeMap<Module, String>) -> BTreeSet<Module> {
    let path = Regex::new(r"\b(?:crate|super|self)(?:::[A-Za-z_0-9]+)*(::\{)?").unwrap();
    let mut found = BTreeSet::new();
    let mut add = |mut target: Module| {
        let mut name = None;
        while !all.contains_key(&target) && !target.is_empty() {
            name = target.pop();
        }
        let from = name.and_then(|name| imported_from(&target, &all[&target], &name));
        found.extend(from.filter(|from| all.contains_key(from)));
        found.insert(target);
    };
    for one in path.find_iter(code) {
        let group = match one.as_str().ends_with('{') {
            true => group(&code[one.end()..]),
            false => "",
        };
        for path in paths(one.as_str().trim_end_matches('{'), group) {
            let mut target: Module = match path[0].as_str() {
                "crate" => Vec::new(),
                "self" => module.clone(),
                _ => module[..module.len().saturating_sub(1)].to_vec(),
            };
            for part in &path[1..] {
                match part.as_str() {
                    "super" => drop(target.pop()),
                    "self" => {}
                    part => target.push(part.to_string()),
                }
            }
            add(target);
        }
    }
    found
}

/// Module below `module` from which its source imports a name: `a` for `use a::{Name, b}`.
fn imported_from(module: &Module, code: &str, name: &str) -> Option<Module> {
    let import = Regex::new(r"\buse ((?:[a-z_0-9]+::)+)(\{|[A-Za-z_0-9]+;)").unwrap();
    import.captures_iter(code).find_map(|found| {
        let (whole, prefix, names) = (found.get(0)?, &found[1], &found[2]);
        let within = match names {
            "{" => group(&code[whole.end()..]),
            one => one.trim_end_matches(';'),
        };
        let all = paths(prefix, within);
        let path = all
            .into_iter()
            .find(|path| path.last().is_some_and(|last| last == name))?;
        let above = &path[..path.len() - 1];
        let skipped = usize::from(above.first().is_some_and(|first| first == "self"));
        Some([module, &above[skipped..]].concat())
    })
}

/// Text before the brace that closes a group.
fn group(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|letter| {
        depth += match letter {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Paths that `prefix::{group}` names; `prefix` itself if there is no group.
fn paths(prefix: &str, within: &str) -> Vec<Module> {
    let parts = |path: &str| -> Module {
        let names = path.split("::").map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_string)
            .collect()
    };
    if within.trim().is_empty() {
        return vec![parts(prefix)];
    }
    let mut found = Vec::new();
    let (mut left, prefix) = (within, prefix.trim_end_matches("::"));
    while !left.trim().is_empty() {
        let end = left.find([',', '{']).unwrap_or(left.len());
        let (name, inner) = match left[end..].strip_prefix('{') {
            Some(inner) => (&left[..end], group(inner)),
            None => (&left[..end], ""),
        };
        // The name in `a as b` is `a`.
        let name = name.split(" as ").next().unwrap_or_default().trim();
        if !name.is_empty() {
            found.extend(paths(&format!("{prefix}::{name}"), inner));
        }
        // The next name begins after this name, its group and a comma.
        let behind = end + if inner.is_empty() { 0 } else { inner.len() + 2 };
        left = left[behind.min(left.len())..].trim_start_matches([',', '}', ' ', '\n']);
    }
    found
}

/// Finds a circle among the siblings below each module.
fn circle(all: &BTreeMap<Module, String>) -> Option<String> {
    let mut below: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, code) in all {
        for target in named(module, code, all) {
            let common = module
                .iter()
                .zip(&target)
                .take_while(|(one, other)| one == other)
                .count();
            // One module is above the other: parent and child.
            if common < module.len() && common < target.len() {
                let siblings = below.entry(module[..common].to_vec()).or_default();
                let from = siblings.entry(module[common].clone()).or_default();
                from.insert(target[common].clone());
            }
        }
    }
    below.into_iter().find_map(|(parent, mut siblings)| {
        // Removes modules that name none of the modules left, until nothing changes.
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
    let mut count = 0;
    for root in source_folders() {
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
            .map(|(path, code)| (module(path), without_tests(code)))
            .collect::<BTreeMap<Module, String>>()
    };
    let straight = [
        ("", "mod a; mod b;"),
        ("a", "use crate::b::B;\nuse self::c::C;"),
        ("a::c", "use super::A;"),
        ("b", ""),
    ];
    assert_eq!(circle(&all(&straight)), None);
    let forms = [
        "use crate::{a::A, x};",
        "use crate::{x, a};",
        "use super::{X, a};",
        "use super::{\n    X,\n    a::{self, A},\n};",
        "use crate::{x::{y, Z}, a as other};",
        "use super::{x::{Y, z::{A, B}}, a::{c::{C}, A}};",
        "use super::a;",
        "fn f() { super::a::g() }",
    ];
    for form in forms {
        let mut round = straight;
        round[3].1 = form;
        let found = circle(&all(&round)).unwrap_or_default();
        assert!(found.contains("\"a\"") && found.contains("\"b\""), "{form}");
    }
    let behind_a_parent = [
        ("", "mod a; mod b;\npub use a::{x, A};\nuse self::b::B;"),
        ("a", "use crate::{B};"),
        (
            "b",
            "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse super::A;",
        ),
    ];
    let found = circle(&all(&behind_a_parent)).unwrap_or_default();
    assert!(found.contains("\"a\"") && found.contains("\"b\""));
    let mut none = behind_a_parent;
    none[2].1 = "#[cfg(test)]\nmod tests {\n    use super::A;\n}";
    assert_eq!(circle(&all(&none)), None);
    for form in ["use crate::{x::a, X};", "use super::x::{a, A};", "mod a {}"] {
        let mut none = straight;
        none[3].1 = form;
        assert_eq!(circle(&all(&none)), None, "{form}");
    }
}
