//! Sentences about zero-copy methods whose data the kernel copied all the same.

use std::collections::BTreeMap;

use tcpcost_study::Figure;

use crate::derive::cell::CellSummary;
use crate::derive::number::show;
use crate::summary::Summary;

/// Sentence for each send or receive method of which the kernel copied more than 1 %.
pub(crate) fn sentences(summary: &Summary) -> Vec<String> {
    let sent = shares(summary, "send_with", Figure::ZerocopyCopiedRatio);
    let sent = sent.into_iter().filter_map(|(way, (least, most))| {
        let share = percent(least, most);
        (most > TOLD_FROM).then(|| {
            format!("{way} was not zero-copy on this bed: the kernel copied {share} of its sends.")
        })
    });
    let mapped = shares(summary, "receive_with", Figure::ZerocopyMappedRatio);
    let mapped = mapped.into_iter().filter_map(|(way, (least, most))| {
        let share = percent(1.0 - most, 1.0 - least);
        (least < 1.0 - TOLD_FROM).then(|| {
            format!("{way} was not zero-copy on this bed: {share} of what was received was copied, not mapped.")
        })
    });
    sent.chain(mapped).collect()
}

/// Share of copied data above which a sentence is written. A connection's last few bytes are always
/// copied.
const TOLD_FROM: f64 = 0.01;

fn percent(least: f64, most: f64) -> String {
    let [least, most] = [least, most].map(|share| show((100.0 * share).round()));
    match least == most {
        true => format!("{most} %"),
        false => format!("{least} to {most} %"),
    }
}

/// Smallest and largest share over the cells, by the knob's value.
fn shares(summary: &Summary, knob: &str, kind: Figure) -> BTreeMap<String, (f64, f64)> {
    let mut all: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let of_cell = |cell: &CellSummary| {
        let way = cell.knobs.value(knob).map(|value| value.to_string());
        let estimates = cell.estimates.iter();
        let share = estimates.filter(|(of, _)| of.kind == kind);
        let median = share.map(|(_, estimate)| estimate.median).next();
        Some((way?, median?))
    };
    for (way, share) in summary.cells.iter().filter_map(of_cell) {
        let range = all.entry(format!("{knob} {way}")).or_insert((share, share));
        *range = (range.0.min(share), range.1.max(share));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_as_one_where_they_are_the_same() {
        assert_eq!(percent(1.0, 1.0), "100 %");
        assert_eq!(percent(0.4, 0.996), "40.0 to 100 %");
    }
}
