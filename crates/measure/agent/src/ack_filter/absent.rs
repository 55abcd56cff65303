//! ACK filter of a program built without eBPF: always unavailable.

use tcpcost_meter::Meter;
use tcpcost_study::AckFilterRule;

/// Type without a value: no filter can be made.
pub enum AckFilter {}

impl AckFilter {
    /// Always fails with the reason.
    pub fn start(
        _: &str,
        _: AckFilterRule,
        _: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<AckFilter, String> {
        Err("this program was built without eBPF, its feature `bpf`".to_string())
    }

    /// Always `None`.
    pub fn meter(_: &[AckFilter]) -> Option<Box<dyn Meter + Send>> {
        None
    }
}
