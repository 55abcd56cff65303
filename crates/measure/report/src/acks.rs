//! Columns about ACKs and packets, for studies that vary how an end acknowledges or splits data.

use tcpcost_study::{Derived, Figure, HostName, WorkloadKind};

use crate::cell::CellSummary;
use crate::summary::Summary;

/// Knobs of either end, without the host's prefix, whose effect these columns show.
const KNOBS: &[&str] = &[
    "ack_policy",
    "ack_segments",
    "ack_filter",
    "ack_delay",
    "quickack",
    "rcvlowat",
    "tail_split",
    "whole_super_segments",
    "tso_win_divisor",
    "gso_max_segs",
];

/// Columns with their titles; empty if the study varies none of [`KNOBS`].
pub(crate) fn columns(summary: &Summary) -> Vec<(Derived, &'static str)> {
    let bare = |name: &str| name.rsplit('.').next().unwrap_or(name).to_string();
    let varies = |name: &String| KNOBS.contains(&bare(name).as_str());
    if !summary.study.vary.iter().any(varies) {
        return Vec::new();
    }
    let workload = summary.cells.iter().find_map(|cell| cell.workload);
    // In a star topology the clients form one host set.
    let hosts = summary.hosts_of_cells();
    let client = hosts
        .iter()
        .find_map(|host| host.set())
        .unwrap_or(HostName::CLIENT);
    let (sender, receiver) = match workload {
        Some(WorkloadKind::Maerts) => (HostName::SERVER, client),
        _ => (client, HostName::SERVER),
    };
    let total = |kind| Derived::total(kind);
    let mut cells = summary.cells.iter();
    if cells.next().is_some_and(CellSummary::has_transactions) {
        return vec![
            (
                Derived::of(client, Figure::PacketsPerTransaction),
                "client's packets/trans.",
            ),
            (
                Derived::of(client, Figure::OctetsPerDatagram),
                "octets/packet",
            ),
            (total(Figure::SwitchesPerTransaction), "switches/trans."),
            (total(Figure::DelayedAcksPerS), "delayed ACKs/s"),
            (total(Figure::RetransmitRatio), "% retransmitted"),
            (
                Derived::of(HostName::SERVER, Figure::CapturedDataBurst),
                "segments/burst, captured",
            ),
        ];
    }
    vec![
        (
            Derived::of(sender, Figure::DataSegmentsPerPureAck),
            "segments/ACK",
        ),
        (Derived::of(sender, Figure::AcksPerKib), "ACKs/KiB"),
        (
            Derived::of(receiver, Figure::DelayedAcksPerS),
            "delayed ACKs/s",
        ),
        (total(Figure::BacklogCoalescedPerMib), "coalesced/MiB"),
        (
            Derived::of(receiver, Figure::AcksFilteredRatio),
            "% filtered",
        ),
        (total(Figure::RetransmitRatio), "% retransmitted"),
        (
            Derived::of(sender, Figure::CapturedSegmentsPerAck),
            "segments/ACK, captured",
        ),
    ]
}
