//! ACKs and packets, and how connections begin, for studies that vary how an end acknowledges or splits data.

use tcpcost_study::{Derived, Figure, HostName, WorkloadKind};

use super::model::{Cell, Column, Level, Section, Table};
use super::numbers::{count, of_cell};
use crate::derive::cell::CellSummary;
use crate::derive::number::ABSENT;
use crate::derive::opening::{CellOpening, Frequent, Openings};
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

/// ACKs and packets of each cell. Empty if the study varies none of [`KNOBS`].
pub(super) fn acks(summary: &Summary) -> Section<'_> {
    let figures = figures(summary);
    let columns = figures.iter().copied().map(Column::quantity);
    let mut table = Table::new([Column::name("cell")].into_iter().chain(columns));
    for cell in &summary.cells {
        let numbers = figures.iter().map(|&of| of_cell(cell, of));
        table.numbers(Level::Gist, cell.name.as_str(), numbers);
    }
    Section::new(Level::Details, "ACKs and packets").table(table)
}

/// First transactions of captured connections, next to a published capture.
pub(super) fn openings(summary: &Summary) -> Option<Section<'_>> {
    let openings = summary.openings.as_ref()?;
    let heading = format!(
        "A connection's first transactions, captured at the {} (wire segments; | between transactions)",
        openings.captured_at
    );
    let acks = opening(
        openings,
        "of each pure ACK",
        openings.pure_acks.as_deref(),
        |one| &one.pure_acks,
    );
    let bursts = opening(
        openings,
        "of each data burst",
        openings.data_bursts.as_deref(),
        |one| &one.data_bursts,
    );
    let section = Section::new(Level::Gist, heading);
    Some(section.table(acks).table(bursts))
}

fn opening(
    openings: &Openings,
    title: &str,
    published: Option<&str>,
    of: fn(&CellOpening) -> &Frequent,
) -> Table {
    let mut table = Table::new([
        Column::name(title),
        Column::name("most often"),
        Column::number("in"),
        Column::number("as published"),
        Column::number("captures"),
    ]);
    if let Some((source, published)) = openings.source.as_deref().zip(published) {
        let absent = || Cell::from(ABSENT);
        table.row(vec![
            source.into(),
            published.into(),
            absent(),
            absent(),
            absent(),
        ]);
    }
    for cell in &openings.cells {
        let frequent = of(cell);
        table.row(vec![
            cell.cell.as_str().into(),
            frequent.sequence.as_str().into(),
            frequent.captures.to_string().into(),
            count(frequent.as_published).into(),
            match cell.too_short {
                0 => cell.captures.to_string(),
                short => format!("{} ({short} too short)", cell.captures),
            }
            .into(),
        ]);
    }
    table
}

/// Columns. Empty if the study varies none of [`KNOBS`].
fn figures(summary: &Summary) -> Vec<Derived> {
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
            Derived::of(client, Figure::PacketsPerTransaction),
            Derived::of(client, Figure::OctetsPerDatagram),
            total(Figure::SwitchesPerTransaction),
            total(Figure::DelayedAcksPerS),
            total(Figure::RetransmitRatio),
            Derived::of(HostName::SERVER, Figure::CapturedDataBurst),
        ];
    }
    vec![
        Derived::of(sender, Figure::DataSegmentsPerPureAck),
        Derived::of(sender, Figure::AcksPerKib),
        Derived::of(receiver, Figure::DelayedAcksPerS),
        total(Figure::BacklogCoalescedPerMib),
        Derived::of(receiver, Figure::AcksFilteredRatio),
        total(Figure::RetransmitRatio),
        Derived::of(sender, Figure::CapturedSegmentsPerAck),
    ]
}
