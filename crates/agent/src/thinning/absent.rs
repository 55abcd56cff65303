//! ACK thinning in a program without eBPF: it cannot be had.

use tcpcost_meter::Meter;
use tcpcost_study::AckThinning;

/// Never made.
pub enum Thinning {}

impl Thinning {
    /// Says why.
    pub fn start(
        _: &str,
        _: AckThinning,
        _: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Thinning, String> {
        Err("this program was built without eBPF, its feature `bpf`".to_string())
    }

    /// None.
    pub fn meter(&self) -> Box<dyn Meter + Send> {
        match *self {}
    }
}
