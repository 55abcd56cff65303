//! Which columns tell of ACKs and packets, in studies that vary how an end acknowledges or cuts.

use tcpcost_study::{Derived, DerivedKind, End, WorkloadKind};

use crate::summary::Summary;

/// Knobs, of either end, whose effect these columns tell.
const KNOBS: &[&str] = &[
    "ack_policy",
    "ack_segments",
    "ack_thin",
    "ack_delay",
    "quickack",
    "rcvlowat",
    "tail_split",
    "whole_super_segments",
    "tso_win_divisor",
    "gso_max_segs",
];

/// The columns, with their titles; none where the study varies nothing of the kind.
pub(crate) fn columns(summary: &Summary) -> Vec<(Derived, &'static str)> {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or(name).to_string();
    let varies = |name: &String| KNOBS.contains(&bare(name).as_str());
    if !summary.study.vary.iter().any(varies) {
        return Vec::new();
    }
    let workload = summary.cells.iter().find_map(|cell| cell.workload);
    let sender = match workload {
        Some(WorkloadKind::Maerts) => End::Server,
        _ => End::Client,
    };
    let both = |kind| Derived::both(kind);
    if workload.is_some_and(WorkloadKind::has_transactions) {
        return vec![
            (
                Derived::of(End::Client, DerivedKind::PacketsPerTransaction),
                "client's packets/trans.",
            ),
            (
                Derived::of(End::Client, DerivedKind::OctetsPerDatagram),
                "octets/packet",
            ),
            (both(DerivedKind::SwitchesPerTransaction), "switches/trans."),
            (both(DerivedKind::DelayedAcksPerS), "delayed ACKs/s"),
            (both(DerivedKind::RetransmitRatio), "% sent again"),
            (
                Derived::of(End::Server, DerivedKind::CapturedDataBurst),
                "segments/burst, captured",
            ),
        ];
    }
    vec![
        (
            Derived::of(sender, DerivedKind::DataSegmentsPerPureAck),
            "segments/ACK",
        ),
        (Derived::of(sender, DerivedKind::AcksPerKib), "ACKs/KiB"),
        (
            Derived::of(sender.peer(), DerivedKind::DelayedAcksPerS),
            "delayed ACKs/s",
        ),
        (both(DerivedKind::BacklogCoalescedPerMib), "coalesced/MiB"),
        (
            Derived::of(sender.peer(), DerivedKind::ThinnedRatio),
            "% thinned",
        ),
        (both(DerivedKind::RetransmitRatio), "% sent again"),
        (
            Derived::of(sender, DerivedKind::CapturedSegmentsPerAck),
            "segments/ACK, captured",
        ),
    ]
}
