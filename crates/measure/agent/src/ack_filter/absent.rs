//! ACK filter of a program built without eBPF: always unavailable.

use anyhow::bail;
use tcpcost_meter::{Meter, MeterError};
use tcpcost_study::AckFilterRule;

/// Type without a value: no filter can be made.
pub enum AckFilter {}

impl AckFilter {
    /// Always fails with the reason.
    pub fn start(
        _: &str,
        _: AckFilterRule,
        _: impl FnOnce() -> Result<(), MeterError> + Send + 'static,
    ) -> anyhow::Result<AckFilter> {
        bail!("this program was built without eBPF, its feature `bpf`")
    }

    /// Always `None`.
    pub fn meter(_: &[AckFilter]) -> Option<Box<dyn Meter + Send>> {
        None
    }
}
