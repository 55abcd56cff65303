//! Capabilities of this process (capabilities(7)): which it holds, and giving up the rest.

use rustix::thread::{
    CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

pub use rustix::thread::CapabilitySet;

use crate::error::SystemError;

/// Gives up all capabilities but `wanted`, for good: no program that this process starts gets them back. Returns those
/// that it keeps. A process that has no others is not changed.
///
/// Call it before any thread starts: each has its own.
///
/// # Errors
/// What the kernel refuses.
pub fn keep(wanted: CapabilitySet) -> Result<CapabilitySet, SystemError> {
    let failed = |tried: &str| {
        let tried = tried.to_string();
        move |error: rustix::io::Errno| SystemError::new(tried, error.into())
    };
    let held = capabilities(None).map_err(failed("read the capabilities of this process"))?;
    let kept = held.permitted & wanted;
    if held.permitted == kept {
        return Ok(kept);
    }
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for bit in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << bit);
            // An error is the end of those that this kernel knows.
            if !kept.contains(one) && capability_is_in_bounding_set(one) == Ok(true) {
                remove_capability_from_bounding_set(one)
                    .map_err(failed("drop a capability from the bounding set"))?;
            }
        }
    }
    clear_ambient_capability_set().map_err(failed("clear the ambient capabilities"))?;
    set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: held.inheritable & kept,
    };
    set_capabilities(None, sets).map_err(failed("give up capabilities"))?;
    Ok(kept)
}

/// Names of capabilities, as in `CAP_BPF, CAP_PERFMON`; `none` of an empty set.
pub fn names(of: CapabilitySet) -> String {
    let names: Vec<String> = of
        .iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect();
    if names.is_empty() {
        "none".to_string()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone_for_the_thread_alone_and_the_rest_stays() {
        let before = capabilities(None).unwrap();
        // Each test has a thread of its own.
        let one = CapabilitySet::NET_RAW;
        let kept = keep(one).unwrap();
        assert_eq!(kept, before.permitted & one);
        let after = capabilities(None).unwrap();
        assert_eq!((after.effective, after.permitted), (kept, kept));
        assert_eq!(after.inheritable & !one, CapabilitySet::empty());
        if before.effective.contains(CapabilitySet::SETPCAP) {
            assert_eq!(
                capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN),
                Ok(false)
            );
        }
        assert_eq!(
            keep(CapabilitySet::SYS_ADMIN).unwrap(),
            CapabilitySet::empty()
        );
        assert_eq!(
            capabilities(None).unwrap().permitted,
            CapabilitySet::empty()
        );
    }

    #[test]
    fn capabilities_have_the_names_of_the_manual() {
        let both = CapabilitySet::BPF | CapabilitySet::PERFMON;
        assert_eq!(names(both), "CAP_PERFMON, CAP_BPF");
        assert_eq!(names(CapabilitySet::empty()), "none");
    }
}
