//! `tcpcost watch --soak`: prints a line per interval, like vmstat, with the load that soakers measure.
//! Calibrates before the first line and after the last one; Ctrl-C ends it.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tcpcost_console::exit::{Exit, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_meter::Meter;
use tcpcost_meter::proc::Proc;
use tcpcost_meter::soak::{Calibration, Soakers, add_idle_work};
use tcpcost_signals::Interrupt;
use tcpcost_study::{CountOwner, Figure, Quantity, Reading};

use tcpcost_host::cpus::{self, Cpus};

use crate::watch::WatchArgs;

/// Prints lines until there are `count` of them, Ctrl-C is pressed, or no reader is left.
pub fn soak(args: &WatchArgs) -> anyhow::Result<Exit> {
    let (interval, calibrate) = (args.interval, args.calibrate);
    let cpus = cpus(args.soak.as_deref().filter(|list| !list.is_empty()))?;
    // Signals must be handled before another thread starts.
    let interrupt = Interrupt::watch(ENDS_AT_ONCE)?;
    let mut meters = Meters {
        soakers: Soakers::start(&cpus, args.dirty_lines)?,
        proc: Proc::new(&cpus),
    };
    let is_json = args.output.has(Format::Json);
    let print = |text: String, document: Value| {
        let line = if is_json {
            format!("{document}\n")
        } else {
            text
        };
        output::write(&line)
    };

    let Some(idle) = meters.over(&interrupt, 1, Instant::now() + calibrate)? else {
        return Ok(Exit::Interrupted);
    };
    let before = Calibration::of(&idle.soak, &idle.proc);
    let text = format!(
        "idle rate, units/s: {}\n{}",
        each(&before, |one| one
            .units_per_s
            .map(|rate| format!("{rate:.0}"))),
        disturbances(&before)
    );
    if !print(text, calibration("before", &before, None))? {
        return Ok(Exit::Ok);
    }

    let mut printed = 0;
    let mut deadline = Instant::now();
    let ended = loop {
        if args.count == Some(printed) {
            break Exit::Ok;
        }
        // Lines follow a fixed beat. After a late line, the next interval lasts at least half of
        // `interval`.
        deadline = (deadline + interval).max(Instant::now() + interval / 2);
        let Some(mut grown) = meters.over(&interrupt, 1, deadline)? else {
            // Without a count, Ctrl-C is the normal end.
            break args.count.map_or(Exit::Ok, |_| Exit::Interrupted);
        };
        add_idle_work(&mut grown.soak, &grown.proc, &before);
        let head = if printed % LINES_PER_HEAD == 0 {
            head(&cpus)
        } else {
            String::new()
        };
        if !print(head + &line(&grown), interval_document(&grown))? {
            return Ok(Exit::Ok);
        }
        printed += 1;
    };

    // The second calibration runs after Ctrl-C, too, but shorter. A second Ctrl-C ends it.
    let calibrate = if interrupt.is_set() {
        calibrate.min(CLOSING)
    } else {
        calibrate
    };
    let Some(idle) = meters.over(&interrupt, 2, Instant::now() + calibrate)? else {
        return Ok(Exit::Interrupted);
    };
    let after = Calibration::of(&idle.soak, &idle.proc);
    let drifts = drifts(&before, &after);
    let mut text = String::from("drift of the idle rate since, %: ");
    text += &each(&after, |one| {
        Some(format!("{:+.1}", drift_of(&drifts, one.cpu)? * 100.0))
    });
    text.push('\n');
    text += &disturbances(&after);
    if drifts
        .iter()
        .any(|(_, drift)| drift.is_some_and(|drift| drift.abs() > DRIFT_MAX))
    {
        text += "more than 1 %: the loads above are no more accurate than that\n";
    }
    print(text, calibration("after", &after, Some(&drifts)))?;
    Ok(ended)
}

/// Signal that ends the process at once. The first one ends the lines, the second one the
/// calibration after them.
const ENDS_AT_ONCE: u32 = 3;
/// Longest calibration after a signal: a command ends within a second.
const CLOSING: Duration = Duration::from_millis(500);
const LINES_PER_HEAD: u64 = 20;
const DRIFT_MAX: f64 = 0.01;

fn cpus(list: Option<&str>) -> anyhow::Result<Vec<usize>> {
    let usable = Cpus::read(Path::new("/sys"))?.cpus;
    let Some(list) = list else {
        return Ok(usable);
    };
    let mut cpus = cpus::from_list(list)
        .filter(|cpus| !cpus.is_empty())
        .ok_or_else(|| usage(format!("--soak={list}: expected a list such as 0-3,8")))?;
    cpus.sort_unstable();
    cpus.dedup();
    match cpus.iter().find(|cpu| !usable.contains(cpu)) {
        None => Ok(cpus),
        Some(cpu) => Err(usage(format!(
            "--soak={list}: CPU {cpu} is offline or not allowed here; usable: {usable:?}"
        ))),
    }
}

/// Growth of both meters over one interval.
struct Grown {
    soak: Vec<Reading>,
    proc: Vec<Reading>,
}

struct Meters {
    soakers: Soakers,
    proc: Proc,
}

impl Meters {
    /// Reads both meters now and at the deadline. `None` if request number `times` to stop comes
    /// before the deadline.
    fn over(
        &mut self,
        interrupt: &Interrupt,
        times: u32,
        deadline: Instant,
    ) -> anyhow::Result<Option<Grown>> {
        let (soak, proc) = (self.soakers.snapshot()?, self.proc.snapshot()?);
        if interrupt.wait(times, deadline.saturating_duration_since(Instant::now())) {
            return Ok(None);
        }
        Ok(Some(Grown {
            soak: self.soakers.snapshot()?.since(&soak)?,
            proc: self.proc.snapshot()?.since(&proc)?,
        }))
    }
}

impl Grown {
    /// Returns each CPU with its reading by the soaker, in the order of the readings.
    fn each(&self) -> impl Iterator<Item = (usize, &Reading)> {
        self.soak.iter().filter_map(|reading| match reading.whose {
            CountOwner::Cpu(cpu) => Some((cpu, reading)),
            _ => None,
        })
    }

    /// Returns the sum of the CPUs' loads, in CPUs. `None` if a CPU has no load.
    fn sum(&self) -> Option<f64> {
        self.each()
            .map(|(_, reading)| Figure::SoakLoadRatio.value(reading))
            .sum()
    }

    /// Returns the share of this owner's time that the hypervisor took, 0 to 1.
    fn steal(&self, whose: &CountOwner) -> Option<f64> {
        let reading = self.proc.iter().find(|reading| reading.whose == *whose)?;
        let cpus = match whose {
            CountOwner::Cpus(cpus) => cpus.len(),
            _ => 1,
        };
        let steal_ns = *reading.counts.get(&Quantity::CpuStealNs)?;
        Some(steal_ns as f64 / (reading.duration_ns.max(1) as f64 * cpus as f64))
    }

    /// Returns the soaker's CPUs as one owner.
    fn all(&self) -> CountOwner {
        CountOwner::Cpus(self.each().map(|(cpu, _)| cpu).collect())
    }
}

fn head(cpus: &[usize]) -> String {
    let mut head = String::new();
    for cpu in cpus {
        write!(head, "{:>7}", format!("cpu{cpu}%")).expect(INFALLIBLE);
    }
    head + &format!("{:>8}{:>8}\n", "sum%", "steal%")
}

fn line(grown: &Grown) -> String {
    let percent = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:.1}", ratio * 100.0),
        None => "-".into(),
    };
    let mut line = String::new();
    for (_, reading) in grown.each() {
        write!(line, "{:>7}", percent(Figure::SoakLoadRatio.value(reading))).expect(INFALLIBLE);
    }
    let steal = grown.steal(&grown.all());
    line + &format!("{:>8}{:>8}\n", percent(grown.sum()), percent(steal))
}

const INFALLIBLE: &str = "a String takes all";

fn interval_document(grown: &Grown) -> Value {
    let cpus: Vec<Value> = grown
        .each()
        .map(|(cpu, reading)| {
            let count = |quantity| reading.counts.get(&quantity);
            json!({
                "cpu": cpu,
                "soak_work_units": count(Quantity::SoakWorkUnits),
                "soak_idle_work_units": count(Quantity::SoakIdleWorkUnits),
                "soak_task_ns": count(Quantity::SoakTaskNs),
                "load_ratio": Figure::SoakLoadRatio.value(reading),
                "steal_ratio": grown.steal(&CountOwner::Cpu(cpu)),
            })
        })
        .collect();
    json!({
        "schema_version": 1,
        "kind": "interval",
        "at": jiff::Timestamp::now().to_string(),
        "duration_ns": grown.soak.first().map(|reading| reading.duration_ns),
        "load_cpus": grown.sum(),
        "cpus": cpus,
    })
}

fn calibration(when: &str, all: &[Calibration], drifts: Option<&[Drift]>) -> Value {
    let cpus: Vec<Value> = all
        .iter()
        .map(|one| {
            let mut cpu = json!({
                "cpu": one.cpu,
                "units_per_s": one.units_per_s,
                "others_ratio": one.others_ratio,
                "steal_ratio": one.steal_ratio,
                "is_quiet": one.is_quiet(),
            });
            if let Some(drifts) = drifts {
                cpu["drift_ratio"] = json!(drift_of(drifts, one.cpu));
            }
            cpu
        })
        .collect();
    json!({"schema_version": 1, "kind": "calibration", "when": when, "cpus": cpus})
}

type Drift = (usize, Option<f64>);

fn drifts(before: &[Calibration], after: &[Calibration]) -> Vec<Drift> {
    let pairs = before.iter().zip(after);
    pairs
        .map(|(before, after)| (after.cpu, after.drift(before)))
        .collect()
}

fn drift_of(drifts: &[Drift], cpu: usize) -> Option<f64> {
    drifts.iter().find(|(of, _)| *of == cpu)?.1
}

/// Lists a word for each CPU: `cpu0 12, cpu1 -`. `-` is for a CPU without a word.
fn each(all: &[Calibration], word: impl Fn(&Calibration) -> Option<String>) -> String {
    let words: Vec<String> = all
        .iter()
        .map(|one| format!("cpu{} {}", one.cpu, word(one).unwrap_or_else(|| "-".into())))
        .collect();
    words.join(", ")
}

/// Returns a line for each CPU on which other tasks ran during the calibration.
fn disturbances(all: &[Calibration]) -> String {
    let mut text = String::new();
    for one in all.iter().filter(|one| !one.is_quiet()) {
        let steal = one.steal_ratio.map_or(String::new(), |ratio| {
            format!(", the hypervisor for {:.1} %", ratio * 100.0)
        });
        writeln!(
            text,
            "calibrated while others had cpu{} for {:.1} % of the time{steal}: {}",
            one.cpu,
            one.others_ratio * 100.0,
            match one.units_per_s {
                Some(_) => "its rate is too low",
                None => "it has no rate",
            }
        )
        .expect(INFALLIBLE);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Counts, MeterName};

    fn grown(loads: &[Option<u64>]) -> Grown {
        let reading = |meter, whose: CountOwner, counts: Counts| Reading {
            meter,
            whose,
            duration_ns: 1_000_000_000,
            counts: counts.into(),
        };
        let soak = loads.iter().enumerate().map(|(cpu, idle)| {
            let mut counts = Counts::from([(Quantity::SoakWorkUnits, 750)]);
            counts.extend(idle.map(|idle| (Quantity::SoakIdleWorkUnits, idle)));
            reading(MeterName::Soak, CountOwner::Cpu(cpu), counts)
        });
        let all = CountOwner::Cpus((0..loads.len()).collect());
        let stolen = Counts::from([(Quantity::CpuStealNs, 100_000_000)]);
        Grown {
            soak: soak.collect(),
            proc: vec![reading(MeterName::Proc, all, stolen)],
        }
    }

    #[test]
    fn a_line_stands_under_its_head() {
        assert_eq!(head(&[0, 1]), "  cpu0%  cpu1%    sum%  steal%\n");
        let line_of = |loads: &[Option<u64>]| line(&grown(loads));
        assert_eq!(
            line_of(&[Some(1000), Some(1500)]),
            "   25.0   50.0    75.0     5.0\n"
        );
        assert_eq!(
            line_of(&[Some(1000), None]),
            "   25.0      -       -     5.0\n"
        );
    }

    #[test]
    fn what_is_not_told_is_null_in_a_document() {
        let document = interval_document(&grown(&[Some(1000), None]));
        assert_eq!(document["cpus"][0]["load_ratio"], 0.25);
        assert!(document["cpus"][1]["load_ratio"].is_null());
        assert!(document["cpus"][0]["steal_ratio"].is_null());
        assert!(document["load_cpus"].is_null());
    }

    #[test]
    fn a_disturbed_calibration_says_so() {
        let one = Calibration {
            cpu: 2,
            units_per_s: None,
            others_ratio: 0.125,
            steal_ratio: Some(0.0),
        };
        let text = disturbances(&[one]);
        assert!(text.contains("others had cpu2 for 12.5 %"), "{text}");
        assert!(text.ends_with(": it has no rate\n"), "{text}");
        let quiet = Calibration {
            others_ratio: 0.001,
            ..one
        };
        assert_eq!(disturbances(&[quiet]), "");
        assert_eq!(
            each(&[one], |one| one.units_per_s.map(|_| "x".into())),
            "cpu2 -"
        );
    }
}
