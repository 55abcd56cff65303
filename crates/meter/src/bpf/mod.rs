//! Meters that load eBPF programs into the kernel. Each C source is beside its reader.
//!
//! They need CAP_BPF and CAP_PERFMON in the first user namespace, and a kernel with BTF: 5.8 or newer, 5.11
//! for `segments`. A meter that cannot be had is an error of [`load`], one line, and the others go on
//! without it. A loaded copy leaves at once where it has nothing to count (`exact` another's CPU,
//! `segments` another's namespace), but 20 ns of CPU later: two ends of a trial on one host share a copy. The
//! second is given the first one's [`Pausable::handle`] and reads its own part; nothing is pinned, so programs end with the
//! process that loaded them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

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
    /// Whether `segments` counts by connection, too: so many ends of connections at least, those that were seen last.
    pub connections: Option<u32>,
    /// Handles of programs that another process has loaded with the same `own_pids` and `connections`, by meter. Where
    /// they are of no use here, which is no error, programs are loaded.
    pub loaded: BTreeMap<String, String>,
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
pub fn load(meter: &str, scope: &Scope) -> Option<Result<Box<dyn Pausable + Send>, MeterError>> {
    let meter = METERS.iter().find(|name| **name == meter)?;
    Some(load_known(meter, scope))
}

/// How programs rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They stay attached and leave at once: some 19 ns an event.
    Attached,
    /// They are detached, and cost nothing until they are attached again, which takes some 250 µs a meter and dozens
    /// of calls of every other CPU.
    Detached,
}

/// A meter whose programs can rest: its totals then stand still.
pub trait Pausable: Meter {
    /// Lets the programs rest.
    fn pause(&mut self, rest: Rest);

    /// Lets them run again.
    ///
    /// # Errors
    /// A program can no longer be attached.
    fn resume(&mut self) -> Result<(), MeterError>;

    /// By what another process of this host may take part in these programs ([`Scope::loaded`]), as long as this lives.
    fn handle(&self) -> Option<String> {
        None
    }
}

/// The key of one end of a connection: hashes of both ends' address and port, so two connections in some
/// billions are one.
pub fn connection_key(local: SocketAddr, remote: SocketAddr) -> u64 {
    u64::from(mix(local)) << 32 | u64::from(mix(remote))
}

/// `mix` of segments.bpf.c, and what its `parse` gives it.
fn mix(end: SocketAddr) -> u32 {
    let address = match end.ip().to_canonical() {
        IpAddr::V4(address) => u32::from_ne_bytes(address.octets()),
        IpAddr::V6(address) => {
            let octets = address.octets();
            let (words, _) = octets.as_chunks();
            words
                .iter()
                .fold(0, |sum, word| sum ^ u32::from_ne_bytes(*word))
        }
    };
    (address ^ u32::from(end.port()).wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b)
}

#[cfg(feature = "bpf")]
fn load_known(meter: &'static str, scope: &Scope) -> Result<Box<dyn Pausable + Send>, MeterError> {
    Ok(match meter {
        "exact" => Box::new(exact::Exact::load(scope)?),
        _ => Box::new(segments::Segments::load(scope)?),
    })
}

#[cfg(not(feature = "bpf"))]
fn load_known(meter: &'static str, _: &Scope) -> Result<Box<dyn Pausable + Send>, MeterError> {
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
