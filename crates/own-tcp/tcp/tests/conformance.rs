//! Test that all files, scripts and tests named in docs/dev/clauses.md exist.

use std::fs;
use std::path::Path;

#[test]
fn every_file_and_test_that_the_table_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(here.join("../../../docs/dev/clauses.md")).unwrap();
    let mut sources = String::new();
    read_all(here, &mut sources);
    let mut missing = Vec::new();
    let mut clauses = 0;
    for line in table.lines().filter(|line| line.starts_with("| RFC")) {
        clauses += 1;
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [_, what, places, tests] = cells[..] else {
            panic!("four cells: {line}");
        };
        for place in quoted(places) {
            if !here.join("src").join(place).is_file() {
                missing.push(place.to_string());
            }
        }
        let mut tests = quoted(tests).peekable();
        let excused = what.contains(": no");
        if tests.peek().is_none() && !excused {
            missing.push(format!("a test of: {what}"));
        }
        for test in tests {
            let exists = if test.ends_with(".pkt") {
                here.join("tests/scripts").join(test).is_file()
            } else {
                sources.contains(&format!("fn {test}("))
            };
            if !exists {
                missing.push(test.to_string());
            }
        }
    }
    assert!(clauses >= 50, "only {clauses} clauses");
    assert!(missing.is_empty(), "missing: {missing:#?}");
}

/// Text between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn read_all(directory: &Path, into: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
