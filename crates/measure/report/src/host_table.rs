//! Tables of hosts for text and page: columns and cells.

use tcpcost_study::Derived;

use crate::cell::CellSummary;
use crate::fleet::Fleet;
use crate::host_rows::HostRow;
use crate::labels;
use crate::number::{show, show_estimate, unit_in_tables};
use crate::table::ABSENT;

/// Heading of the table of hosts.
pub(crate) const TITLE: &str = "Hosts, CPU µs per KiB or transaction";

pub(crate) const COLUMNS: [&str; 7] = [
    "host",
    "CPU µs",
    "segments/s sent",
    "ACKs/s sent",
    "clock, µs ahead",
    "±",
    "late, µs",
];

/// Cells of a host's row.
pub(crate) fn row(of: &HostRow) -> [String; 7] {
    let number = |value: Option<f64>| value.map_or(ABSENT.to_string(), show);
    [
        of.host.to_string(),
        of.cost
            .map_or(ABSENT.to_string(), |(_, cost)| show_estimate(&cost, 1.0)),
        number(of.segments_per_s),
        number(of.acks_per_s),
        number(of.clock_us.map(|(offset, _)| offset)),
        number(of.clock_us.map(|(_, error)| error)),
        number(of.late_us),
    ]
}

/// Sentence with the upper bound of the time between the hosts' starts.
pub(crate) fn skew(cell: &CellSummary) -> Option<String> {
    Some(format!(
        "{}: between the first host's start and the last one's at most {} µs, errors of clocks included.",
        cell.name,
        show(cell.skew_us?)
    ))
}

/// Columns of the table of hosts that met in rounds, after the host's name.
pub(crate) fn fleet_columns(fleet: &Fleet) -> Vec<&'static str> {
    let figures = fleet.medians.keys();
    figures.map(|&figure| labels::figure(figure)).collect()
}

/// Rows of the table of hosts that met in rounds.
pub(crate) fn fleet_rows(fleet: &Fleet) -> impl Iterator<Item = Vec<String>> {
    fleet.hosts.iter().map(|(host, of)| {
        let shown = fleet.medians.keys().map(|figure| {
            let (_, scale) = unit_in_tables(Derived::total(*figure));
            let estimate = of.get(figure);
            estimate.map_or(ABSENT.to_string(), |one| show_estimate(one, scale))
        });
        std::iter::once(host.to_string()).chain(shown).collect()
    })
}
