//! Columns of causes for which a line has no room: other events in the kernel's TCP. The screen and JSON show
//! all of them. Lines show only [`RARE`] ones, and only if they happened.

use crate::watch::column::{Column, column};
use crate::watch::sample::Sample;
use tcpcost_counts::Figure;

/// Causes that every host has, in the order of the screen.
pub const ORDINARY: &[Column] = &[
    column(1, &[Figure::WireSegmentsPerDataSkbReceived]),
    column(1, &[Figure::HeaderPredictedRatio]),
    column(1, &[Figure::WindowAdvancingRatio]),
    column(0, &[Figure::DelayedAcksPerS]),
    column(0, &[Figure::AutocorkedPerS]),
    column(0, &[Figure::MinorFaultsPerS]),
    column(0, &[Figure::BranchMissesPerS]),
];

/// Causes that a quiet host does not have. Lines show these headings, too.
pub const RARE: &[Column] = &[
    column(0, &[Figure::DuplicateAcksPerS]),
    column(0, &[Figure::OutOfOrderPerS]),
    column(0, &[Figure::DsacksPerS]),
    column(0, &[Figure::CompressedAcksPerS]),
    column(0, &[Figure::CollapsedPerS]),
    column(0, &[Figure::PrunesPerS]),
    column(0, &[Figure::ZeroWindowsPerS]),
    column(0, &[Figure::TimeoutsPerS]),
    column(0, &[Figure::ListenDropsPerS]),
    column(0, &[Figure::MajorFaultsPerS]),
];

/// Text such as `also, per s: reorder 12, dsacks 3`. `None` if no cause of [`RARE`] grew.
pub fn told(sample: &Sample) -> Option<String> {
    let grew = |column: &Column| {
        let value = sample.value(column).filter(|value| *value > 0.0)?;
        // An event in a long interval must not round to 0.
        let shown = match value < 1.0 {
            true => "<1".to_string(),
            false => column.text(Some(value)),
        };
        Some(format!("{} {shown}", column.heading()))
    };
    let grown: Vec<String> = RARE.iter().filter_map(grew).collect();
    (!grown.is_empty()).then(|| format!("also, per s: {}", grown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::counters_only;
    use tcpcost_counts::{MeterName, Quantity};

    #[test]
    fn what_did_not_happen_is_not_told() {
        assert_eq!(told(&counters_only(0)), None);
        assert_eq!(told(&Sample::default()), None);
    }

    #[test]
    fn what_happened_is_told_per_second_and_one_in_a_long_interval_too() {
        let mut sample = counters_only(0);
        sample.growth.duration_ns = 10_000_000_000;
        let netstat = sample.growth.counts.get_mut(&MeterName::Netstat).unwrap();
        netstat.insert(Quantity::OutOfOrderQueued, 125);
        netstat.insert(Quantity::Timeouts, 1);
        netstat.insert(Quantity::DsacksReceived, 0);
        // An ordinary cause does not appear in the line.
        netstat.insert(Quantity::DelayedAcksSent, 40);
        let expected = "also, per s: reorder 12, timeout <1";
        assert_eq!(told(&sample).as_deref(), Some(expected));
    }
}
