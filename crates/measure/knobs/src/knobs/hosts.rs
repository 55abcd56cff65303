//! Knobs of the hosts: how they are joined, their devices, CPUs and TCP.

use crate::pattern::Pattern;
use crate::relay_mode::KNOB_WORDS;
use crate::row::{Knob, Need, Required, ValueKind, bed, is, requires};

/// Need of knobs that apply only to named hosts.
const NAMED: &[Need] =
    &[Need::any_of(&[requires("reach", Required::Set)]).because("[hosts] names hosts")];

/// Rows of the hosts.
pub(super) const ROWS: &[Knob] = &[
    Knob {
        key: "kind",
        ..bed(
            "bed",
            ValueKind::Choice(&["auto", "netns", "loopback", "tap", "memory", "hosts"]),
            "auto",
            "`netns`: two network namespaces joined by a veth pair, receive work steered to each end's CPUs, so that CPU accounting is per host. `loopback`: this host's own. `tap`: our TCP at one end, the kernel's at the other, a TAP between their namespaces. `memory`: our TCP at both ends, in one process. `hosts`: devices of the hosts that `[hosts]` names, as they are. `auto`: `hosts` where hosts are named, else what `stack` asks for; for the kernel's at both ends `netns` where it can be had.",
        )
    },
    bed(
        "topology",
        ValueKind::Choice(&["pair", "star", "chain"]),
        "pair",
        "The hosts of `netns`: `pair` (`client` and `server`), `star` (`client1` to `clientN`, together `clients`, each with a link of its own to `server` and each with the workload), `chain` (`client`, `relay`, `server`; the one in the middle forwards).",
    ),
    bed("clients", ValueKind::Count(1, 200), "3", "Clients of a `star`.")
        .needs(&[Need::any_of(&[is("topology", &["star"])])]),
    bed(
        "relay_mode",
        ValueKind::Choice(&KNOB_WORDS),
        "forward",
        "What the host in the middle of a `chain` does: `forward` packets, or end the client's connections and make its own to the server, as `tcpcost relay --mode` does by the same word (docs/live.md); `user`: by our own TCP, over a TAP to each side, with the knobs of our TCP as those of `relay` (`relay.ack_policy`).",
    )
    .needs(&[Need::any_of(&[is("topology", &["chain"])])]),
    bed("ip", ValueKind::Choice(&["v4", "v6"]), "v4", "IPv4 or IPv6."),
    Knob {
        or_word: Some("bed"),
        per_end: true,
        ..bed(
            "reach",
            ValueKind::Reach,
            "bed",
            "How a host's agent is started, of a host that `[hosts]` names (docs/hosts.md): by the command itself, where it is (`local`) or in a network namespace of its own (`netns`), which `device` is moved to; by the user's ssh; behind the words of a command, such as `kubectl exec -i POD --`; joined to one that runs already, by the words of a command such as `kubectl attach -i -q POD`; on the node of this name of a Slurm allocation.",
        )
    },
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "device",
            ValueKind::Device,
            "auto",
            "The device of a host that `[hosts]` names; `auto` is the one with `address`, else the only one that is up, else that of the default route.",
        )
        .needs(NAMED)
    },
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "address",
            ValueKind::Address,
            "auto",
            "The address by which the others reach the host: one that `device` has; `auto` is its first global one of `ip`. Data connections are listened for there and nowhere else.",
        )
        .needs(NAMED)
    },
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "data_ports",
            ValueKind::Ports,
            "auto",
            "Ports at which the host listens for data connections, those that its firewall must let through: one for each thread and group of connections, and one more for each 20,000 connections of a group; `auto` leaves the choice to the kernel (`net.ipv4.ip_local_port_range`).",
        )
        .needs(NAMED)
    },
    bed(
        "pattern",
        ValueKind::Choice(Pattern::WORDS),
        "auto",
        "Pattern of connections among the hosts in `[hosts]`, in the order of their names and numbers: `pairs` (a client and a server each; of hosts with other names the first and the second, the third and the fourth), `many-to-one` (to the only server; else to the first), `one-to-many` (from the only client; else from the first), `all-to-all`, `ring`. Of the last two each host that is neither client nor server takes part twice, as `NAME`, which connects, and as `in-NAME`, which listens. `auto`: what the numbers of clients and servers leave, else `pairs`.",
    )
    .needs(NAMED),
    Knob {
        or_word: Some("auto"),
        per_end: true,
        ..bed(
            "cpus",
            ValueKind::Cpus,
            "auto",
            "CPUs of the host's threads; `auto` follows `placement`. `client_cpus` and `server_cpus` are old names of `client.cpus` and `server.cpus`.",
        )
    },
    Knob {
        per_end: true,
        ..bed(
            "stack",
            ValueKind::Choice(&["kernel", "user"]),
            "kernel",
            "TCP of an end: the kernel's, or our own in user space, one thread for each end. The host in the middle of a `chain` has ours by `relay_mode`.",
        )
    },
];
