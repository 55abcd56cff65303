//! Choice of the next trial: a pure function of the study and the records so far, so that a killed run continues exactly where it was.

use std::time::Duration;

use tcpcost_report::{Summary, families};
use tcpcost_study::{CONTRAST_TIME, Cell, Outcome, Record, Shuffle, Study, units};

/// A trial to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTrial {
    /// Index of the cell.
    pub cell: usize,
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// Number of the attempt, from 0.
    pub attempt: u32,
}

/// True if few trials are marked. Repeating helps against a passing disturbance, but only costs time on a machine that is always busy.
fn has_few_marks(records: &[Record]) -> bool {
    const FEW: usize = 3;
    let marked = records.iter().filter(|record| record.is_marked()).count();
    marked <= FEW || 2 * marked <= records.len()
}

/// True if all attempts of a trial are marked, another one is allowed, and it is likely to help.
fn should_repeat_marked(study: &Study, records: &[Record], tried: &[&Record]) -> bool {
    let mut measured = tried.iter().filter(|record| record.is_measured());
    let count = measured.clone().count();
    measured.all(|record| record.is_marked())
        && (1..=study.measure.retries as usize).contains(&count)
        && tried.len() <= count + 1
        && has_few_marks(records)
}

/// True if a trial failed and another attempt is likely to succeed: it is the first failure, and no earlier trial of the cell failed twice.
fn should_retry_failed(records: &[Record], tried: &[&Record]) -> bool {
    let [failed] = tried else { return false };
    let failures = |repetition: u32| {
        let of_trial = records.iter().filter(|record| {
            record.cell == failed.cell && record.repetition == repetition && has_failed(record)
        });
        of_trial.count()
    };
    has_failed(failed) && (0..failed.repetition).all(|repetition| failures(repetition) < 2)
}

fn has_failed(record: &Record) -> bool {
    matches!(record.outcome, Outcome::Failed { .. })
}

/// Plan of a run, which names one trial after the other.
#[derive(Debug, Default)]
pub struct Plan {
    /// First repetition that may lack trials.
    from: u32,
    /// Cells that are done before a repetition, kept because the answer needs all records.
    done: Option<(u32, Vec<bool>)>,
}

/// Time of a trial apart from warm-up and interval: setting knobs, connecting, closing, and writing the record.
const OVERHEAD: Duration = Duration::from_millis(120);
/// Time for the last packets of a capture and for reading it.
const CAPTURE: Duration = Duration::from_millis(120);
/// Additional time of each connection.
const OVERHEAD_PER_FLOW: Duration = Duration::from_micros(60);

/// Shortest time limit of a trial, because a host may get no CPU for seconds on a busy machine.
const END_LEAST: Duration = Duration::from_secs(10);

impl Plan {
    /// The next trial, or `None` when all is done or the time is over. Within a repetition the order is shuffled by
    /// the seed, so that drift of the machine does not look like a knob.
    pub fn next(&mut self, study: &Study, records: &[Record]) -> Option<NextTrial> {
        let measure = &study.measure;
        // A repetition is done before the next one begins, so earlier ones lack only trials whose records were lost.
        let latest = records
            .iter()
            .map(|record| record.repetition)
            .max()
            .unwrap_or(0);
        // There may be more captured trials than other ones.
        let limit = measure.repetitions_max.max(measure.capture.trials);
        let shared = (self.from..limit).filter(|&repetition| measure.share.has(repetition));
        for repetition in shared {
            let open = self.open(study, records, repetition);
            // No cell is open after all records so far, so none is open in a later repetition.
            if repetition > latest && !open.contains(&true) {
                return None;
            }
            for cell in order(study, repetition) {
                let tries = |record: &&Record| {
                    record.cell == study.cells[cell].name && record.repetition == repetition
                };
                let tried: Vec<&Record> = records.iter().filter(tries).collect();
                let again = || {
                    repetition >= latest
                        && (should_repeat_marked(study, records, &tried)
                            || should_retry_failed(records, &tried))
                };
                if (tried.is_empty() && open[cell]) || (!tried.is_empty() && again()) {
                    // The first pair always runs, because a comparison needs one.
                    let is_first_pair = repetition == 0 && study.cells.len() <= 2;
                    if !is_first_pair && !Plan::is_in_time(study, &study.cells[cell], records) {
                        return None;
                    }
                    let last = tried.iter().map(|record| record.attempt).max();
                    return Some(NextTrial {
                        cell,
                        repetition,
                        attempt: last.map_or(0, |last| last + 1),
                    });
                }
            }
            self.from = repetition + 1;
        }
        None
    }

    /// True for each cell that a repetition must run: all cells up to `repetitions`, then those that have not converged. Cells that were
    /// skipped before are not run.
    fn open(&mut self, study: &Study, records: &[Record], repetition: u32) -> Vec<bool> {
        let before: Vec<&Record> = records
            .iter()
            .filter(|record| record.repetition < repetition)
            .collect();
        let impossible = |name: &str| {
            before.iter().any(|record| {
                record.cell == name && matches!(record.outcome, Outcome::Skipped { .. })
            })
        };
        let done = match &self.done {
            Some((of, done)) if *of == repetition => done.clone(),
            _ => Plan::done(study, &before, repetition),
        };
        self.done = Some((repetition, done.clone()));
        study
            .cells
            .iter()
            .zip(done)
            .map(|(cell, done)| {
                let goes_on = match cell.captured {
                    Some(_) => repetition < study.repetitions(cell),
                    None => repetition < study.measure.repetitions_max && !done,
                };
                goes_on && !impossible(&cell.name)
            })
            .collect()
    }

    /// True for each cell whose interval is as narrow as asked and whose contrasts are decided. Only earlier repetitions count, so that a
    /// resumed run decides the same.
    fn done(study: &Study, before: &[&Record], repetition: u32) -> Vec<bool> {
        if repetition < study.measure.repetitions {
            return vec![false; study.cells.len()];
        }
        let time_max = study.measure.time_max.unwrap_or(CONTRAST_TIME);
        let in_time = spent(study, before.iter().copied()) < time_max;
        if study.measure.target.is_none() && !(study.stops_early() && in_time) {
            return vec![true; study.cells.len()];
        }
        let before: Vec<Record> = before.iter().map(|&record| record.clone()).collect();
        let summary = Summary::new(study, &before);
        let contrasts = summary.main_contrasts.iter();
        let open: Vec<_> = contrasts
            .filter(|contrast| in_time && !contrast.is_decided(study))
            .collect();
        let done = |name: &str| {
            let mut of_study = summary.cells.iter();
            let has_width = of_study.any(|cell| {
                cell.name == name
                    && (study.measure.target.is_none() || cell.converged == Some(true))
            });
            has_width && !open.iter().any(|one| one.from == name || one.to == name)
        };
        // A trial for a meter's cost is repeated as often as its cell.
        let name = |cell: &Cell| cell.meter_trial.as_ref().map(|trial| trial.cell.clone());
        let names = study.cells.iter();
        names
            .map(|cell| done(&name(cell).unwrap_or_else(|| cell.name.clone())))
            .collect()
    }

    /// Time that the trials of the run took.
    pub fn spent(study: &Study, records: &[Record]) -> Duration {
        spent(study, records.iter())
    }

    /// True if a trial of this cell would probably end within the run's limit. The first trial always begins.
    fn is_in_time(study: &Study, cell: &Cell, records: &[Record]) -> bool {
        let Some(limit) = study.measure.time_max else {
            return true;
        };
        let spent = Plan::spent(study, records);
        records.is_empty() || spent + expected(study, cell, records) <= limit
    }

    /// Time limit of the next trial: the rest of the study's limit, but at least [`END_LEAST`] and twice the expected time. `since`: time
    /// since the run's last trial. `None` if the study has no limit.
    pub fn trial_limit(
        study: &Study,
        cell: &Cell,
        records: &[Record],
        since: Duration,
    ) -> Option<Duration> {
        let left = study
            .measure
            .time_max?
            .saturating_sub(spent(study, records.iter()) + since);
        Some(left.max(END_LEAST + 2 * expected(study, cell, records)))
    }

    /// Number of trials of the run, as far as known: those of `repetitions`, or the records if there are more.
    pub fn trials(study: &Study, records: &[Record]) -> u64 {
        let repetitions = study
            .cells
            .iter()
            .map(|cell| u64::from(study.measure.share.count(study.repetitions(cell))));
        let certain: u64 = repetitions.sum();
        certain.max(records.len() as u64)
    }
}

/// Planned time of a trial, without the wait for near CPUs.
fn trial_time(study: &Study, cell: &Cell) -> Duration {
    let flows = u32::try_from(cell.knobs.flows()).unwrap_or(u32::MAX);
    let (warm_up, duration) = study.times(cell);
    warm_up + duration + OVERHEAD + OVERHEAD_PER_FLOW * flows
}

/// Expected time of a trial: the planned time, scaled by how much longer than planned the trials so far took.
fn expected(study: &Study, cell: &Cell, records: &[Record]) -> Duration {
    let planned: Duration = records
        .iter()
        .filter_map(|record| Some(trial_time(study, cell_of(study, record)?)))
        .sum();
    let factor = match planned.as_secs_f64() {
        planned if planned > 0.0 => Plan::spent(study, records).as_secs_f64() / planned,
        _ => 1.0,
    };
    trial_time(study, cell).mul_f64(factor)
}

fn cell_of<'a>(study: &'a Study, record: &Record) -> Option<&'a Cell> {
    study.cells.iter().find(|cell| cell.name == record.cell)
}

/// Time that these trials took according to their records, so that a resumed run decides like one without interruption. A record without
/// this time counts with its planned time.
fn spent<'a>(study: &Study, records: impl Iterator<Item = &'a Record>) -> Duration {
    let share = study.measure.share;
    let own = records.filter(|record| share.has(record.repetition));
    let times = own.filter_map(|record| match record.took_ns {
        Some(took_ns) => Some(Duration::from_nanos(took_ns)),
        None => Some(trial_time(study, cell_of(study, record)?)),
    });
    times.sum()
}

/// Indices of the cells in the order of a repetition. Cells that are compared with each other form a family and run one after the other. The
/// seed shuffles the families and the cells within each, so that of two cells each is first with equal probability, as their interval
/// requires. Trials for a meter's cost run next to their cell, and each of them is first in turn.
fn order(study: &Study, repetition: u32) -> Vec<usize> {
    let cells = &study.cells;
    let own = (0..cells.len()).filter(|&index| cells[index].meter_trial.is_none());
    let mut shuffle = Shuffle::new(study.measure.seed, repetition);
    let families = shuffle.order(families(study, own));
    let shuffled: Vec<usize> = families
        .into_iter()
        .flat_map(|family| shuffle.order(family))
        .collect();
    let with_meter_trials = |index: usize| {
        let is_for_cell = |other: &usize| {
            let trial = &cells[*other].meter_trial;
            trial
                .as_ref()
                .is_some_and(|trial| trial.cell == cells[index].name)
        };
        let mut trials: Vec<usize> = vec![index];
        trials.extend((0..cells.len()).filter(is_for_cell));
        let first = repetition as usize % trials.len();
        trials.rotate_left(first);
        trials
    };
    shuffled.into_iter().flat_map(with_meter_trials).collect()
}

/// Output of `--dry-run`: the cells and the time of the run.
pub fn dry_run(study: &Study) -> String {
    let measure = &study.measure;
    let mut text = format!("{}\n", study.title);
    let (mut once, mut captured) = (Duration::ZERO, Duration::ZERO);
    for (index, cell) in study.cells.iter().enumerate() {
        text += &format!("{:>4}  {}\n", index + 1, cell.name);
        let trial = trial_time(study, cell);
        match cell.captured {
            Some(_) => captured += (trial + CAPTURE) * study.repetitions(cell),
            None => once += trial,
        }
    }
    let least = once * measure.repetitions + captured;
    let limit = measure.time_max;
    text += &format!(
        "{} cells, {} repetitions of {} after {} of warm-up: about {}",
        study.cells.len(),
        measure.repetitions,
        units::show_duration(measure.duration),
        units::show_duration(measure.warm_up),
        rounded(least),
    );
    if study.stops_early() {
        text += &format!(
            "; more until its contrasts are decided, {} at most",
            rounded(limit.unwrap_or(CONTRAST_TIME.max(least))),
        );
    } else if measure.repetitions_max > measure.repetitions {
        text += &format!(
            "; up to {} repetitions, {}, where the interval is wider than {:.1} %",
            measure.repetitions_max,
            rounded(once * measure.repetitions_max + captured),
            100.0 * measure.target.unwrap_or_default(),
        );
    }
    if let Some(limit) = limit.filter(|_| !study.stops_early()) {
        text += &format!("; it ends after {}", units::show_duration(limit));
    }
    text + "\n"
}

/// Prints a time rounded up to seconds, or to minutes from 2 min on.
fn rounded(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{} s", seconds + 1),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Knobs, SCHEMA_VERSION, Shared, Topology, Warning, WarningCode};

    fn study() -> Study {
        let text = "[vary]\nflows = [1, 2, 3]\n[measure]\nrepetitions = 2\nretries = 1\n";
        Study::parse("s", text, "s.toml").unwrap()
    }

    fn record(study: &Study, next: NextTrial, outcome: Outcome, marked: bool) -> Record {
        let warning = Warning::new(WarningCode::Others, "");
        Record {
            schema_version: SCHEMA_VERSION,
            study: "s".into(),
            cell: study.cells[next.cell].name.clone(),
            knobs: Knobs::default().into(),
            repetition: next.repetition,
            attempt: next.attempt,
            seed: 1,
            started: String::new(),
            bed: "netns".into(),
            captured: false,
            interval_ns: 1,
            took_ns: None,
            work: None,
            outcome,
            warnings: if marked { vec![warning] } else { vec![] },
            cpu_distances: vec![],
            topology: Topology::default().into(),
            machines: Shared::default(),
            hosts: [].into(),
        }
    }

    #[test]
    fn each_repetition_has_every_cell_once_also_after_a_resume_at_any_point() {
        let study = study();
        let mut records = Vec::new();
        let mut plan = Plan::default();
        let mut order = Vec::new();
        while let Some(next) = plan.next(&study, &records) {
            order.push((next.repetition, next.cell));
            records.push(record(&study, next, Outcome::Measured, false));
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        for done in 0..records.len() {
            let next = Plan::default().next(&study, &records[..done]).unwrap();
            assert_eq!((next.repetition, next.cell), order[done]);
        }
    }

    #[test]
    fn a_limit_on_the_time_stops_the_run_before_a_trial_that_would_end_after_it() {
        let mut study = study();
        let planned = trial_time(&study, &study.cells[0]);
        let took = planned * 3;
        // Each trial takes three times as long as planned, so four of six fit into the limit.
        for (limit, expected) in [(took * 9 / 2, 4), (planned / 2, 1), (took * 7, 6)] {
            study.measure.time_max = Some(limit);
            let (mut records, mut plan) = (Vec::new(), Plan::default());
            while let Some(next) = plan.next(&study, &records) {
                let mut done = record(&study, next, Outcome::Measured, false);
                done.took_ns = Some(took.as_nanos() as u64);
                records.push(done);
            }
            assert_eq!(records.len(), expected, "{limit:?}");
            assert_eq!(Plan::default().next(&study, &records), None);
        }
    }

    #[test]
    fn a_marked_trial_is_tried_again_as_often_as_allowed() {
        let study = study();
        let first = Plan::default().next(&study, &[]).unwrap();
        let mut records = vec![record(&study, first, Outcome::Measured, true)];
        let second = Plan::default().next(&study, &records).unwrap();
        assert_eq!(
            second,
            NextTrial {
                attempt: 1,
                ..first
            }
        );
        records.push(record(&study, second, Outcome::Measured, true));
        assert_ne!(
            Plan::default().next(&study, &records).unwrap().cell,
            first.cell,
            "one retry is allowed"
        );
    }

    #[test]
    fn on_a_machine_that_is_busy_throughout_repeating_ends() {
        let study = study();
        let mut records = Vec::new();
        let mut plan = Plan::default();
        while let Some(next) = plan.next(&study, &records) {
            records.push(record(&study, next, Outcome::Measured, true));
        }
        assert!(
            (7..12).contains(&records.len()),
            "6 trials and few repeats: {}",
            records.len()
        );
    }

    #[test]
    fn a_cell_that_is_skipped_is_tried_once() {
        let study = study();
        let mut records = Vec::new();
        let mut plan = Plan::default();
        while let Some(next) = plan.next(&study, &records) {
            let outcome = match next.cell {
                1 => Outcome::Skipped {
                    reason: "no".into(),
                },
                _ => Outcome::Measured,
            };
            records.push(record(&study, next, outcome, false));
        }
        assert_eq!(records.len(), 5);
    }

    #[test]
    fn a_record_lost_in_the_middle_is_done_again_and_nothing_else() {
        let study = study();
        let mut records = Vec::new();
        let mut plan = Plan::default();
        while let Some(next) = plan.next(&study, &records) {
            records.push(record(&study, next, Outcome::Measured, false));
        }
        for lost in 0..records.len() {
            let mut rest = records.clone();
            let gone = rest.remove(lost);
            let next = Plan::default().next(&study, &rest).unwrap();
            let name = &study.cells[next.cell].name;
            assert_eq!(
                (name, next.repetition, next.attempt),
                (&gone.cell, gone.repetition, 0)
            );
            rest.push(gone);
            assert_eq!(Plan::default().next(&study, &rest), None);
        }
    }

    #[test]
    fn a_failed_trial_is_tried_once_more_unless_its_cell_always_fails() {
        let study = study();
        let failed = || Outcome::Failed {
            reason: "its agent died".into(),
        };
        let (mut plan, mut records) = (Plan::default(), Vec::new());
        while let Some(next) = plan.next(&study, &records) {
            let fails = next.cell == 1 || (next.cell == 2 && next.attempt == 0);
            let outcome = if fails { failed() } else { Outcome::Measured };
            records.push(record(&study, next, outcome, false));
        }
        let tries = |cell: usize| {
            let of_cell = records
                .iter()
                .filter(|record| record.cell == study.cells[cell].name);
            of_cell
                .map(|record| (record.repetition, record.attempt))
                .collect::<Vec<_>>()
        };
        assert_eq!(tries(0), [(0, 0), (1, 0)]);
        assert_eq!(tries(1), [(0, 0), (0, 1), (1, 0)]);
        assert_eq!(tries(2), [(0, 0), (0, 1), (1, 0), (1, 1)]);
    }

    #[test]
    fn trials_for_a_meters_cost_are_next_to_their_cell_and_take_turns() {
        let text = "[vary]\nflows = [1, 2]\n[measure]\nmeters = [\"exact\", \"soak\"]\nmeter_cost = true\n";
        let study = Study::parse("s", text, "s.toml").unwrap();
        let mut firsts = Vec::new();
        for repetition in 0..4 {
            let order = order(&study, repetition);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<_>>());
            for family in order.chunks(4) {
                let flows = |cell: &usize| study.cells[*cell].knobs.flows();
                assert!(family.iter().all(|cell| flows(cell) == flows(&family[0])));
                let trial = study.cells[family[0]].meter_trial.as_ref();
                firsts.push(trial.map(|trial| trial.meter));
            }
        }
        firsts.dedup();
        assert_eq!(firsts.len(), 4, "each is first once: {firsts:?}");
    }

    #[test]
    fn captured_trials_are_as_many_as_asked_whatever_the_others_are() {
        let text = "[vary]\nflows = [1, 2]\n[measure]\nrepetitions = 2\n[measure.capture]\ntrials = 3\nwhere = { flows = 2 }\n";
        let study = Study::parse("s", text, "s.toml").unwrap();
        let mut records = Vec::new();
        let mut plan = Plan::default();
        while let Some(next) = plan.next(&study, &records) {
            assert_eq!(Plan::trials(&study, &records), 7);
            records.push(record(&study, next, Outcome::Measured, false));
        }
        let count = |name: &str| records.iter().filter(|record| record.cell == name).count();
        let counts = ["flows=1", "flows=2", "flows=2, captured"].map(count);
        assert_eq!(counts, [2, 2, 3]);
    }

    #[test]
    fn a_dry_run_names_cells_and_time() {
        let text = dry_run(&study());
        assert!(text.contains("flows=3"), "{text}");
        assert!(
            text.contains("3 cells, 2 repetitions of 1s after 200ms of warm-up: about 8 s"),
            "{text}"
        );
    }
}
