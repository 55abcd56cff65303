//! Runs the fuzz targets over their corpora and changed copies of them. `cargo +nightly fuzz run answer` in
//! `crates/measure/agent` finds more inputs.

#[path = "../fuzz/src/lib.rs"]
mod targets;

#[test]
fn any_bytes_are_questions_or_none() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/ask");
    tcpcost_testbed::over_corpus(corpus, targets::ask);
}

#[test]
fn any_bytes_are_answers_or_none() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/answer");
    tcpcost_testbed::over_corpus(corpus, targets::answer);
}
