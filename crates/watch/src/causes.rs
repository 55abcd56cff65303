//! Causes that a line has no room for: what the kernel's TCP had to do besides. The screen and JSON have all of them; lines tell
//! those alone that a quiet host has none of, where there are some.

use crate::column::{Column, column};
use crate::sample::Sample;
use tcpcost_counts::Figure;

/// What every host has, in the order of the screen.
pub const ORDINARY: &[Column] = &[
    column("seg/gro", 1.0, 1, &[Figure::WireSegmentsPerDataSkbReceived]),
    column("fast%", 100.0, 1, &[Figure::HeaderPredictedRatio]),
    column("wnd ack%", 100.0, 1, &[Figure::WindowAdvancingRatio]),
    column("dlyack/s", 1.0, 0, &[Figure::DelayedAcksPerS]),
    column("cork/s", 1.0, 0, &[Figure::AutocorkedPerS]),
    column("fault/s", 1.0, 0, &[Figure::MinorFaultsPerS]),
    column("brmiss/s", 1.0, 0, &[Figure::BranchMissesPerS]),
];

/// What a quiet host has none of. The heads are what lines say, too.
pub const RARE: &[Column] = &[
    column("dup acks", 1.0, 0, &[Figure::DuplicateAcksPerS]),
    column("reorder", 1.0, 0, &[Figure::OutOfOrderPerS]),
    column("dsacks", 1.0, 0, &[Figure::DsacksPerS]),
    column("compress", 1.0, 0, &[Figure::CompressedAcksPerS]),
    column("collapse", 1.0, 0, &[Figure::CollapsedPerS]),
    column("prune", 1.0, 0, &[Figure::PrunesPerS]),
    column("zero wnd", 1.0, 0, &[Figure::ZeroWindowsPerS]),
    column("timeout", 1.0, 0, &[Figure::TimeoutsPerS]),
    column("lst drop", 1.0, 0, &[Figure::ListenDropsPerS]),
    column("majfault", 1.0, 0, &[Figure::MajorFaultsPerS]),
];

/// `also, per s: reorder 12, dsacks 3`; `None` where none of [`RARE`] grew.
pub fn told(sample: &Sample) -> Option<String> {
    let grew = |column: &Column| {
        let value = sample.value(column).filter(|value| *value > 0.0)?;
        // One in a long interval is not none.
        let shown = match value < 1.0 {
            true => "<1".to_string(),
            false => column.text(Some(value)),
        };
        Some(format!("{} {shown}", column.head))
    };
    let grown: Vec<String> = RARE.iter().filter_map(grew).collect();
    (!grown.is_empty()).then(|| format!("also, per s: {}", grown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::counters_only;
    use tcpcost_counts::{MeterName, Quantity};

    #[test]
    fn what_did_not_happen_is_not_told() {
        assert_eq!(told(&counters_only(0)), None);
        assert_eq!(told(&Sample::default()), None);
    }

    #[test]
    fn what_happened_is_told_per_second_and_one_in_a_long_interval_too() {
        let mut sample = counters_only(0);
        sample.duration_ns = 10_000_000_000;
        let netstat = sample.counts.get_mut(&MeterName::Netstat).unwrap();
        netstat.insert(Quantity::OutOfOrderQueued, 125);
        netstat.insert(Quantity::Timeouts, 1);
        netstat.insert(Quantity::DsacksReceived, 0);
        // Ordinary: no line of its own.
        netstat.insert(Quantity::DelayedAcksSent, 40);
        let expected = "also, per s: reorder 12, timeout <1";
        assert_eq!(told(&sample).as_deref(), Some(expected));
    }
}
