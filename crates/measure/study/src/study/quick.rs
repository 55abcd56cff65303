//! Quick variant of a study.

use std::time::Duration;

use crate::conclusion::Conclusion;
use crate::study::Study;

impl Study {
    /// Makes the study a quick one, which ends after a minute.
    ///
    /// Cells and times are those of its `[quick]`. Otherwise intervals are at most 300 ms after a
    /// warm-up of at most 100 ms, with six repetitions if those take less than 50 s, else three.
    /// Marked trials are not repeated and targets of cells are ignored, but targets of contrasts
    /// are kept.
    pub fn make_quick(&mut self) {
        let quick = std::mem::take(&mut self.quick);
        let kept = |cell: &crate::Cell| {
            quick.keep.iter().all(|(knob, values)| {
                let value = cell.knobs.value(knob);
                value.is_some_and(|value| values.contains(&value))
            })
        };
        let all = self.cells.clone();
        self.cells.retain(kept);
        let is_cut = |one: &&Conclusion| !one.is_tested_alike(&all, &self.cells);
        let cut = self.conclusions.iter().filter(is_cut);
        let cut = cut.filter_map(|one| one.statement.clone());
        let functions = self.published_functions.iter();
        let functions = functions.filter(|functions| !functions.are_of(&self.cells));
        let ratios = functions.flat_map(|functions| &functions.ratios);
        let of_ratios = ratios.filter_map(|ratio| Some(ratio.tests.as_ref()?.0.clone()));
        self.untested = cut.chain(of_ratios).collect();
        let measure = &mut self.measure;
        let at_most = |time: Duration, most: u64| time.min(Duration::from_millis(most));
        measure.warm_up = quick.warm_up.unwrap_or(at_most(measure.warm_up, 100));
        measure.duration = quick.duration.unwrap_or(at_most(measure.duration, 300));
        let flows = |cell: &crate::Cell| cell.knobs.flows();
        let once: Duration = self
            .cells
            .iter()
            .map(|cell| {
                measure.warm_up + measure.duration + TRIAL + Duration::from_micros(60 * flows(cell))
            })
            .sum();
        let six = if once * 6 <= SIX_WITHIN { 6 } else { 3 };
        let repetitions = quick.repetitions.unwrap_or(measure.repetitions.min(six));
        measure.repetitions = repetitions;
        measure.repetitions_max = match measure.contrast_target {
            Some(_) => measure.repetitions_max.max(repetitions),
            None => repetitions,
        };
        measure.time_max = Some(measure.time_max.unwrap_or(TIME_MAX).min(TIME_MAX));
        measure.target = None;
        measure.retries = 0;
        self.quick = quick;
    }
}

/// Time of a trial in addition to its warm-up and interval.
const TRIAL: Duration = Duration::from_millis(120);
const SIX_WITHIN: Duration = Duration::from_secs(50);
/// Limit of the run's time.
const TIME_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Study {
        Study::parse("s", text, "s.toml").unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_quick_study_looks_for_decided_contrasts_for_a_minute() {
        let mut study =
            parse("[vary]\nflows = [1, 2]\n[measure]\ncontrast_target = \"5 %\"\nrepetitions = 8");
        assert_eq!(study.measure.time_max, None);
        study.make_quick();
        let measure = &study.measure;
        assert_eq!(
            (measure.contrast_target, measure.time_max),
            (Some(0.05), Some(Duration::from_secs(60)))
        );
        assert_eq!((measure.repetitions, measure.repetitions_max), (6, 1000));
    }

    #[test]
    fn a_quick_study_keeps_the_cells_that_it_names() {
        let mut study = parse(
            "[vary]\nflows = [1, 2, 4]\nnodelay = [\"on\", \"off\"]\n\
             [quick]\nduration = \"200ms\"\nrepetitions = 7\n[quick.keep]\nflows = [1, 4]\nnodelay = [\"off\"]",
        );
        study.make_quick();
        let names: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["flows=1 nodelay=off", "flows=4 nodelay=off"]);
        assert_eq!(study.measure.duration, Duration::from_millis(200));
        assert_eq!(study.measure.warm_up, Duration::from_millis(100));
        assert_eq!(study.measure.repetitions_max, 7);
    }

    #[test]
    fn a_statement_that_needs_other_cells_is_not_tested() {
        let of = |knob: &str, statement: &str| {
            format!(
                "[[statement]]\nid = \"{statement}\"\nsource = \"s\"\ntext = \"t\"\n\
                 [[conclusion]]\ntext = \"t\"\n{knob}\nexpects = \"less\"\nstatement = \"{statement}\"\n"
            )
        };
        let kept = of("knob = \"flows\"\nfrom = 1\nto = [4]", "kept");
        let cut = of("knob = \"flows\"\nfrom = 1\nto = [2]", "cut");
        let other = of(
            "knob = \"flows\"\nfrom = 1\nto = [4]\nwhere = { nodelay = \"on\" }",
            "other",
        );
        let mut study = parse(&format!(
            "{kept}{cut}{other}[vary]\nflows = [1, 2, 4]\nnodelay = [\"on\", \"off\"]\n\
             [quick.keep]\nflows = [1, 4]\nnodelay = [\"off\"]\n"
        ));
        assert!(study.untested.is_empty());
        study.make_quick();
        let expected = ["cut", "other"].map(String::from);
        assert_eq!(study.untested, expected.into());
    }

    #[test]
    fn a_large_study_is_repeated_less_often() {
        let flows: Vec<String> = (1..40).map(|flows| flows.to_string()).collect();
        let text = format!("[vary]\nflows = [{}]", flows.join(", "));
        let mut large = parse(&text);
        large.make_quick();
        assert_eq!(large.measure.repetitions, 3);
        let mut small = parse("[vary]\nflows = [1, 2]");
        small.make_quick();
        assert_eq!(small.measure.repetitions, 6);
    }

    #[test]
    fn a_quick_knob_that_is_none_is_told() {
        for (text, expected) in [
            (
                "[quick.keep]\nflowz = [1]\n",
                "s.toml:2: quick.keep.flowz: no such knob",
            ),
            (
                "[quick.keep]\nflows = 1\n",
                "s.toml:2: quick.keep.flows: expected a list of values, each a whole number from 1 to 30000",
            ),
            (
                "[quick]\nrepetitions = 0\n",
                "s.toml:2: quick.repetitions: expected a whole number from 1",
            ),
        ] {
            assert_eq!(
                Study::parse("s", text, "s.toml").unwrap_err().to_string(),
                expected
            );
        }
    }
}
