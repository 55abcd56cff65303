//! Fuzz target over its corpus and changed copies of it. `cargo +nightly fuzz run journal` in
//! `crates/measure/host` extends the corpus.

#[path = "../fuzz/src/lib.rs"]
mod targets;

#[test]
fn any_bytes_are_a_journal() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/journal");
    tcpcost_testbed::over_corpus(corpus, targets::journal);
}
