//! What a study is where instructions are counted in place of time.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tcpcost_study::{MeterName, Study};

/// Where a run is measured in instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExactInstructions {
    /// In guests of this kernel, as the guest crate finds it; of the running one without.
    InGuests(Option<PathBuf>),
    /// Here: this is a guest.
    Here,
}

impl ExactInstructions {
    /// What counting instructions changes of a study. Work is fixed, and as many boots as are asked for are all there are. Meters stay away
    /// that tell of a machine that is not there (a PMU, caches, an idle CPU for spinners) or sample by time.
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
            // Its text is a million instructions to write and to read, at each host and snapshot.
            MeterName::Netstat,
        ];
        // Exact last: the nearer to the traffic, the less of reading the others is in it.
        let needed = [MeterName::Rusage, MeterName::TcpInfo, MeterName::Exact];
        let mut meters: Vec<MeterName> = asked
            .into_iter()
            .filter(|meter| !without.contains(meter) && !needed.contains(meter))
            .collect();
        meters.extend(needed);
        measure.meters = meters;
        study
            .cells
            .retain(|cell| cell.captured.is_none() && cell.meter_trial.is_none());
        for cell in &mut study.cells {
            // A guest has one CPU.
            if cell.knobs.get("placement").is_none() {
                let set = cell.knobs.set("placement", "same-cpu");
                set.expect("the registry has this knob and this word");
            }
        }
    }
}
