//! Table `[measure]` of a study file.

use std::time::Duration;

use tcpcost_counts::MeterName;
use tcpcost_knobs::units;

use crate::capture::CaptureSettings;
use crate::measure::{FixedWork, Measure};
use crate::parse::{Section, StudyError, expecting, quantity, quoted, switch, whole, whole_from};
use crate::raw::{Raw, raw};

use super::meters::meter;

/// Limit of repetitions in a study that runs until its contrasts are decided; `time_max` ends it
/// long before.
const REPETITIONS_MAX: u32 = 1000;

/// Limits of the interval between samples. A sample takes a tenth of a microsecond, but the
/// traffic's loop returns for it.
const SERIES_MIN: Duration = Duration::from_micros(100);
const SERIES_MAX: Duration = Duration::from_secs(1);

/// Parses the table. Keys that are missing have the defaults of [`Measure`].
pub(super) fn measure(mut section: Section<'_>) -> Result<Measure, StudyError> {
    let mut measure = Measure::default();
    if let Some(meters) = meters(&mut section)? {
        measure.meters = meters;
    }
    repetitions(&mut section, &mut measure)?;
    let asked = quoted(|text| match text {
        "auto" => Ok(None),
        named => quantity(named).map(Some),
    });
    section.set(&mut measure.quantity, "quantity", asked)?;
    interval(&mut section, &mut measure)?;
    section.set(&mut measure.seed, "seed", whole_from(0))?;
    section.set(&mut measure.others_max, "others_max", quoted(units::ratio))?;
    section.set(&mut measure.retries, "retries", whole_from(0))?;
    extra_meters(&mut section, &mut measure)?;
    if let Some(capture) = section.one("capture", CaptureSettings::parse)? {
        measure.capture = capture;
    }
    section.end()?;
    Ok(measure)
}

/// Takes the meters, each once, in the order of the file. `None` if there is no such key.
fn meters(section: &mut Section<'_>) -> Result<Option<Vec<MeterName>>, StudyError> {
    let Some(value) = section.take("meters") else {
        return Ok(None);
    };
    let error = |expected: String| section.error(value.span(), "meters", expected);
    let Raw::List(items) = raw(value.get_ref()) else {
        return Err(error("expected a list of meters".into()));
    };
    if items.is_empty() {
        return Err(error(
            "expected at least one meter; leave the key out for the default ones".into(),
        ));
    }
    let mut meters = Vec::new();
    for item in items {
        let Raw::Text(name) = item else {
            return Err(error("expected names of meters in quotes".into()));
        };
        let meter = meter(&name).map_err(|wrong| error(wrong.to_string()))?;
        if !meters.contains(&meter) {
            meters.push(meter);
        }
    }
    Ok(Some(meters))
}

/// Takes the keys that say how often a cell is repeated, and when a run ends.
fn repetitions(section: &mut Section<'_>, measure: &mut Measure) -> Result<(), StudyError> {
    section.set(&mut measure.repetitions, "repetitions", whole_from(1))?;
    let target = |text: &str| units::ratio(text).map(|target| Some(target).filter(|t| *t > 0.0));
    measure.target = section.read("target", quoted(target))?.flatten();
    let contrast_target = section.read("contrast_target", quoted(target))?;
    measure.contrast_target = contrast_target.flatten();
    measure.time_max = section.read("time_max", quoted(units::duration))?;
    section.set(&mut measure.min_effect, "min_effect", quoted(units::ratio))?;
    measure.repetitions_max = match (measure.contrast_target, measure.target) {
        (Some(_), _) => measure.repetitions.max(REPETITIONS_MAX),
        (None, Some(_)) => measure.repetitions.max(30),
        (None, None) => measure.repetitions,
    };
    let least = measure.repetitions;
    let expected = format!("a whole number from {least} (repetitions)");
    let max = expecting(expected, |value| whole(value).filter(|n| *n >= least));
    section.set(&mut measure.repetitions_max, "repetitions_max", max)
}

/// Takes the keys of one trial's interval: its time, or its work.
fn interval(section: &mut Section<'_>, measure: &mut Measure) -> Result<(), StudyError> {
    section.set(&mut measure.warm_up, "warm_up", quoted(units::duration))?;
    let time = quoted(|text| match units::duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("a time such as \"2s\" (ns, us, ms, s, min), more than 0"),
    });
    section.set(&mut measure.duration, "duration", time)?;
    let size = quoted(|text| match units::bytes(text) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("a size such as \"32MiB\", more than 0"),
    });
    let bytes = section.read("bytes", size)?;
    let transactions = section.read("transactions", whole_from::<u32>(1))?;
    if bytes.is_some() || transactions.is_some() {
        let default = FixedWork::default();
        measure.work = Some(FixedWork {
            bytes: bytes.unwrap_or(default.bytes),
            transactions: transactions.map_or(default.transactions, u64::from),
        });
    }
    Ok(())
}

/// Takes the keys of what is measured beside the meters' totals.
fn extra_meters(section: &mut Section<'_>, measure: &mut Measure) -> Result<(), StudyError> {
    let hz = expecting("a whole number from 1 to 10000", |value| {
        whole(value).filter(|n| (1..=Measure::PROFILE_HZ_MAX).contains(n))
    });
    section.set(&mut measure.profile_hz, "profile_hz", hz)?;
    section.set(&mut measure.meter_cost, "meter_cost", switch)?;
    let time = quoted(|text| match units::duration(text) {
        Ok(time) if (SERIES_MIN..=SERIES_MAX).contains(&time) => Ok(time),
        _ => Err("a time such as \"2ms\", 100us to 1s"),
    });
    measure.series = section.read("series", time)?;
    if let Some(value) = section.take("by_connection") {
        let error = |expected: String| section.error(value.span(), "by_connection", expected);
        measure.by_connection =
            switch(value.get_ref()).map_err(|expected| error(format!("expected {expected}")))?;
        if measure.by_connection && !measure.meters.contains(&MeterName::Segments) {
            let needs = format!("needs the meter \"{}\"", MeterName::Segments);
            return Err(error(needs));
        }
    }
    Ok(())
}
