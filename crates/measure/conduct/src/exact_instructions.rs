//! Changes of a study whose runs count instructions instead of time.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tcpcost_study::{Cell, MeterName, Study, Topology};

use super::placement::ONE_THREAD;

/// Place where a run counts instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExactInstructions {
    /// In guests of this kernel, or of the running kernel without a path.
    InGuests(Option<PathBuf>),
    /// In this process, which runs in a guest.
    Here,
}

impl ExactInstructions {
    /// Kernel of the guests: `Some(None)` is the running kernel. `None` if this is a guest.
    pub fn kernel(&self) -> Option<Option<&Path>> {
        match self {
            ExactInstructions::InGuests(kernel) => Some(kernel.as_deref()),
            ExactInstructions::Here => None,
        }
    }

    /// Changes a study for counting instructions. The work of a trial and the number of repetitions become fixed. Meters are removed if they
    /// need hardware that a guest lacks (a PMU, caches, an idle CPU for spinners) or sample by time.
    pub fn apply(study: &mut Study) {
        let measure = &mut study.measure;
        measure.work.get_or_insert_default();
        measure.target = None;
        measure.contrast_target = None;
        measure.repetitions_max = measure.repetitions;
        measure.retries = 0;
        measure.capture.trials = 0;
        measure.meter_cost = false;
        measure.series = None;
        let asked = std::mem::take(&mut measure.meters);
        let without = [
            MeterName::Soak,
            MeterName::Perf,
            MeterName::Profile,
            MeterName::Tsc,
            MeterName::Others,
            MeterName::Proc,
        ];
        study
            .cells
            .retain(|cell| cell.captured.is_none() && cell.meter_trial.is_none());
        // A guest has one CPU. With both ends in one thread, no end must wake the other.
        for cell in &mut study.cells {
            if cell.knobs.get("placement").is_none() {
                let placement = match can_take_turns(cell) {
                    true => ONE_THREAD,
                    false => "same-cpu",
                };
                let set = cell.knobs.set("placement", placement);
                set.expect("the registry has this knob and this word");
            }
        }
        // `exact` is last, next to the traffic, so that its interval includes as little as possible of reading the other meters.
        let needed = [
            MeterName::Netstat,
            MeterName::Rusage,
            MeterName::TcpInfo,
            MeterName::Exact,
        ];
        let mut meters: Vec<MeterName> = asked
            .into_iter()
            .filter(|meter| !without.contains(meter) && !needed.contains(meter))
            .collect();
        meters.extend(needed);
        study.measure.meters = meters;
    }
}

/// True if one thread can have both ends of a cell, and no knob of the cell excludes it.
fn can_take_turns(cell: &Cell) -> bool {
    let mut cell = cell.clone();
    let set = cell.knobs.set("placement", ONE_THREAD);
    set.expect("the registry has this knob and this word");
    let bed = super::access::bed_of(&cell, None);
    let topology = bed.ok().and_then(|bed| Topology::of(bed, &cell.knobs).ok());
    let has_one_thread = |topology: Topology| topology.takes_turns().is_ok();
    topology.is_some_and(has_one_thread) && cell.knobs.unmet().is_empty()
}
