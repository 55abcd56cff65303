//! Meters that load eBPF programs into the kernel. Each C source is beside its reader.
//!
//! They need CAP_BPF and CAP_PERFMON in the first user namespace, and a kernel with BTF: 5.8 or newer, 5.11
//! for `segments`. A meter that cannot be had is an error of [`load`], one line, and the others go on
//! without it. A loaded copy leaves at once where it has nothing to count (`exact` another's CPU,
//! `segments` another's namespace), so that two ends of a trial on one host cost little more than one.
//!
//! `exact` of two ends that share CPUs would cost twice: one copy is to count for both.

#[cfg(feature = "bpf")]
pub mod exact;
#[cfg(feature = "bpf")]
mod object;
#[cfg(feature = "bpf")]
pub mod profile;
#[cfg(feature = "bpf")]
pub mod segments;
#[cfg(feature = "bpf")]
pub mod thin;

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
pub const METERS: &[&str] = &["exact", "segments"];

/// Loads and attaches a meter; dropping it takes it out of the kernel again. `None` for names that
/// are not in [`METERS`].
///
/// It belongs to the thread that calls this: descriptors that a second file table copied (CLONE_FILES)
/// would keep the programs in the kernel.
///
/// # Errors
/// It cannot be had here: no privilege, no BTF, refused by the kernel, or built without eBPF.
pub fn load(meter: &str, scope: &Scope) -> Option<Result<Box<dyn Meter + Send>, MeterError>> {
    let meter = METERS.iter().find(|name| **name == meter)?;
    Some(load_known(meter, scope))
}

#[cfg(feature = "bpf")]
fn load_known(meter: &'static str, scope: &Scope) -> Result<Box<dyn Meter + Send>, MeterError> {
    Ok(match meter {
        "exact" => Box::new(exact::Exact::load(scope)?),
        _ => Box::new(segments::Segments::load()?),
    })
}

#[cfg(not(feature = "bpf"))]
fn load_known(meter: &'static str, _: &Scope) -> Result<Box<dyn Meter + Send>, MeterError> {
    let reason = "this program was built without eBPF, its feature `bpf`".to_string();
    Err(MeterError::Load { meter, reason })
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use std::fs;
    use std::path::Path;

    /// The objects in bpf/prebuilt are made by this clang: Debian 12's.
    const PINNED: &str = "clang version 14.0.6";

    #[test]
    fn the_checked_in_objects_are_what_the_sources_give() {
        let built_by = env!("TCPCOST_BPF_BUILT_BY");
        if !built_by.ends_with(PINNED) {
            println!("skipped: built by {built_by}, not by {PINNED}");
            return;
        }
        for name in ["exact", "profile", "segments", "thin"] {
            let file = format!("{name}.bpf.o");
            let built = fs::read(Path::new(env!("OUT_DIR")).join(&file)).unwrap();
            let prebuilt = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("bpf/prebuilt")
                .join(&file);
            if std::env::var_os("TCPCOST_REWRITE").is_some() {
                fs::write(&prebuilt, &built).unwrap();
            }
            assert!(
                fs::read(&prebuilt).unwrap() == built,
                "{} is old: TCPCOST_REWRITE=1 cargo test -p tcpcost-meter",
                prebuilt.display()
            );
        }
    }
}
