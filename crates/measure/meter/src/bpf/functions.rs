//! Addresses of the kernel's functions by which programs of `exact` tell timers and queues from each other.

use std::fs;
use std::io::{BufRead, BufReader};
use std::sync::LazyLock;

use super::symbols;

/// Looks up the addresses of the kernel's functions that tell owners of what softirqs send, and the tick from other timers. The
/// kernel shows addresses with CAP_SYSLOG alone, so this is called before that is given up.
pub fn look_up_functions() {
    LazyLock::force(&FUNCTIONS);
}

/// Addresses of the kernel's functions; 0 if a function is hidden or missing.
pub(super) struct Functions {
    /// Function of the pacing timer, without which pacing has no owner.
    pub(super) pace_kick: u64,
    /// Function of the regular tick's timer.
    pub(super) tick: u64,
    /// [`SENDERS`].
    pub(super) senders: Option<[u64; SENDERS.len()]>,
}

pub(super) static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let find = |name| symbols::addresses_of([name]).map(|[address]| address);
    // Before Linux 6.8 the second name is another function, and the first is the tick's.
    let tick = find("tick_sched_timer").or_else(|| find("tick_nohz_handler"));
    let (pace_kick, tick) = match (find("tcp_pace_kick"), tick) {
        (None, None) => listed(["tcp_pace_kick", "tick_sched_timer"]).into(),
        (pace_kick, tick) => (pace_kick.unwrap_or(0), tick.unwrap_or(0)),
    };
    Functions {
        pace_kick,
        tick,
        senders: symbols::addresses_of(SENDERS),
    }
});

/// Addresses of functions from the list of all symbols, for kernels before 5.16. Takes 50 ms.
fn listed(names: [&str; 2]) -> [u64; 2] {
    let mut addresses = [0; 2];
    let Ok(symbols) = fs::File::open("/proc/kallsyms") else {
        return addresses;
    };
    // The list has some 5 MB of text, so reading stops when all are found.
    let mut lines = BufReader::with_capacity(1 << 16, symbols)
        .lines()
        .map_while(Result::ok);
    while addresses.contains(&0)
        && let Some(line) = lines.next()
    {
        let mut words = line.split(' ');
        // The kind is `T` if the function is not static.
        if let (Some(address), Some("t" | "T"), Some(name)) =
            (words.next(), words.next(), words.next())
            && let Some(at) = names.iter().position(|wanted| *wanted == name)
        {
            addresses[at] = u64::from_str_radix(address, 16).unwrap_or(0);
        }
    }
    addresses
}

/// Functions that send in a softirq, in the order of `targ`.
const SENDERS: [&str; 6] = [
    "tcp_write_timer",
    "tcp_delack_timer",
    "tcp_keepalive_timer",
    "reqsk_timer_handler",
    // Linux 6.9 and later.
    "tcp_tsq_workfn",
    "tcp_compressed_ack_kick",
];
