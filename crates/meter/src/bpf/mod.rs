//! Meters that load eBPF programs into the kernel. Each C source is beside its reader.
//!
//! They need CAP_BPF and CAP_PERFMON in the first user namespace and a kernel with BTF (5.8 or
//! newer); a meter that cannot be had is an error of [`load`], one line, and the others go on without it. Each
//! loaded copy looks at its own CPUs alone, so that two ends of a trial on one host cost what one does.

#[cfg(feature = "bpf")]
pub mod exact;
#[cfg(feature = "bpf")]
mod object;

use crate::{Meter, MeterError};

/// What a meter is to count.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// CPUs.
    pub cpus: Vec<usize>,
    /// Processes of the trial: not "others". Eight at most.
    pub own_pids: Vec<u32>,
}

/// Names of the meters that [`load`] knows.
pub const METERS: &[&str] = &["exact"];

/// Loads and attaches a meter; dropping it takes it out of the kernel again.
///
/// # Errors
/// It cannot be had here: no privilege, no BTF, refused by the kernel, or built without eBPF.
pub fn load(meter: &'static str, scope: &Scope) -> Result<Box<dyn Meter + Send>, MeterError> {
    #[cfg(feature = "bpf")]
    match meter {
        "exact" => return Ok(Box::new(exact::Exact::load(scope)?)),
        _ => {}
    }
    let _ = scope;
    Err(MeterError::Load {
        meter,
        reason: if METERS.contains(&meter) {
            "this tcpcost was built without eBPF (feature bpf)".to_string()
        } else {
            "no such meter".to_string()
        },
    })
}
