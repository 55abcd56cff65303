//! Study turned into a comparison: pairs of cells that run in turn until it is known which costs
//! more.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::study::Study;
use tcpcost_knobs::KnobError;

/// Two cells that are compared, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellPair {
    /// Name of the first cell.
    pub from: String,
    /// Name of the second cell.
    pub to: String,
}

/// Sides of a comparison within a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sides {
    /// Two of its cells, by name.
    Cells(String, String),
    /// Each of its cells, or the named one, with two sets of knobs.
    Set {
        /// Name of the only cell. `None` for all cells.
        cell: Option<String>,
        /// Knobs of the first side: name, value.
        a: Vec<(String, String)>,
        /// Knobs of the second side: name, value.
        b: Vec<(String, String)>,
        /// Program whose agents are the hosts of the second side. `None` for this program.
        program: Option<PathBuf>,
    },
}

/// Error for sides that the study does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SidesError {
    /// Name of no cell, and the names of the cells, each in quotes.
    #[error("no cell \"{0}\": there are {1}")]
    NoCell(String, String),
    /// Letter of a side, and the error of a knob that is set for it.
    #[error("--{0} {1}")]
    Knob(char, KnobError),
}

/// Least number of pairs: the smallest with an interval that holds at every look.
const PAIRS_LEAST: u32 = 7;
/// Limit of pairs; `time_max` ends the run long before.
const PAIRS_MOST: u32 = 10_000;

impl Study {
    /// Reduces the study to the comparison. Its thresholds, conclusions, published figures and
    /// captures are removed, because they are about other cells.
    ///
    /// # Errors
    /// No such cell, or a knob that a cell does not support.
    pub fn compare(&mut self, sides: &Sides) -> Result<(), SidesError> {
        self.cells
            .retain(|cell| cell.meter_trial.is_none() && cell.captured.is_none());
        let pairs = match sides {
            Sides::Cells(a, b) => vec![(self.named(a)?.clone(), self.named(b)?.clone())],
            Sides::Set {
                cell,
                a,
                b,
                program,
            } => {
                if let Some(name) = cell {
                    self.cells = vec![self.named(name)?.clone()];
                }
                let with = |side: char, pairs: &[(String, String)]| {
                    let mut study = self.clone();
                    let set = study.set(pairs).map(|()| study.cells);
                    set.map_err(|error| SidesError::Knob(side, error))
                };
                let (first, second) = (with('a', a)?, with('b', b)?);
                let named = |mut cell: Cell, what: &str| {
                    if !what.is_empty() {
                        cell.name = format!("{}, {what}", cell.name);
                    }
                    cell
                };
                let of_b = program
                    .as_ref()
                    .map(|program| program.display().to_string());
                let of_b: Vec<String> = words(b).into_iter().chain(of_b).collect();
                first
                    .into_iter()
                    .zip(second)
                    .map(|(one, mut other)| {
                        other.program.clone_from(program);
                        (
                            named(one, &words(a).unwrap_or_default()),
                            named(other, &of_b.join(" by ")),
                        )
                    })
                    .collect()
            }
        };
        self.comparisons = Vec::new();
        self.cells = Vec::new();
        for (one, mut other) in pairs {
            if one.name == other.name {
                other.name += ", again";
            }
            self.comparisons.push(CellPair {
                from: one.name.clone(),
                to: other.name.clone(),
            });
            self.cells.extend([one, other]);
        }
        self.thresholds.clear();
        self.conclusions.clear();
        self.statements.clear();
        self.fits.clear();
        (
            self.published,
            self.published_functions,
            self.published_table,
            self.published_opening,
        ) = (None, None, None, None);
        let measure = &mut self.measure;
        measure.repetitions = PAIRS_LEAST;
        measure.repetitions_max = PAIRS_MOST;
        measure.target = None;
        measure.meter_cost = false;
        measure.capture.trials = 0;
        // If the trials of a pair met the machine in different states, the pair is dropped and
        // another one is run.
        measure.retries = 0;
        Ok(())
    }

    /// True if the records decide when the run ends, so that intervals of contrasts must hold at
    /// every look.
    pub fn stops_early(&self) -> bool {
        self.measure.contrast_target.is_some() || !self.comparisons.is_empty()
    }

    /// Finds a cell by its name.
    fn named(&self, name: &str) -> Result<&Cell, SidesError> {
        let mut cells = self.cells.iter();
        cells.find(|cell| cell.name == name).ok_or_else(|| {
            let names: Vec<String> = self
                .cells
                .iter()
                .map(|cell| format!("\"{}\"", cell.name))
                .collect();
            SidesError::NoCell(name.to_string(), names.join(", "))
        })
    }
}

/// Formats knobs as `mtu=9000 flows=2`. `None` if there are none.
fn words(pairs: &[(String, String)]) -> Option<String> {
    let words: Vec<String> = pairs
        .iter()
        .map(|(knob, value)| format!("{knob}={value}"))
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> Study {
        let text =
            "[vary]\nflows = [1, 2]\n[measure]\nmeter_cost = true\n[measure.capture]\ntrials = 1\n";
        Study::parse("s", text, "s.toml").unwrap()
    }

    fn names(study: &Study) -> Vec<&str> {
        study.cells.iter().map(|cell| cell.name.as_str()).collect()
    }

    #[test]
    fn two_cells_are_a_pair_and_nothing_else_is_run() {
        let mut study = study();
        let cells = Sides::Cells("flows=1".into(), "flows=2".into());
        study.compare(&cells).unwrap();
        assert_eq!(names(&study), ["flows=1", "flows=2"]);
        assert_eq!(study.comparisons.len(), 1);
        assert!(study.stops_early());
        let error = study
            .compare(&Sides::Cells("flows=1".into(), "flows=3".into()))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "no cell \"flows=3\": there are \"flows=1\", \"flows=2\""
        );
    }

    #[test]
    fn each_cell_is_set_in_two_ways() {
        let mut compared = study();
        let set = |knob: &str, value: &str| vec![(knob.to_string(), value.to_string())];
        let mut sides = Sides::Set {
            cell: None,
            a: vec![],
            b: set("nodelay", "on"),
            program: None,
        };
        compared.compare(&sides).unwrap();
        assert_eq!(
            names(&compared),
            [
                "flows=1",
                "flows=1, nodelay=on",
                "flows=2",
                "flows=2, nodelay=on"
            ]
        );
        let nodelay = |cell: usize| compared.cells[cell].knobs.get("nodelay").cloned();
        assert!(nodelay(0).is_none() && nodelay(1).is_some());
        sides = Sides::Set {
            cell: Some("flows=1".into()),
            a: vec![],
            b: vec![],
            program: Some("/new/tcpcost".into()),
        };
        let mut compared = study();
        compared.compare(&sides).unwrap();
        assert_eq!(names(&compared), ["flows=1", "flows=1, /new/tcpcost"]);
        assert!(compared.cells[0].program.is_none() && compared.cells[1].program.is_some());
        sides = Sides::Set {
            cell: None,
            a: vec![],
            b: set("flows", "3"),
            program: None,
        };
        let error = study().compare(&sides).unwrap_err();
        assert!(error.to_string().contains("varies"));
    }

    #[test]
    fn a_cell_against_itself_has_another_name() {
        let mut study = study();
        study
            .compare(&Sides::Cells("flows=1".into(), "flows=1".into()))
            .unwrap();
        assert_eq!(names(&study), ["flows=1", "flows=1, again"]);
    }
}
