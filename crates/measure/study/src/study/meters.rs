//! Meters by the names that a study or a command line asks for, and changes of a study's meters.

use tcpcost_counts::MeterName;
use tcpcost_knobs::nearest;

use crate::study::Study;

/// Error: a study cannot have these meters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetersError {
    /// No meter has this name.
    #[error("no such meter \"{0}\"{hint}", hint = suggestion(.0))]
    Unknown(String),
    /// The meter is not had on request.
    #[error("a study cannot ask for the meter \"{0}\"{hint}", hint = suggestion(.0.name()))]
    NotOnRequest(MeterName),
    /// Some names have a sign, others none.
    #[error("expected names, or a + or a - before each")]
    Mixed,
    /// All meters are taken away.
    #[error("expected at least one meter: none is left")]
    NoneLeft,
    /// The study counts by connection.
    #[error(
        "by_connection of this study needs the meter \"{}\"",
        MeterName::Segments
    )]
    ByConnection,
}

fn suggestion(name: &str) -> String {
    let known = || MeterName::choices().map(MeterName::name);
    nearest(name, known()).map_or_else(
        || format!("; known: {}", known().collect::<Vec<_>>().join(", ")),
        |near| format!("; nearest is \"{near}\""),
    )
}

/// Finds the meter that a study asks for by this name.
pub(crate) fn meter(name: &str) -> Result<MeterName, MetersError> {
    let all = MeterName::ALL.iter().copied();
    let other = || all.clone().find(|meter| meter.name() == name);
    MeterName::asked_as(name).ok_or_else(|| match other() {
        Some(meter) => MetersError::NotOnRequest(meter),
        None => MetersError::Unknown(name.to_string()),
    })
}

/// Sign before the name of a meter in a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    None,
    Plus,
    Minus,
}

impl Sign {
    /// Splits a word of a change into its sign and the name.
    fn split(word: &str) -> (Sign, &str) {
        match (word.strip_prefix('+'), word.strip_prefix('-')) {
            (Some(name), _) => (Sign::Plus, name),
            (_, Some(name)) => (Sign::Minus, name),
            _ => (Sign::None, word),
        }
    }
}

impl Study {
    /// Changes the meters of each trial: `exact,netstat` replaces them, `+segments,-soak` adds one
    /// and takes one away. A meter that is there already, or not there, is no error.
    ///
    /// # Errors
    /// A name that is no meter of a study, a list that both replaces and changes, no meter left, or
    /// a setting of the study that needs the meter that is gone.
    pub fn change_meters(&mut self, list: &str) -> Result<(), MetersError> {
        let words: Vec<(Sign, &str)> = list
            .split(',')
            .map(|word| Sign::split(word.trim()))
            .collect();
        let replaces = words.iter().any(|(sign, _)| *sign == Sign::None);
        if replaces && words.iter().any(|(sign, _)| *sign != Sign::None) {
            return Err(MetersError::Mixed);
        }
        let mut meters = match replaces {
            true => Vec::new(),
            false => self.measure.meters.clone(),
        };
        for (sign, name) in words {
            let named = meter(name)?;
            if sign == Sign::Minus {
                meters.retain(|meter| *meter != named);
            } else if !meters.contains(&named) {
                meters.push(named);
            }
        }
        if meters.is_empty() {
            return Err(MetersError::NoneLeft);
        }
        if self.measure.by_connection && !meters.contains(&MeterName::Segments) {
            return Err(MetersError::ByConnection);
        }
        self.measure.meters = meters;
        if self.measure.meter_cost {
            self.cells.retain(|cell| cell.meter_trial.is_none());
            self.ask_meter_cost();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_counts::MeterName::{Exact, Netstat, Proc, Segments, Soak};

    fn parse(text: &str) -> Study {
        Study::parse("s", text, "s.toml").unwrap()
    }

    #[test]
    fn names_replace_the_meters_and_signs_change_them() {
        let text = "[measure]\nmeters = [\"proc\", \"soak\", \"exact\"]\n";
        let changed = |list: &str| {
            let mut study = parse(text);
            study.change_meters(list).unwrap();
            study.measure.meters
        };
        assert_eq!(changed("exact, netstat,exact"), [Exact, Netstat]);
        assert_eq!(changed("+segments,-soak"), [Proc, Exact, Segments]);
        assert_eq!(changed("-soak,+soak"), [Proc, Exact, Soak]);
        // Neither is an error.
        assert_eq!(changed("+proc,-netstat"), [Proc, Soak, Exact]);
    }

    #[test]
    fn a_wrong_list_is_told_and_changes_nothing() {
        let text = "[measure]\nmeters = [\"segments\"]\nby_connection = true\n";
        for (list, expected) in [
            (
                "segmants",
                "no such meter \"segmants\"; nearest is \"segments\"",
            ),
            ("+zebra", "no such meter \"zebra\"; known: proc, rusage, "),
            ("", "no such meter \"\"; known: proc, "),
            (
                "+emulator",
                "a study cannot ask for the meter \"emulator\"; known: proc, ",
            ),
            ("exact,+soak", "expected names, or a + or a - before each"),
            ("-segments", "expected at least one meter: none is left"),
            (
                "exact,proc",
                "by_connection of this study needs the meter \"segments\"",
            ),
        ] {
            let mut study = parse(text);
            let error = study.change_meters(list).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{list}: {error}");
            assert_eq!(study, parse(text));
        }
    }

    #[test]
    fn trials_for_a_meters_cost_are_those_of_the_changed_meters() {
        let text =
            "[measure]\nmeters = [\"proc\", \"exact\"]\nmeter_cost = true\n[measure.capture]\n";
        let mut study = parse(text);
        study.change_meters("+segments").unwrap();
        let names: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "s",
                "s, captured",
                "s, no standing meter",
                "s, exact alone",
                "s, segments alone"
            ]
        );
    }
}
