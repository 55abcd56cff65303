//! Runs scripts in packetdrill's notation, one file for each behaviour: `scripts/*.pkt`.

mod common;
mod script;

#[test]
fn every_script_runs_as_written() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pkt"));
    paths.sort();
    let mut failures = Vec::new();
    for path in &paths {
        let (name, text) = (
            path.file_name().unwrap().to_string_lossy(),
            std::fs::read_to_string(path).unwrap(),
        );
        assert!(
            text.starts_with("// RFC "),
            "{name}: the first line names the clause"
        );
        if let Err(message) = script::run(&text) {
            failures.push(format!("{name}: {message}"));
        }
    }
    assert!(paths.len() >= 20, "only {} scripts", paths.len());
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        paths.len(),
        failures.join("\n")
    );
}
