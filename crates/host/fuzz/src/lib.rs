//! What the fuzz target does with its bytes: also run by `cargo test`, over the corpus and changed copies of it.

/// Any bytes as a journal: its settings can be named and compared. Nothing is restored.
pub fn journal(data: &[u8]) {
    for setting in tcpcost_host::journal::settings(data) {
        assert!(!setting.knob().is_empty() || !setting.to_string().is_empty());
        assert!(setting.is_same(&setting.clone()), "{setting}");
    }
}
