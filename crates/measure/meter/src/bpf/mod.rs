//! Meters that load eBPF programs into the kernel. Each C source is beside its reader.
//!
//! They need CAP_BPF and CAP_PERFMON in the first user namespace, and a kernel with BTF: 5.10 or newer, 5.12
//! for owners and the ACK filter. A meter that cannot be had is an error of [`load`], one line, and the others go on
//! without it. A loaded copy leaves at once where it has nothing to count (`exact` another's CPU,
//! `segments` another's namespace), but 20 ns of CPU later: two ends of a trial on one host share a copy. The
//! second is given the first one's [`Meter::handle`] and reads its own part; nothing is pinned, so programs end with the
//! process that loaded them.

use std::net::{IpAddr, SocketAddr};

#[cfg(feature = "bpf")]
pub mod ack_filter;
#[cfg(feature = "bpf")]
mod calls;
#[cfg(feature = "bpf")]
mod cgroup;
#[cfg(feature = "bpf")]
mod events;
#[cfg(feature = "bpf")]
pub mod exact;
#[cfg(feature = "bpf")]
mod functions;
#[cfg(feature = "bpf")]
mod holders;
#[cfg(feature = "bpf")]
mod layout;
#[cfg(feature = "bpf")]
mod object;
#[cfg(feature = "bpf")]
mod owned_rows;
#[cfg(feature = "bpf")]
pub mod profile;
#[cfg(feature = "bpf")]
pub mod segments;
#[cfg(feature = "bpf")]
mod symbols;
#[cfg(feature = "bpf")]
mod threads;

use tcpcost_counts::MeterName;

use crate::{Meter, MeterError, Scope};

/// The meters that [`load`] knows.
pub const METERS: &[MeterName] = &[MeterName::Exact, MeterName::Segments];

/// Loads and attaches one of [`METERS`]; dropping it takes it out of the kernel again.
///
/// It belongs to the thread that calls this: descriptors that a second file table copied (CLONE_FILES)
/// would keep the programs in the kernel.
///
/// # Errors
/// It cannot be had here: no privilege, no BTF, refused by the kernel, built without eBPF, or not by eBPF.
#[cfg(feature = "bpf")]
pub fn load(meter: MeterName, scope: &Scope) -> Result<Box<dyn Pausable + Send>, MeterError> {
    match meter {
        MeterName::Exact => Ok(Box::new(exact::Exact::load(scope)?)),
        MeterName::Segments => Ok(Box::new(segments::Segments::load(scope)?)),
        _ => Err(MeterError::refused(
            meter,
            "has no eBPF programs of its own",
        )),
    }
}

/// The meter `exact`, and by whom processes are made own while it counts.
///
/// # Errors
/// As [`load`].
#[cfg(feature = "bpf")]
pub fn load_following(scope: &Scope) -> Result<(Box<dyn Meter + Send>, Follower), MeterError> {
    let scope = Scope {
        follows: scope.follows.or(Some(exact::FOLLOWED_MAX)),
        ..scope.clone()
    };
    let exact = exact::Exact::load(&scope)?;
    let follower = exact.follower()?;
    Ok((Box::new(exact), follower))
}

/// Checks that programs of `exact` can name the socket of each packet, at the root of cgroup v2; attaches none.
///
/// # Errors
/// [`Meter::misses`] says what they then miss. No cgroup v2, no CAP_NET_ADMIN, a program at the root that admits no other.
#[cfg(feature = "bpf")]
pub fn cgroup_admits() -> Result<(), MeterError> {
    cgroup::root_admits(MeterName::Exact)
}

/// Stand-in for a build without eBPF.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bpf"))]
pub fn cgroup_admits() -> Result<(), MeterError> {
    Err(MeterError::built_without_bpf(MeterName::Exact))
}

/// Packets that have no owner where [`cgroup_admits`] fails.
pub const MISSED_BY_PROBE: &str = "packets of UDP, of connections that open or close, and of sockets in use by a system call have none";

#[cfg(feature = "bpf")]
pub use exact::Follower;
#[cfg(feature = "bpf")]
pub use functions::look_up_functions;
#[cfg(feature = "bpf")]
pub use owned_rows::THREADS_MAX;
#[cfg(feature = "bpf")]
pub use threads::{Thread, Threads};

/// Nothing to look up without eBPF.
#[cfg(not(feature = "bpf"))]
pub fn look_up_functions() {}

/// Makes processes own while `exact` counts: there is none without eBPF.
#[cfg(not(feature = "bpf"))]
#[derive(Debug)]
pub enum Follower {}

#[cfg(not(feature = "bpf"))]
impl Follower {
    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn follow(&self, _: u32, _: bool) -> Result<(), MeterError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn adopt_open_sockets(&self) -> Result<(), MeterError> {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn count_calls(&self) -> Result<Box<dyn Meter + Send>, MeterError> {
        match *self {}
    }
}

/// CPU time of named threads. No value exists without eBPF.
#[cfg(not(feature = "bpf"))]
#[derive(Debug)]
pub enum Threads {}

/// A thread that is measured. No value exists without eBPF.
#[cfg(not(feature = "bpf"))]
#[derive(Debug)]
pub enum Thread {}

#[cfg(not(feature = "bpf"))]
impl Threads {
    /// Fails, because this build has no eBPF.
    ///
    /// # Errors
    /// Always.
    pub fn load(_: &[usize]) -> Result<Threads, MeterError> {
        Err(MeterError::built_without_bpf(MeterName::Exact))
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn name(&mut self, _: u32) -> Result<Thread, MeterError> {
        match *self {}
    }

    /// Cannot be called.
    pub fn ns(&self, _: &Thread) -> u64 {
        match *self {}
    }

    /// Cannot be called.
    pub fn forget(&mut self, _: &Thread) {
        match *self {}
    }
}

/// Stand-in for a build without eBPF.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bpf"))]
pub fn load_following(_: &Scope) -> Result<(Box<dyn Meter + Send>, Follower), MeterError> {
    Err(MeterError::built_without_bpf(MeterName::Exact))
}

/// Stand-in for a build without eBPF.
///
/// # Errors
/// Always.
#[cfg(not(feature = "bpf"))]
pub fn load(meter: MeterName, _: &Scope) -> Result<Box<dyn Pausable + Send>, MeterError> {
    Err(MeterError::built_without_bpf(meter))
}

/// How idle programs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// Programs stay attached and return at once: about 19 ns an event.
    Attached,
    /// Programs are detached and cost nothing. Attaching them again takes about 250 µs a meter and interrupts every other CPU
    /// dozens of times.
    Detached,
}

/// A meter whose programs can be idle: its totals then stand still.
pub trait Pausable: Meter {
    /// Makes the programs idle.
    fn pause(&mut self, idle: Idle);

    /// Lets them run again.
    ///
    /// # Errors
    /// A program can no longer be attached.
    fn resume(&mut self) -> Result<(), MeterError>;
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
            tcpcost_testbed::skip(&format!("built by {built_by}, not by {PINNED}"));
            return;
        }
        let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf")).unwrap();
        let names = sources.filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            Some(format!("{}.o", name.strip_suffix(".c")?))
        });
        for file in names {
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

    #[test]
    fn the_checked_in_objects_are_under_both_licences() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/prebuilt");
        let license = b"Dual MIT/GPL\0";
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let object = fs::read(&path).unwrap();
            let is_told = object.windows(license.len()).any(|bytes| bytes == license);
            assert!(is_told, "{}", path.display());
        }
    }
}
