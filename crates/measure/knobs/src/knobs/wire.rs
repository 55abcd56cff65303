//! Knobs of the wire with delay and loss.

use super::GIB;
use crate::choices::Carrier;
use crate::row::{CheckedEnds, Knob, Need, Required, ValueKind, requires, wire};

/// Rows of the wire.
pub(super) const ROWS: &[Knob] = &[
    wire(
        "delay",
        ValueKind::Time(0, 10_000),
        "0ms",
        "Time that what the end sends is on the wire.",
    ),
    wire(
        "jitter",
        ValueKind::Time(0, 10_000),
        "0ms",
        "At most so much more than `delay`, evenly spread; nothing overtakes.",
    ),
    wire(
        "loss",
        ValueKind::Share,
        "0%",
        "Share of the end's packets that the wire loses, each independently.",
    ),
    Knob {
        or_word: Some("none"),
        ..wire(
            "reorder",
            ValueKind::Share,
            "none",
            "Share of the packets that are kept back by `reorder_delay`, while later ones pass.",
        )
    },
    wire(
        "reorder_delay",
        ValueKind::Time(0, 10_000),
        "1ms",
        "How long these are kept back.",
    )
    .needs(&[Need::any_of(&[requires("reorder", Required::Set)])]),
    wire(
        "duplicate",
        ValueKind::Share,
        "0%",
        "Share of the packets that arrive twice.",
    ),
    Knob {
        or_word: Some("unlimited"),
        ..wire(
            "wire_rate",
            ValueKind::BitRate,
            "unlimited",
            "Rate of the wire, Ethernet frames; the qdisc's is `bottleneck`.",
        )
    },
    wire(
        "wire_queue",
        ValueKind::Bytes(1500, GIB),
        "1MiB",
        "Bytes that may wait for `wire_rate`; more is dropped.",
    )
    .needs(&[Need::any_of(&[requires("wire_rate", Required::Set)])]),
    Knob {
        or_word: Some("auto"),
        per_end: false,
        ..wire(
            "carrier",
            ValueKind::Choice(Carrier::WORDS),
            "auto",
            "Implementation of the wire if a knob of the wire is set (`delay` to `wire_queue`): `own`, a wire of tcpcost's (a process between two namespaces, in front of the device of our TCP), or `netem` of the kernel, between two namespaces. `auto`: netem where the kernel has it and what is set means the same there (delay; loss and duplicates of `per-mss` segments), else our own. The record says which.",
        )
    }
    .needs(&[Need::any_of(&[])
        .at(CheckedEnds::User)
        .when(&["netem"])
        .because("netem is between two ends of the kernel's TCP")]),
];
