//! `[quick]`: a study made small enough to be done in less than a minute.

use std::time::Duration;

use crate::conclusion::values;
use crate::knob::find_full;
use crate::parse::{Section, StudyError, raw};
use crate::study::Study;
use crate::units;
use crate::value::{Raw, Value};

/// What a quick run changes; `None` and nothing are the defaults of [`Study::make_quick`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quick {
    /// Repetitions.
    pub repetitions: Option<u32>,
    /// Warm-up.
    pub warm_up: Option<Duration>,
    /// The interval.
    pub duration: Option<Duration>,
    /// Of a knob, the values whose cells are kept.
    pub keep: Vec<(String, Vec<Value>)>,
}

impl Quick {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<Quick, StudyError> {
        let mut quick = Quick {
            repetitions: section.read(
                "repetitions",
                "a whole number from 1",
                |value| match raw(value) {
                    Raw::Integer(n) => u32::try_from(n).ok().filter(|&n| n >= 1),
                    _ => None,
                },
            )?,
            warm_up: section.text("warm_up", units::duration)?,
            duration: section.text("duration", |text| match units::duration(text) {
                Ok(time) if !time.is_zero() => Ok(time),
                Ok(_) => Err("more than 0".to_string()),
                Err(error) => Err(error.to_string()),
            })?,
            keep: Vec::new(),
        };
        if let Some(mut keep) = section.section("keep")? {
            for (key, span, value) in keep.rest() {
                let Some(knob) = find_full(&key) else {
                    return Err(keep.error(span, &key, "no such knob"));
                };
                let Some(kept) = values(&knob, &raw(value.get_ref())) else {
                    let expected = format!("expected a list of values, each {}", knob.expected());
                    return Err(keep.error(value.span(), &key, expected));
                };
                quick.keep.push((key, kept));
            }
        }
        section.end()?;
        Ok(quick)
    }
}

impl Study {
    /// Makes the study a quick one: the cells and times that its `[quick]` names; else intervals of at most
    /// 300 ms after at most 100 ms, six times where that takes less than 50 s and three times where
    /// not. Nothing is repeated and no target reached for.
    pub fn make_quick(&mut self) {
        let quick = std::mem::take(&mut self.quick);
        let kept = |cell: &crate::Cell| {
            quick.keep.iter().all(|(knob, values)| {
                let value = cell.knobs.value(knob);
                value.is_some_and(|value| values.contains(&value))
            })
        };
        self.cells.retain(kept);
        let measure = &mut self.measure;
        let at_most = |time: Duration, most: u64| time.min(Duration::from_millis(most));
        measure.warm_up = quick.warm_up.unwrap_or(at_most(measure.warm_up, 100));
        measure.duration = quick.duration.unwrap_or(at_most(measure.duration, 300));
        let flows = |cell: &crate::Cell| cell.knobs.count("flows").unwrap_or(1);
        let once: Duration = self
            .cells
            .iter()
            .map(|cell| {
                measure.warm_up + measure.duration + TRIAL + Duration::from_micros(60 * flows(cell))
            })
            .sum();
        let six = if once * 6 <= SIX_WITHIN { 6 } else { 3 };
        let repetitions = quick.repetitions.unwrap_or(measure.repetitions.min(six));
        (measure.repetitions, measure.repetitions_max) = (repetitions, repetitions);
        measure.target = None;
        measure.retries = 0;
        self.quick = quick;
    }
}

/// What a trial takes beside warm-up and interval.
const TRIAL: Duration = Duration::from_millis(120);
const SIX_WITHIN: Duration = Duration::from_secs(50);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BUILT_IN;

    fn parse(text: &str) -> Study {
        Study::parse("s", text, "s.toml").unwrap_or_else(|error| panic!("{error}"))
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
    fn every_shipped_study_is_done_in_a_minute() {
        for (name, text) in BUILT_IN {
            let mut study = Study::parse(name, text, name).unwrap();
            study.make_quick();
            let of_cell = |cell| {
                let (warm_up, duration) = study.times(cell);
                // A capture is waited for and read.
                let trial = TRIAL * if cell.captured.is_some() { 2 } else { 1 };
                (warm_up + duration + trial) * study.repetitions(cell)
            };
            let all: Duration = study.cells.iter().map(of_cell).sum();
            assert!(!all.is_zero(), "{name}");
            assert!(all < Duration::from_secs(56), "{name}: {all:?}");
        }
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
