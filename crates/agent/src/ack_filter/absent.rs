//! ACK filter in a program without eBPF: it cannot be had.

use tcpcost_meter::Meter;
use tcpcost_study::AckFilterRule;

/// Never made.
pub enum AckFilter {}

impl AckFilter {
    /// Says why.
    pub fn start(
        _: &str,
        _: AckFilterRule,
        _: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<AckFilter, String> {
        Err("this program was built without eBPF, its feature `bpf`".to_string())
    }

    /// None.
    pub fn meter(_: &[AckFilter]) -> Option<Box<dyn Meter + Send>> {
        None
    }
}
