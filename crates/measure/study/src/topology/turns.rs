//! Check of whether two ends can take turns in one thread.

use super::{LinkKind, Topology};
use tcpcost_knobs::{Reach, Side};

impl Topology {
    /// Checks that one thread can have both ends: one host that connects and one that listens, in
    /// one process, with the same kind of TCP.
    ///
    /// # Errors
    /// Reason why one thread cannot have both ends, in a few words.
    pub fn takes_turns(&self) -> Result<(), &'static str> {
        let [one, other] = self.hosts.as_slice() else {
            return Err("one thread has two ends, and here are more hosts");
        };
        let sides = [one, other].map(|host| self.side(host.name));
        if !(sides.contains(&Some(Side::Connects)) && sides.contains(&Some(Side::Listens))) {
            return Err("one thread has an end that connects and one that listens");
        }
        if one.stack != other.stack || one.reach != other.reach {
            return Err("both ends of one thread have the same TCP");
        }
        if !matches!(one.reach, Reach::Local | Reach::Netns | Reach::Memory) {
            return Err("both ends of one thread are in one process");
        }
        let is_plain =
            |kind| matches!(kind, LinkKind::Loopback | LinkKind::Veth | LinkKind::Memory);
        if !self.links.iter().all(|link| is_plain(link.kind)) {
            return Err(
                "a wire with delay or loss is a process of its own, for which one thread would wait",
            );
        }
        match [one, other]
            .iter()
            .any(|host| host.cpus.as_ref().is_some_and(|cpus| cpus.len() > 1))
        {
            true => Err("one thread has one CPU"),
            false => Ok(()),
        }
    }
}
