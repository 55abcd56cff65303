//! Runs the fuzz target over its corpus and changed copies of it. `cargo +nightly fuzz run records` in
//! `crates/measure/report` finds more inputs.

#[path = "../fuzz/src/lib.rs"]
mod targets;

#[test]
fn any_bytes_are_reported_or_refused() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/records");
    tcpcost_testbed::over_corpus(corpus, targets::records);
}
