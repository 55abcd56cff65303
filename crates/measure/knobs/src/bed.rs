//! Beds: where the hosts of a trial are.

use crate::host_name::HostName;
use crate::host_reach::Reach;
use crate::knob::Knobs;
use crate::knob_error::KnobError;
use crate::words::words;

words! {
    /// Bed: description of hosts and links.
    Bed {
        /// Network namespaces connected by veth pairs.
        Netns = "netns",
        /// Loopback of the command's own namespace.
        Loopback = "loopback",
        /// Two namespaces connected by a TAP, with our TCP in one of them.
        Tap = "tap",
        /// Our TCP at both ends, in one process.
        Memory = "memory",
        /// Devices of hosts that the study names, as they are.
        Hosts = "hosts",
    }
}

impl Bed {
    /// Bed of the hosts that a study names: `netns` if all are in namespaces of their own, else
    /// `hosts`. A host in a namespace of its own with a `device` gets a device of the command's
    /// machine, which is moved there.
    ///
    /// # Errors
    /// One line: only some hosts are in namespaces; or no host exists that the device could come
    /// from.
    pub fn of_named(knobs: &Knobs) -> Result<Bed, KnobError> {
        let hosts = knobs.named_hosts();
        let is_netns = |host: &&HostName| knobs.reach(**host) == Some(Reach::Netns);
        let has_device = |host: &&HostName| {
            let device = knobs.value_at(**host, "device");
            device.is_some_and(|word| word.to_string() != "auto")
        };
        let is_local = |host: &HostName| knobs.reach(*host) == Some(Reach::Local);
        let wrong = |reason: &str| Err(KnobError::new("reach", reason));
        let moved = hosts.iter().filter(is_netns).filter(has_device).count();
        if moved > 0 && !hosts.iter().any(is_local) {
            return wrong(
                "a device is moved into a namespace (netns with device) of the machine of another host, which is reached by local",
            );
        }
        match hosts.iter().filter(is_netns).count() - moved {
            0 => Ok(Bed::Hosts),
            count if count == hosts.len() => Ok(Bed::Netns),
            _ => wrong(
                "either all hosts are in namespaces that are made for the trial (netns) or none: a namespace that is there already is reached by exec:ip netns exec NAME",
            ),
        }
    }
}
