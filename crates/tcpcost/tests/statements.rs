//! Statements of the five papers (docs/published_statements.csv): the built-in study that a
//! statement names has a test of it, unless the list says why nothing here can test it.

use std::collections::BTreeMap;
use std::path::Path;

use tcpcost_study::Study;

#[test]
fn every_published_statement_is_tested_by_one_study_in_the_words_of_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let mut tested: BTreeMap<String, (String, String)> = BTreeMap::new();
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|end| end != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let study = Study::parse(&name, &text, &name).unwrap();
        for statement in &study.statements {
            let mut conclusions = study.conclusions.iter();
            let functions = study.published_functions.iter();
            let mut ratios = functions.flat_map(|functions| &functions.ratios);
            let tests = conclusions.any(|one| one.statement.as_ref() == Some(&statement.id))
                || ratios.any(|one| {
                    one.tests
                        .as_ref()
                        .is_some_and(|(id, ..)| *id == statement.id)
                });
            assert!(tests, "{name}: nothing tests {}", statement.id);
            let before =
                tested.insert(statement.id.clone(), (name.clone(), statement.text.clone()));
            assert!(before.is_none(), "{} is in two studies", statement.id);
        }
    }
    let list = std::fs::read_to_string(folder.join("../docs/published_statements.csv")).unwrap();
    let mut list = csv::Reader::from_reader(list.as_bytes());
    let mut listed = 0;
    for row in list.records() {
        let row = row.unwrap();
        if !row[4].is_empty() {
            continue;
        }
        let id = format!("{}/{}", &row[0], &row[1]);
        listed += 1;
        let (study, text) = tested
            .get(&id)
            .unwrap_or_else(|| panic!("no study tests {id}"));
        assert_eq!(*text, row[2], "{study}: {id}");
    }
    assert_eq!(listed, tested.len(), "statements that are not in the list");
}
