//! Captured trials of a study, in cells of their own.

use std::time::Duration;

use crate::cell::Cell;
use crate::study::Study;

impl Study {
    /// Adds a cell of captured trials for each cell to capture. A second call does nothing.
    pub fn ask_captures(&mut self) {
        let asked = &self.measure.capture;
        if asked.trials == 0 || self.cells.iter().any(|cell| cell.captured.is_some()) {
            return;
        }
        let of = |cell: &Cell| {
            let wanted = cell.meter_trial.is_none() && cell.knobs.has(&asked.matching);
            wanted.then(|| Cell {
                name: format!("{}, captured", cell.name),
                knobs: cell.knobs.clone(),
                meter_trial: None,
                captured: Some(cell.name.clone()),
                program: None,
            })
        };
        let added: Vec<Cell> = self.cells.iter().filter_map(of).collect();
        self.cells.extend(added);
    }

    /// Least number of repetitions of a cell.
    pub fn repetitions(&self, cell: &Cell) -> u32 {
        match cell.captured {
            Some(_) => self.measure.capture.trials,
            None => self.measure.repetitions,
        }
    }

    /// Warm-up and interval of a cell's trials.
    pub fn times(&self, cell: &Cell) -> (Duration, Duration) {
        let (warm_up, duration) = (self.measure.warm_up, self.measure.duration);
        match cell.captured {
            Some(_) => {
                let most = self.measure.capture.duration;
                (warm_up.min(most), duration.min(most))
            }
            None => (warm_up, duration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Study, String> {
        Study::parse("s", text, "s.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn captured_trials_are_cells_of_their_own_beside_those_they_are_of() {
        let text = "[vary]\nflows = [1, 2]\n[measure]\nwarm_up = \"50ms\"\n\
             [measure.capture]\ntrials = 3\nsnaplen = \"96B\"\nwhere = { flows = 2 }\n";
        let mut study = parse(text).unwrap();
        study.ask_captures();
        let names: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["flows=1", "flows=2", "flows=2, captured"]);
        let (own, captured) = (&study.cells[1], &study.cells[2]);
        assert_eq!(captured.captured.as_deref(), Some("flows=2"));
        assert_eq!(
            (study.repetitions(own), study.repetitions(captured)),
            (6, 3)
        );
        let ms = Duration::from_millis;
        assert_eq!(study.times(own), (ms(50), ms(1000)));
        assert_eq!(study.times(captured), (ms(50), ms(100)));
        assert_eq!(study.measure.capture.snap_len, 96);
        assert!(parse("").unwrap().cells[0].captured.is_none());
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expected) in [
            (
                "[measure.capture]\nsnaplen = \"8B\"\n",
                "s.toml:2: measure.capture.snaplen: expected a size from 64B to 256KiB, or 0B for whole packets",
            ),
            (
                "[published_opening]\nsource = \"x\"\npure_acks = [1, 2]\n",
                "s.toml:3: published_opening.pure_acks: expected a list of whole numbers for each transaction",
            ),
            (
                "[published_opening]\nsource = \"x\"\npure_acks = [[1, 2]]\n",
                "s.toml:2: published_opening.data_bursts: is missing",
            ),
            (
                "[published_opening]\nsource = \"x\"\npure_acks = [[1]]\ndata_bursts = [[1], [2]]\n",
                "s.toml:2: published_opening.data_bursts: expected 1 lists, as pure_acks has",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
