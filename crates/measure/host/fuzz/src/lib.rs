//! Fuzz target, which `cargo test` also runs over its corpus and changed copies of the corpus.

/// Reads any bytes as a journal, names and compares its settings. Nothing is restored.
pub fn journal(data: &[u8]) {
    for setting in tcpcost_host::journal::settings(data) {
        assert!(!setting.knob().is_empty() || !setting.to_string().is_empty());
        assert!(setting.is_same(&setting.clone()), "{setting}");
    }
}
