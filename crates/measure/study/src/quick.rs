//! `[quick]`: a study made small enough to run in a minute, which is its limit.

use std::time::Duration;

use crate::conclusion::values;
use crate::parse::{Section, StudyError, quoted, whole_from};
use crate::raw::raw;
use tcpcost_knobs::{Value, find_full, units};

/// Changes for a quick run. `None` and an empty list stand for the defaults of
/// [`crate::Study::make_quick`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Quick {
    /// Number of repetitions.
    pub repetitions: Option<u32>,
    /// Warm-up of each trial.
    pub warm_up: Option<Duration>,
    /// Interval of each trial.
    pub duration: Option<Duration>,
    /// Knobs with the values whose cells are kept.
    pub keep: Vec<(String, Vec<Value>)>,
}

impl Quick {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<Quick, StudyError> {
        let duration = |text: &str| match units::duration(text) {
            Ok(time) if !time.is_zero() => Ok(time),
            Ok(_) => Err("more than 0".to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut quick = Quick {
            repetitions: section.read("repetitions", whole_from(1))?,
            warm_up: section.read("warm_up", quoted(units::duration))?,
            duration: section.read("duration", quoted(duration))?,
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
