//! Fuzz target over its corpus. `cargo +nightly fuzz run uperf` in `crates/measure/study` extends the
//! corpus.

#[path = "../fuzz/src/lib.rs"]
mod targets;

#[test]
fn profiles_of_the_corpus_become_a_study_or_a_line() {
    let directory = format!("{}/fuzz/corpus/uperf", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        targets::uperf(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 5, "{count}");
}
