//! Permanent drop of privileges that a process no longer needs.
//!
//! Each thread has its own capabilities, user and groups, so they are dropped before the first
//! thread starts. Programs that the process executes later cannot regain them.

use std::fs;
use std::path::Path;

use rustix::process::{Gid, Uid};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::error::SystemError;
use crate::place::is_in_hosts_user_namespace;

/// Capabilities that the eBPF meters need.
pub const METERS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Drops all capabilities except `kept`, permanently. Returns the capabilities left; those that the
/// process did not have are not added. A process without others is not changed.
///
/// # Errors
/// The process has more than one thread, or the kernel refuses.
pub fn keep_only(kept: CapabilitySet) -> Result<CapabilitySet, SystemError> {
    let tried = || format!("drop all capabilities but {}", names(kept));
    let failed = |error: rustix::io::Errno| SystemError::new(tried(), error.into());
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    let threads = threads.map_err(|error| SystemError::new(tried(), error))?;
    if threads != 1 {
        let why = format!("the process has {threads} threads, and each would keep its own");
        return Err(SystemError::strange(tried(), why));
    }
    let held = capabilities(None).map_err(failed)?;
    if kept.contains(held.permitted) {
        return Ok(held.permitted);
    }
    if held.permitted.contains(CapabilitySet::SETPCAP) {
        // setuid(2) removed SETPCAP from the effective set.
        let effective = held.permitted;
        let raised = CapabilitySets { effective, ..held };
        set_capabilities(None, raised).map_err(failed)?;
        for capability in CapabilitySet::all().difference(kept).iter() {
            // EINVAL: a capability that this kernel does not know.
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    // EINVAL before Linux 4.3, which has no ambient set.
    let _ = clear_ambient_capability_set();
    let left = held.permitted.intersection(kept);
    let sets = CapabilitySets {
        effective: left,
        permitted: left,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed)?;
    set_no_new_privs(true).map_err(failed)?;
    Ok(left)
}

/// Changes to a user permanently, with the user's own group only, and drops all capabilities except
/// `kept`. Returns the capabilities left.
///
/// # Errors
/// The process has more than one thread, may not change its user, or the user is not mapped in this
/// user namespace (EINVAL).
pub fn become_user(
    user: Uid,
    group: Gid,
    kept: CapabilitySet,
) -> Result<CapabilitySet, SystemError> {
    let failed = |error: rustix::io::Errno| {
        SystemError::new(format!("become user {}", user.as_raw()), error.into())
    };
    // setuid(2) would drop them.
    set_keep_capabilities(true).map_err(failed)?;
    set_thread_groups(&[]).map_err(failed)?;
    set_thread_res_gid(group, group, group).map_err(failed)?;
    set_thread_res_uid(user, user, user).map_err(failed)?;
    keep_only(kept)
}

/// True if the process may load the eBPF programs of meters: it has the capabilities, in the host's
/// own user namespace.
pub fn may_meter() -> bool {
    let effective = capabilities(None).map(|sets| sets.effective);
    let suffices =
        |held: CapabilitySet| held.contains(METERS) || held.contains(CapabilitySet::SYS_ADMIN);
    effective.is_ok_and(suffices) && is_in_hosts_user_namespace(Path::new("/"))
}

/// Names of capabilities, e.g. `CAP_PERFMON, CAP_BPF`; `none` for an empty set.
pub fn names(capabilities: CapabilitySet) -> String {
    let names: Vec<String> = capabilities
        .iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect();
    match &names[..] {
        [] => "none".to_string(),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_have_their_names() {
        assert_eq!(names(CapabilitySet::empty()), "none");
        assert_eq!(names(METERS), "CAP_PERFMON, CAP_BPF");
    }

    #[test]
    fn a_process_with_threads_is_refused() {
        // The test runner has a second thread.
        let error = keep_only(METERS).unwrap_err();
        assert!(error.to_string().contains("threads"), "{error}");
    }
}
