//! Trials that did not do the requested work: they count as failed, and no verdict uses their
//! numbers.

use tcpcost_counts::{CountOwner, MeterName, Quantity, Reading};

use crate::record::{Outcome, Record, Warning, WarningCode};

/// Missing time below which a host's work counts as done. In a trial of 20 ms a busy CPU may take
/// half without harm to the counts.
const MISSING_LEAST_NS: u64 = 50_000_000;

impl Record {
    /// Turns a measured trial into a failed one if no byte moved, a host ran for less than half of
    /// the interval, or less than half of a rate was reached. The extent is in the warning, so that
    /// the reason is the same in all such trials.
    pub fn fail_if_incomplete(&mut self) {
        if !self.is_measured() || self.captured {
            return;
        }
        let is_new = |warning: &Warning| !self.warnings.contains(warning);
        let found = self.incomplete().filter(is_new);
        self.warnings.extend(found);
        let mut failing = self.warnings.iter().filter(|warning| warning.fails());
        let reason = match failing.next().map(|warning| warning.code) {
            Some(WarningCode::RateMissed) => {
                "less than half of the rate was reached: these CPUs or the path cannot carry it; lower it"
            }
            Some(_) => {
                "the work was not done: no byte moved, or a host had no CPU for half of the interval"
            }
            None => return,
        };
        self.outcome = Outcome::Failed {
            reason: reason.to_string(),
        };
    }

    /// True if the trial ran and failed only because it did not do its work.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.outcome, Outcome::Failed { .. }) && self.warnings.iter().any(Warning::fails)
    }

    fn incomplete(&self) -> Option<Warning> {
        let is_workload = |reading: &&Reading| {
            reading.meter == MeterName::Workload && reading.whose == CountOwner::Workload
        };
        let readings = self.hosts.iter().flat_map(|(host, found)| {
            let readings = found.readings.iter().filter(is_workload);
            readings.map(move |reading| (*host, reading))
        });
        let sum = |of: &[Quantity]| -> Option<u64> {
            let counts = readings
                .clone()
                .flat_map(|(_, reading)| of.iter().filter_map(|of| reading.counts.get(of)));
            counts.copied().reduce(|all, more| all.saturating_add(more))
        };
        let moved = sum(&[Quantity::PayloadBytesReceived, Quantity::Transactions]);
        if moved == Some(0) {
            let text =
                "no byte moved between the snapshots: the hosts had no CPU, or the path lost all";
            return Some(Warning::new(WarningCode::Incomplete, text).extent(0.0));
        }
        if self.work.is_some() {
            return None;
        }
        let (host, shortest) = readings
            .map(|(host, reading)| (host, reading.duration_ns))
            .min_by_key(|(_, duration_ns)| *duration_ns)?;
        let missing_ns = self.interval_ns.saturating_sub(shortest);
        (missing_ns > (self.interval_ns / 2).max(MISSING_LEAST_NS)).then(|| {
            let share = 100.0 * shortest as f64 / self.interval_ns as f64;
            let text = format!(
                "the {host} was measured for {share:.0} % of the interval: it had no CPU before; stop other tasks, or lengthen the duration"
            );
            Warning::new(WarningCode::Incomplete, text)
                .extent(share)
                .of(vec![host])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HostRecord;
    use tcpcost_knobs::HostName;

    /// Trial of 100 ms. For each host: bytes received, and the time for which it counted, ms.
    fn record(hosts: [(u64, u64); 2]) -> Record {
        let text = r#"{"schema_version":2,"study":"s","cell":"c","knobs":{},"repetition":0,"attempt":0,
            "seed":1,"started":"","bed":"netns","interval_ns":100000000,"outcome":"measured","topology":{"hosts":[],
            "links":[],"traffic":[]}}"#;
        let mut record = Record::from_line(text).unwrap();
        for (host, (bytes, ms)) in HostName::PAIR.into_iter().zip(hosts) {
            let reading = Reading {
                meter: MeterName::Workload,
                whose: CountOwner::Workload,
                duration_ns: ms * 1_000_000,
                counts: [(Quantity::PayloadBytesReceived, bytes)].into(),
            };
            let found = HostRecord {
                readings: vec![reading],
                ..HostRecord::default()
            };
            record.hosts.insert(host, found.into());
        }
        record
    }

    fn read_again(record: &Record) -> Record {
        Record::from_line(&record.to_line()).unwrap()
    }

    #[test]
    fn a_trial_that_moved_nothing_or_was_cut_short_or_missed_its_rate_is_a_failed_one() {
        let sound = record([(0, 100), (1, 99)]);
        assert!(read_again(&sound).is_measured());
        for (hosts, extent) in [([(0, 100), (0, 100)], 0.0), ([(0, 7), (9, 100)], 7.0)] {
            let failed = read_again(&record(hosts));
            assert!(failed.is_incomplete() && !failed.is_measured());
            assert_eq!(failed.warnings.len(), 1);
            assert_eq!(failed.warnings[0].extent, Some(extent));
            assert_eq!(read_again(&failed), failed, "warned of once");
        }
        let mut missed = sound;
        for (percent, fails) in [(49.0, true), (51.0, false)] {
            let missed_by = Warning::new(WarningCode::RateMissed, "only 1 of 2").extent(percent);
            missed.warnings = vec![missed_by];
            assert_eq!(read_again(&missed).is_incomplete(), fails);
        }
        let mut broken = record([(0, 100), (1, 99)]);
        broken.outcome = Outcome::Failed {
            reason: "an end died".into(),
        };
        assert!(!read_again(&broken).is_incomplete());
        let mut short = record([(0, 1), (9, 20)]);
        short.interval_ns = 40_000_000;
        assert!(read_again(&short).is_measured());
    }

    #[test]
    fn what_counted_nothing_or_has_an_amount_of_work_is_not_judged() {
        let mut record = record([(0, 1), (1, 1)]);
        record.work = Some(crate::measure::FixedWork::default());
        assert!(
            read_again(&record).is_measured(),
            "its time is not asked for"
        );
        record.hosts.clear();
        assert!(read_again(&record).is_measured());
    }
}
