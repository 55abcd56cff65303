//! Changes that the command line makes to a study: they are kept with the run.

use serde::{Deserialize, Serialize};
use tcpcost_console::exit::usage;
use tcpcost_study::{HostName, Reach, Share, Sides, Study, repetitions, units};

use super::exact_instructions::ExactInstructions;

/// Changes that the command line makes to a study.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides {
    /// Name of the study.
    pub study: String,
    /// `--set`, in order: knob, value.
    #[serde(default)]
    pub set: Vec<(String, String)>,
    /// `--repetitions`.
    #[serde(default)]
    pub repetitions: Option<u32>,
    /// `--share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// `--slurm`: the hosts of a study that names none are nodes of a job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slurm: bool,
    /// Nodes of the job as hosts, if the study asks for all nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<HostName>,
    /// Names of the cells to run; empty for all. Set by `kernels bisect --cell`, for each guest, and by the second clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<String>,
    /// `--duration`.
    #[serde(default)]
    pub duration: Option<String>,
    /// `--seed`.
    #[serde(default)]
    pub seed: Option<u64>,
    /// `--meters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meters: Option<String>,
    /// `--meter-cost`.
    #[serde(default)]
    pub meter_cost: bool,
    /// `--capture`.
    #[serde(default)]
    pub capture: Option<u32>,
    /// `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// The two sides of `tcpcost compare`.
    #[serde(default)]
    pub compare: Option<Sides>,
    /// `--min-effect`, as a fraction of the first side's value.
    #[serde(default)]
    pub min_effect: Option<f64>,
    /// `--time`.
    #[serde(default)]
    pub time_max: Option<String>,
    /// `--guest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_instructions: Option<ExactInstructions>,
    /// `--append`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<String>,
    /// `--init`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init: Vec<String>,
    /// `--caches`, as sizes and ways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<String>,
    /// `--second-clock never`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_second_clock: bool,
}

impl Overrides {
    /// Parses a study and makes these changes.
    pub fn apply(&self, text: &str, file: &str) -> anyhow::Result<Study> {
        let mut study = Study::parse(&self.study, text, file).map_err(usage)?;
        if self.slurm && !study.cells.iter().any(|cell| cell.knobs.names_hosts()) {
            study.reach_hosts(&Reach::Slurm(None)).map_err(usage)?;
        }
        if !self.nodes.is_empty() {
            study.expand_nodes(&self.nodes).map_err(usage)?;
        }
        study
            .set(&self.set)
            .map_err(|error| usage(format!("--set {error}")))?;
        // First, so that more specific options take precedence.
        if self.quick {
            study.make_quick();
        }
        if let Some(list) = &self.meters {
            let changed = study.change_meters(list);
            changed.map_err(|error| usage(format!("--meters {list}: {error}")))?;
        }
        if let Some(sides) = &self.compare {
            study.compare(sides).map_err(usage)?;
        }
        if let Some(min_effect) = self.min_effect {
            study.measure.min_effect = min_effect;
        }
        if let Some(text) = &self.time_max {
            let time = units::duration(text)
                .map_err(|error| usage(format!("--time {text}: expected {error}")))?;
            study.measure.time_max = Some(time);
        }
        if let Some(repetitions) = self.repetitions {
            if repetitions == 0 {
                return Err(usage("--repetitions: expected a whole number from 1"));
            }
            let converging = study.measure.target.is_some() || study.stops_early();
            study.measure.repetitions = repetitions;
            study.measure.repetitions_max = if converging {
                study.measure.repetitions_max.max(repetitions)
            } else {
                repetitions
            };
        }
        if self.repetitions.is_none() && study.cells.iter().any(|cell| cell.knobs.go_round()) {
            let hosts = study.only_hosts().map_err(usage)?;
            let least =
                u32::try_from(repetitions(hosts.len())).expect("hosts are some thousand at most");
            let measure = &mut study.measure;
            measure.repetitions = measure.repetitions.max(least);
            measure.repetitions_max = measure.repetitions_max.max(measure.repetitions);
        }
        if let Some(share) = self.share {
            let measure = &mut study.measure;
            if share.count(measure.repetitions) == 0 {
                return Err(usage(format!(
                    "--share {share}: it has none of the {} repetitions: raise --repetitions",
                    measure.repetitions
                )));
            }
            measure.share = share;
            // The records of one share do not show if all contrasts are decided.
            measure.repetitions_max = measure.repetitions;
        }
        if let Some(text) = &self.duration {
            let wrong =
                |e: &dyn std::fmt::Display| usage(format!("--duration {text}: expected {e}"));
            study.measure.duration = units::duration(text).map_err(|e| wrong(&e))?;
            if study.measure.duration.is_zero() {
                return Err(wrong(&"more than 0"));
            }
        }
        if let Some(seed) = self.seed {
            study.measure.seed = seed;
        }
        if self.meter_cost {
            study.ask_meter_cost();
        }
        if let Some(trials) = self.capture {
            study.measure.capture.trials = trials;
            study.ask_captures();
        }
        if self.exact_instructions.is_some() {
            ExactInstructions::apply(&mut study);
        }
        let has = |name: &&String| study.cells.iter().any(|cell| cell.name == **name);
        if let Some(name) = self.cells.iter().find(|name| !has(name)) {
            return Err(usage(format!(
                "--cell \"{name}\": no such cell in this study"
            )));
        }
        if !self.cells.is_empty() {
            study.cells.retain(|cell| self.cells.contains(&cell.name));
        }
        Ok(study)
    }
}
