//! Checks that the eBPF meters load: each is loaded as a command loads it, and dropped at once.

use tcpcost_host::cpus;
use tcpcost_host::error::remedy;
use tcpcost_meter::{MeterError, Needs, Owners, Scope, bpf};
use tcpcost_study::MeterName;

use super::Check;

/// One check per meter.
pub fn checks() -> Vec<Check> {
    let scope = Scope {
        cpus: cpus::allowed().unwrap_or_default(),
        ..Scope::default()
    };
    ROWS.iter().map(|row| row.check(&scope)).collect()
}

struct Row {
    name: &'static str,
    /// Meaning of a load: what can be measured.
    ok: &'static str,
    /// Effect of its absence, and what takes its place.
    absence: &'static str,
    load: fn(&Scope) -> Result<(), MeterError>,
}

const ROWS: &[Row] = &[
    Row {
        name: "meter_exact",
        ok: "loads: CPU time by context, to the nanosecond",
        absence: "CPU time that is not idle, by /proc/stat, instead",
        load: |scope| bpf::load(MeterName::Exact, scope).map(drop),
    },
    Row {
        name: "meter_owners",
        ok: "loads: softirq time of commands, processes, hosts and threads",
        absence: "softirq time is that of CPUs, not of commands, processes and hosts",
        load: load_owners,
    },
    Row {
        name: "meter_segments",
        ok: "loads: segments, skbs and ACKs, by connection",
        absence: "no sizes of skbs, no counts by connection; packets and ACKs by /proc/net/netstat instead",
        load: |scope| {
            let scope = Scope {
                connections: Some(1),
                ..scope.clone()
            };
            bpf::load(MeterName::Segments, &scope).map(drop)
        },
    },
    Row {
        name: "meter_socket_calls",
        ok: "loads: sends and receives of a command",
        absence: "`stat --syscalls` has no sends and receives",
        load: |scope| {
            let (_programs, follower) = bpf::load_following(scope)?;
            follower.count_calls().map(drop)
        },
    },
    #[cfg(feature = "bpf")]
    Row {
        name: "meter_profile",
        ok: "loads: call chains",
        absence: "no call-chain profile",
        load: |scope| bpf::profile::Profile::load(scope, 99).map(drop),
    },
    #[cfg(feature = "bpf")]
    Row {
        name: "ack_filter",
        ok: "loads: holds pure ACKs back at a device's egress",
        absence: "the knob `ack_filter` is a skip",
        load: |_| bpf::ack_filter::AckFilterProgram::loads(),
    },
];

/// Loads `exact` with the owners of each command: of `stat`, `watch`, studies and netperf.
fn load_owners(scope: &Scope) -> Result<(), MeterError> {
    let hosts = Owners::Hosts {
        index: 0,
        count: 1,
        sockets: 0,
    };
    bpf::load_following(&Scope {
        owners: Owners::Command,
        ..scope.clone()
    })?;
    for owners in [Owners::Holders, hosts] {
        bpf::load(
            MeterName::Exact,
            &Scope {
                owners,
                ..scope.clone()
            },
        )?;
    }
    bpf::Threads::load(&scope.cpus).map(drop)
}

impl Row {
    fn check(&self, scope: &Scope) -> Check {
        match (self.load)(scope) {
            Ok(()) => Check::ok(self.name, self.ok),
            Err(error) => Check::missing(
                self.name,
                error.cause(),
                self.absence,
                advice(error.needs()),
            ),
        }
    }
}

fn advice(needs: Option<Needs>) -> &'static str {
    match needs {
        Some(Needs::Capabilities(_)) => remedy(),
        Some(Needs::FirstPids) => "start this container with --pid=host",
        Some(Needs::Kernel(_)) => "use such a kernel",
        Some(Needs::Feature(_)) => "use a program built with eBPF",
        Some(Needs::Free(_)) => "end the other program",
        Some(Needs::Pmu) | None => "report it, with the kernel's release and this line",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_meter_that_does_not_load_says_why_what_takes_its_place_and_what_to_do() {
        let row = Row {
            name: "meter_exact",
            ok: "loads",
            absence: "CPU time by ticks",
            load: |_| Err(MeterError::built_without_bpf(MeterName::Exact)),
        };
        let check = row.check(&Scope::default());
        assert_eq!(check.verdict, Verdict::Missing);
        assert_eq!(
            check.found,
            "built without eBPF (needs a program built with the feature bpf)"
        );
        assert_eq!(check.consequence.as_deref(), Some("CPU time by ticks"));
        assert_eq!(
            check.advice.as_deref(),
            Some("use a program built with eBPF")
        );
    }
}
