//! Every knob that a study may set: one row each, from which parsing, defaults and
//! `docs/study-file.md` are made.

use std::time::Duration;

use crate::units;
use crate::value::{Raw, Value};

/// The table of a study file a knob belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `[workload]`: what traffic.
    Workload,
    /// `[bed]`: over which path, with which offloads and sysctls.
    Bed,
}

/// What values a knob takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in this range.
    Count(u64, u64),
    /// A size in bytes in this range.
    Bytes(u64, u64),
    /// A rate in bits per second.
    BitRate,
    /// Events per second.
    EventRate,
    /// A span of time in this range, milliseconds.
    Time(u64, u64),
    /// On or off.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of CPU numbers.
    Cpus,
    /// Any text.
    Text,
}

/// One knob: its name, where it is set, what it takes and what it is when nobody sets it.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// The name in `[vary]`, `[[cells]]`, records and tables.
    pub name: &'static str,
    /// The key in its own table; differs from `name` only for `kind`.
    pub key: &'static str,
    /// The table.
    pub group: Group,
    /// What it takes.
    pub kind: Kind,
    /// A word that is accepted beside `kind`, such as `"auto"`; also the way to say "untouched".
    pub or_word: Option<&'static str>,
    /// The default, as written in a study file.
    pub default: &'static str,
    /// Whether `client.NAME` and `server.NAME` set one end only.
    pub per_end: bool,
    /// One sentence: meaning, unit, why this default.
    pub doc: &'static str,
}

const fn workload(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        name,
        key: name,
        group: Group::Workload,
        kind,
        or_word: None,
        default,
        per_end: false,
        doc,
    }
}

const fn bed(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Knob {
    Knob {
        name,
        key: name,
        group: Group::Bed,
        kind,
        or_word: None,
        default,
        per_end: false,
        doc,
    }
}

/// A knob of each end's device or route, untouched unless set.
const fn device(name: &'static str, kind: Kind, doc: &'static str) -> Knob {
    Knob {
        or_word: Some("leave"),
        per_end: true,
        ..bed(name, kind, "leave", doc)
    }
}

/// A policy of an end's TCP; `default` is its stack's own.
const fn policy(name: &'static str, kind: Kind, doc: &'static str) -> Knob {
    Knob {
        or_word: Some("default"),
        per_end: true,
        ..bed(name, kind, "default", doc)
    }
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// All knobs, in the order of the documentation. Sysctls (`sysctl.NAME`) are knobs too, without a
/// row each: the kernel knows their names.
pub const KNOBS: &[Knob] = &[
    Knob {
        key: "kind",
        ..workload(
            "workload",
            Kind::Choice(&["stream", "maerts", "bidirectional", "rr", "crr"]),
            "stream",
            "The traffic: `stream` (client sends), `maerts` (server sends), `bidirectional`, `rr` (request/response on standing connections), `crr` (connect, request, response, close).",
        )
    },
    workload(
        "flows",
        Kind::Count(1, 30_000),
        "1",
        "Connections in all, dealt round over the client's threads. For `crr`, connections at a time.",
    ),
    workload(
        "threads",
        Kind::Count(0, 1024),
        "0",
        "Worker threads per end, each with its own epoll, or with an instance of our own TCP (a queue of the TAP each; in memory both ends have as many); 0 is one for each CPU of the end.",
    ),
    workload(
        "write_size",
        Kind::Bytes(1, 64 * MIB),
        "64KiB",
        "Bytes handed to the kernel per call. A shorter message is one call; a longer one is cut.",
    ),
    workload(
        "read_size",
        Kind::Bytes(1, 64 * MIB),
        "64KiB",
        "Size of the reader's buffer. 64 KiB because it stays in the L2 cache: 128 KiB reads tripled a receiver's CPU on one machine.",
    ),
    workload(
        "request_size",
        Kind::Bytes(1, 64 * MIB),
        "1B",
        "Bytes of a request (`rr`, `crr`).",
    ),
    workload(
        "response_size",
        Kind::Bytes(1, 64 * MIB),
        "1B",
        "Bytes of a response (`rr`, `crr`).",
    ),
    workload(
        "in_flight",
        Kind::Count(1, 1024),
        "1",
        "Requests outstanding per connection (`rr`).",
    ),
    Knob {
        or_word: Some("unlimited"),
        ..workload(
            "rate",
            Kind::BitRate,
            "unlimited",
            "Payload per second over all flows and in each sending direction (`stream`, `maerts`, `bidirectional`): equal work, so that CPU can be compared. `unlimited` is CPU-bound.",
        )
    },
    Knob {
        or_word: Some("unlimited"),
        ..workload(
            "transaction_rate",
            Kind::EventRate,
            "unlimited",
            "Transactions per second over all flows (`rr`, `crr`). Response times then count from the time a request was due, so a stall is not hidden.",
        )
    },
    workload(
        "send_with",
        Kind::Choice(&[
            "write",
            "send",
            "sendfile",
            "sendfile-memfd",
            "splice",
            "zerocopy",
        ]),
        "send",
        "The call that sends payload: `write`, `send`, `sendfile` from a file on disk or from a memfd, `splice` from a pipe of file pages, `zerocopy` (MSG_ZEROCOPY; whether the kernel copied after all is reported).",
    ),
    workload(
        "receive_with",
        Kind::Choice(&["read", "recv-trunc", "splice"]),
        "read",
        "The call that takes payload: `read`, `recv-trunc` (MSG_TRUNC: nothing is copied), `splice` (to /dev/null through a pipe).",
    ),
    workload(
        "file_size",
        Kind::Bytes(4096, GIB),
        "16MiB",
        "Size of the file that `sendfile` and `splice` send from, over and over; 16 MiB is more than an L2 cache and less than most last-level ones.",
    ),
    workload(
        "cork",
        Kind::Choice(&["off", "on", "msg-more"]),
        "off",
        "`on`: TCP_CORK around each message (for a stream: all along). `msg-more`: MSG_MORE on every call but a message's last (for a stream: on every call).",
    ),
    workload(
        "nodelay",
        Kind::Switch,
        "off",
        "TCP_NODELAY; off is the kernel's default, so Nagle's rule holds.",
    ),
    Knob {
        or_word: Some("auto"),
        ..workload(
            "send_buffer",
            Kind::Bytes(2048, GIB),
            "auto",
            "SO_SNDBUF as asked for (the kernel doubles it); `auto` leaves the kernel's tuning on.",
        )
    },
    Knob {
        or_word: Some("auto"),
        ..workload(
            "receive_buffer",
            Kind::Bytes(2048, GIB),
            "auto",
            "SO_RCVBUF as asked for (the kernel doubles it); `auto` leaves the kernel's tuning on.",
        )
    },
    workload(
        "congestion_control",
        Kind::Text,
        "reno",
        "TCP_CONGESTION. `reno` is in every kernel, open to every user, and does not pace; bbr paces and so measures its timers.",
    ),
    workload(
        "check",
        Kind::Switch,
        "off",
        "Compare every payload byte on arrival with what was sent; costs the receiver a pass over the data, so off where cost is measured.",
    ),
    workload(
        "placement",
        Kind::Choice(&["two-cpus", "same-cpu", "smt-sibling"]),
        "two-cpus",
        "Where the two ends run unless `client_cpus` and `server_cpus` say: each on a CPU (core) of its own, both on one, or on two threads of one core.",
    ),
    Knob {
        or_word: Some("auto"),
        ..workload(
            "client_cpus",
            Kind::Cpus,
            "auto",
            "CPUs of the client's threads; `auto` follows `placement`.",
        )
    },
    Knob {
        or_word: Some("auto"),
        ..workload(
            "server_cpus",
            Kind::Cpus,
            "auto",
            "CPUs of the server's threads; `auto` follows `placement`.",
        )
    },
    Knob {
        key: "kind",
        ..bed(
            "bed",
            Kind::Choice(&["auto", "netns", "loopback", "tap", "memory"]),
            "auto",
            "`netns`: two network namespaces joined by a veth pair, receive work steered to each end's CPUs, so that CPU accounting is per host. `loopback`: this host's own. `tap`: our TCP at one end, the kernel's at the other, a TAP between their namespaces. `memory`: our TCP at both ends, in one process. `auto`: what `stack` asks for; for the kernel's at both ends `netns` where it can be had.",
        )
    },
    Knob {
        per_end: true,
        ..bed(
            "stack",
            Kind::Choice(&["kernel", "user"]),
            "kernel",
            "Whose TCP an end is: the kernel's, or our own in user space, one thread an end.",
        )
    },
    Knob {
        or_word: Some("leave"),
        per_end: true,
        ..bed(
            "mtu",
            Kind::Bytes(576, 65535),
            "leave",
            "MTU of the device in bytes; veth starts at 1500, loopback at 65536.",
        )
    },
    device(
        "segmentation",
        Kind::Choice(&["per-mss", "software-gso", "tso"]),
        "Who cuts: `per-mss` (gso_max_segs 1: one skb per MSS through TCP's output path, as in 2005), `software-gso` (tso off, gso on: TCP builds super-segments, the kernel cuts them before the device), `tso` (the device gets super-segments).",
    ),
    device(
        "tso",
        Kind::Switch,
        "TCP segmentation offload (ethtool tso).",
    ),
    device(
        "gso",
        Kind::Switch,
        "Generic segmentation offload (ethtool gso).",
    ),
    device(
        "gro",
        Kind::Switch,
        "Generic receive offload (ethtool gro). veth starts with it off.",
    ),
    device(
        "sg",
        Kind::Switch,
        "Scatter-gather (ethtool sg); off also takes tso away, as the kernel has it.",
    ),
    device(
        "tx_checksum",
        Kind::Switch,
        "Transmit checksum offload (ethtool tx-checksumming); off also takes sg and tso away.",
    ),
    device(
        "gso_max_segs",
        Kind::Count(1, 65535),
        "Most segments in one super-segment (ip link gso_max_segs).",
    ),
    device(
        "gso_max_size",
        Kind::Bytes(1500, 524_280),
        "Most bytes in one super-segment, IPv4's limit included (ip link gso_max_size, gso_ipv4_max_size).",
    ),
    Knob {
        or_word: Some("none"),
        per_end: true,
        ..bed(
            "bottleneck",
            Kind::BitRate,
            "none",
            "Rate of a token bucket (tbf) on what the end sends; counts Ethernet frames. `netns` only.",
        )
    },
    Knob {
        per_end: true,
        ..bed(
            "bottleneck_queue",
            Kind::Bytes(1500, GIB),
            "1MiB",
            "Bytes that may wait in the bottleneck's queue.",
        )
    },
    device(
        "quickack",
        Kind::Switch,
        "`quickack 1` on the route: the end acknowledges every segment at once.",
    ),
    device(
        "ack_thin",
        Kind::Count(1, 64),
        "Of the pure ACKs that the kernel's TCP sends only every so many-th leaves the device (eBPF at tc egress; docs/acks.md says which are never held, and when one held is sent after all). With `quickack = \"on\"`, `gro = \"off\"` and the peer's `segmentation = \"per-mss\"` that is so many segments an ACK.",
    ),
    device(
        "rcvlowat",
        Kind::Bytes(1, GIB),
        "SO_RCVLOWAT: the kernel wakes the reader only when so much can be read. Of streams alone.",
    ),
    policy(
        "ack_policy",
        Kind::Choice(&[
            "delayed",
            "linux-like",
            "every",
            "exactly",
            "avoidance",
            "on-read",
            "requested",
        ]),
        "When an end acknowledges: `delayed` (RFC 9293: every second full-sized segment), `linux-like` (quick ACKs, pingpong, adaptive timeout), `every` (each `ack_segments` wire segments), `exactly` (the same also inside a super-segment), `avoidance` (HP-UX and Solaris: a limit that grows with each ACK), `on-read` (the reader's read acknowledges), `requested` (the sender asks, TCP ACK Rate Request). Our own default is `delayed`; the kernel's is `linux-like`.",
    ),
    policy(
        "ack_segments",
        Kind::Count(1, 64),
        "Wire segments per ACK of `every` and `exactly` (2), the most that `on-read` leaves unacknowledged (64), what `requested` asks its peer for (8). Never more than half the window.",
    ),
    policy(
        "ack_delay",
        Kind::Time(1, 499),
        "Longest wait of an ACK; 40ms, for `linux-like` 200ms, for `avoidance` 50ms.",
    ),
    policy(
        "ack_limit_initial",
        Kind::Count(0, 64),
        "Where the limit of `avoidance` begins: 1 as on HP-UX in 2005, 0 as in illumos.",
    ),
    policy(
        "ack_limit_max",
        Kind::Count(1, 64),
        "Where the limit of `avoidance` ends: `ack_segments` if that is set, else 22 as on HP-UX; illumos has 8 for neighbours, 2 through a router.",
    ),
    policy(
        "comp_sack_nr",
        Kind::Count(0, 255),
        "ACKs of segments behind a gap that are left out in a row before one leaves, 44; 0 leaves none out. Linux, as sysctl, and our `linux-like`.",
    ),
    policy(
        "comp_sack_delay_us",
        Kind::Count(0, 499_000),
        "How many microseconds the first ACK that is left out behind a gap waits at most, 1000; 5 % of the round trip if that is less. Linux, as sysctl, and our `linux-like`.",
    ),
    policy(
        "backlog_ack_defer",
        Kind::Switch,
        "Whether segments that came while the application had its turn are acknowledged once, on; off: each by itself. Linux, as sysctl, and our `linux-like`.",
    ),
    policy(
        "tail_split",
        Kind::Choice(&["always", "nagle"]),
        "Whether a partial segment behind full ones leaves by itself: `always` (Linux before 3.14) or only where Nagle's rule holds it (`nagle`, since; the default of both stacks).",
    ),
    policy(
        "tso_win_divisor",
        Kind::Count(0, 64),
        "A sender waits until this fraction of its window is free before it sends less than a whole super-segment; 0 waits for more than three segments. Linux: 3, as sysctl; ours does not wait unless set.",
    ),
    policy(
        "super_segment",
        Kind::Bytes(0, 65_535),
        "Most payload that our TCP hands to its device at once, 65160B; 0 for ordinary segments. The kernel's is `gso_max_size`.",
    ),
    policy(
        "tso_min_segs",
        Kind::Count(1, 45),
        "Least segments of a super-segment that a pacing rate makes smaller; 2.",
    ),
    policy(
        "whole_super_segments",
        Kind::Switch,
        "A super-segment leaves only whole, and a partial one counts as small for Nagle: Linux of 2005. Its size is the window's over `tso_win_divisor` (8).",
    ),
    policy(
        "pacing",
        Kind::Choice(&["off", "timer"]),
        "Whether a timer spreads what is sent over the round trip.",
    ),
    policy(
        "pacing_rate",
        Kind::BitRate,
        "Payload rate of pacing; by default the window over the round trip, times 1.2 (2 in slow start), as Linux.",
    ),
    policy(
        "initial_window",
        Kind::Count(1, 64),
        "Congestion window of a new connection in segments; 10 (RFC 6928).",
    ),
    policy(
        "window_growth",
        Kind::Choice(&["bytes", "per-ack"]),
        "What opens the congestion window: the bytes that an ACK covers (RFC 3465), or one segment for each ACK that found the window full (Linux of 2005; with `congestion_control = \"reno\"`).",
    ),
    policy(
        "tail_loss_probe",
        Kind::Switch,
        "Whether a sender probes when the last segments of a flight stay unacknowledged (RFC 8985; both stacks do, Linux before 3.10 did not). Linux: the sysctl `tcp_early_retrans`.",
    ),
    policy(
        "busy_poll_us",
        Kind::Count(0, 1_000_000),
        "Microseconds that our TCP looks on at its device, when nothing comes, before it sleeps; 0. Spares a lone request the waking up and costs CPU, which is counted.",
    ),
    policy(
        "receive_batch",
        Kind::Count(1, 64),
        "Packets that our TCP takes in at a time and answers before the application's turn; by default 64, and after it. 1 is a host of 2005, interrupted for each packet: no ACK waits for the answer, and what an ACK releases leaves before the next one is looked at.",
    ),
    bed(
        "steering",
        Kind::Switch,
        "on",
        "Steer each end's receive work to that end's CPUs (RPS). Off, a veth's receiver runs on the sender's CPU. `netns` only.",
    ),
];

/// The knob of this name without end prefix, or `None`. Sysctls give a row made for them.
pub fn find(name: &str) -> Option<Knob> {
    if let Some(sysctl) = name.strip_prefix("sysctl.") {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let sound =
            sysctl.starts_with("net.") && !sysctl.contains("..") && sysctl.chars().all(plain);
        return sound.then_some(Knob {
            per_end: true,
            ..bed("sysctl", Kind::Text, "", "A sysctl of the end.")
        });
    }
    KNOBS.iter().find(|knob| knob.name == name).copied()
}

impl Knob {
    /// What this knob takes, in words for an error.
    pub fn expected(&self) -> String {
        let kind = match self.kind {
            Kind::Count(lo, hi) => format!("a whole number from {lo} to {hi}"),
            Kind::Bytes(lo, hi) => format!(
                "a size such as \"64KiB\" (B, KiB, MiB, GiB), {} to {}",
                units::show_bytes(lo),
                units::show_bytes(hi)
            ),
            Kind::BitRate => "a rate such as \"941Mbit\" (bit, kbit, Mbit, Gbit)".to_string(),
            Kind::EventRate => "a rate such as \"10000/s\"".to_string(),
            Kind::Time(lo, hi) => {
                format!("a time such as \"40ms\" (ns, us, ms, s), {lo}ms to {hi}ms")
            }
            Kind::Switch => "\"on\" or \"off\"".to_string(),
            Kind::Choice(words) => {
                format!(
                    "one of {}",
                    words
                        .iter()
                        .map(|w| format!("\"{w}\""))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            Kind::Cpus => "a list of CPU numbers such as [0, 2]".to_string(),
            Kind::Text => "a text or a number".to_string(),
        };
        match self.or_word {
            Some(word) => format!("{kind}, or \"{word}\""),
            None => kind,
        }
    }

    /// Reads a value. `None` where it is not one of this knob's; [`Knob::expected`] says what is.
    pub(crate) fn read(&self, raw: &Raw) -> Option<Value> {
        if let (Raw::Text(text), Some(word)) = (raw, self.or_word)
            && text == word
        {
            return Some(Value::Word(word.to_string()));
        }
        match (self.kind, raw) {
            (Kind::Count(lo, hi), Raw::Integer(n)) => {
                let n = u64::try_from(*n).ok()?;
                (lo..=hi).contains(&n).then_some(Value::Count(n))
            }
            (Kind::Bytes(lo, hi), Raw::Integer(_) | Raw::Text(_)) => {
                let bytes = match raw {
                    Raw::Integer(n) => u64::try_from(*n).ok()?,
                    Raw::Text(text) => units::bytes(text).ok()?,
                    _ => return None,
                };
                (lo..=hi).contains(&bytes).then_some(Value::Bytes(bytes))
            }
            (Kind::BitRate, Raw::Text(text)) => units::bits_per_s(text).ok().map(Value::BitsPerS),
            (Kind::EventRate, Raw::Text(text)) => units::per_s(text).ok().map(Value::PerS),
            (Kind::Time(lo, hi), Raw::Text(text)) => units::duration(text)
                .ok()
                .filter(|time| {
                    (Duration::from_millis(lo)..=Duration::from_millis(hi)).contains(time)
                })
                .map(Value::Time),
            (Kind::Switch, Raw::Boolean(on)) => Some(Value::Switch(*on)),
            (Kind::Switch, Raw::Text(text)) => match text.as_str() {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            (Kind::Choice(words), Raw::Text(text)) => words
                .contains(&text.as_str())
                .then(|| Value::Word(text.clone())),
            (Kind::Cpus, Raw::List(items)) if !items.is_empty() => items
                .iter()
                .map(|item| match item {
                    Raw::Integer(n) => usize::try_from(*n).ok(),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(Value::Cpus),
            (Kind::Text, Raw::Integer(n)) => Some(Value::Word(n.to_string())),
            (Kind::Text, Raw::Text(text)) if !text.is_empty() && !text.contains(['\n', '\0']) => {
                Some(Value::Word(text.clone()))
            }
            _ => None,
        }
    }

    /// The value when no study sets it.
    pub fn default_value(&self) -> Value {
        let raw = self
            .default
            .parse()
            .map_or_else(|_| Raw::Text(self.default.to_string()), Raw::Integer);
        self.read(&raw)
            .expect("each row's default is a value of its own kind (a test reads them all)")
    }
}

/// The knobs as a Markdown table: `docs/study-file.md` carries it, and a test compares.
pub fn knob_table(group: Group) -> String {
    let mut table =
        String::from("| key | takes | default | each end | meaning |\n|---|---|---|---|---|\n");
    for knob in KNOBS.iter().filter(|knob| knob.group == group) {
        let name = if knob.key == knob.name {
            format!("`{}`", knob.name)
        } else {
            format!("`{}` (in `[vary]`: `{}`)", knob.key, knob.name)
        };
        let end = if knob.per_end { "yes" } else { "" };
        table += &format!(
            "| {name} | {} | `{}` | {end} | {} |\n",
            knob.expected(),
            knob.default,
            knob.doc
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_knob_and_names_are_unique() {
        for (index, knob) in KNOBS.iter().enumerate() {
            let value = knob.default_value();
            assert!(!value.to_string().is_empty(), "{}", knob.name);
            assert!(
                KNOBS[..index].iter().all(|other| other.name != knob.name),
                "{} twice",
                knob.name
            );
        }
    }

    #[test]
    fn a_wrong_unit_is_not_a_value() {
        let write_size = find("write_size").unwrap();
        assert_eq!(
            write_size.read(&Raw::Text("64KiB".into())),
            Some(Value::Bytes(65536))
        );
        assert_eq!(write_size.read(&Raw::Text("64ms".into())), None);
        assert_eq!(write_size.read(&Raw::Integer(0)), None);
        assert_eq!(find("flows").unwrap().read(&Raw::Integer(30_001)), None);
        assert_eq!(
            find("tso").unwrap().read(&Raw::Text("leave".into())),
            Some(Value::Word("leave".into()))
        );
    }

    #[test]
    fn sysctls_of_the_network_are_knobs_and_paths_are_not() {
        assert!(find("sysctl.net.ipv4.tcp_autocorking").is_some());
        for wrong in ["sysctl.kernel.hostname", "sysctl.net/../x", "sysctl.net..x"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }
}
