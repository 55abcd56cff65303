//! CPU time of each host by the meter `exact`, or the reason why there is none.

use tcpcost_study::{Figure, Knobs, Scope};

use crate::derive::cell::CellSummary;

/// Figures of CPU time by owner.
pub(crate) const OWNED: [Figure; 2] = [Figure::OwnedUsPerKib, Figure::OwnedUsPerTransaction];

/// True if a single host has an estimate of one of these figures.
pub(crate) fn has(cell: &CellSummary, figures: &[Figure]) -> bool {
    let mut found = cell.estimates.keys();
    found.any(|of| of.scope != Scope::All && figures.contains(&of.kind))
}

/// Line with the reason why a cell has no exact CPU time by host. `None` if it has that time, or if the machine
/// is the reason: trials then have a warning.
pub(crate) fn missing(cell: &CellSummary) -> Option<String> {
    if has(cell, &[Figure::ExactIdleRatio]) || has(cell, &OWNED) {
        return None;
    }
    let reason = reason(&cell.knobs)?;
    Some(format!(
        "{}: no CPU time by host, since {reason}.",
        cell.name
    ))
}

/// Knobs with which CPU time cannot be divided by host, as a reason.
fn reason(knobs: &Knobs) -> Option<&'static str> {
    let is = |knob: &str, value: &str| knobs.word(knob).as_deref() == Some(value);
    if is("placement", "one-thread") {
        Some("one thread has both ends")
    } else if is("topology", "chain") && is("relay_mode", "forward") {
        Some("the hosts share CPUs, and what one of them forwards has no socket there")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::Study;

    #[test]
    fn one_thread_and_a_forwarding_host_have_no_time_by_host() {
        let begins = |text: &str| {
            let study = Study::parse("study", text, "study.toml").unwrap();
            reason(&study.cells[0].knobs).map(|reason| &reason[..9])
        };
        assert_eq!(
            begins("[workload]\nplacement = \"one-thread\""),
            Some("one threa")
        );
        let chain = "[bed]\ntopology = \"chain\"\nrelay_mode";
        assert_eq!(begins(&format!("{chain} = \"forward\"")), Some("the hosts"));
        assert_eq!(begins(&format!("{chain} = \"copy\"")), None);
        assert_eq!(begins(""), None);
    }
}
