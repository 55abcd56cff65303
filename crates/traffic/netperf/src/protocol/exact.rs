//! CPU time of one test, which our netserver reports to our netperf in addition to netperf's protocol. It is
//! in the last bytes of the results, which netperf sends but never reads.

use tcpcost_counts::MeterName;

use super::{Message, WORDS};

/// CPU time of one test at the end that reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnCpu {
    /// CPU time of the test, ns.
    pub cpu_ns: u64,
    /// Method of the measurement.
    pub method: Method,
}

/// Method that separates the CPU time of one instance from that of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The instance's thread without the interrupts that hit it, and the softirqs and hard interrupts for its
    /// sockets (eBPF).
    Exact,
    /// The instance's thread by the scheduler's clock, and a share of the machine's interrupts (/proc/stat)
    /// that equals its share of TCP segments.
    Share,
    /// Everything that ran on the machine, as an unmodified netserver reports.
    Machine,
}

impl Method {
    /// Name in results.
    pub fn name(self) -> &'static str {
        match self {
            Method::Exact => MeterName::Exact.name(),
            Method::Share => "share",
            Method::Machine => "machine",
        }
    }
}

/// First bytes of the report.
const MARK: &[u8; 8] = b"tcpcost1";
const BYTES: usize = 8 + 8 + 1;
const AT: usize = WORDS * 4 - BYTES;

/// Writes the report into results.
pub fn put(into: &mut Message, own: OwnCpu) {
    let tail = &mut into.body[AT..];
    tail[..8].copy_from_slice(MARK);
    tail[8..16].copy_from_slice(&own.cpu_ns.to_be_bytes());
    tail[16] = match own.method {
        Method::Exact => 1,
        Method::Share => 2,
        Method::Machine => 3,
    };
}

/// Reads the report from results. `None` if they are not from our netserver.
pub fn of(message: &Message) -> Option<OwnCpu> {
    let tail = message.body[AT..].strip_prefix(MARK)?;
    let method = match tail[8] {
        1 => Method::Exact,
        2 => Method::Share,
        3 => Method::Machine,
        _ => return None,
    };
    let cpu_ns = u64::from_be_bytes(tail[..8].try_into().ok()?);
    Some(OwnCpu { cpu_ns, method })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::omni::Results;

    #[test]
    fn only_ours_has_it_and_the_results_stay_as_they_are() {
        let mut message = Results::default().message();
        assert_eq!(of(&message), None);
        let own = OwnCpu {
            cpu_ns: 1 << 50,
            method: Method::Share,
        };
        put(&mut message, own);
        assert_eq!(of(&message), Some(own));
        assert_eq!(Results::of(&message), Results::default());
    }
}
