//! `tcpcost advise --try ID`: a counted comparison of a setting that is made and restored while the workload runs.
//!
//! The counts of both sides are priced, so that the machine's state does not matter, and the guess of the counts under the knob is
//! replaced by a count.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use tcpcost_console::exit::usage;
use tcpcost_console::format::{Format, Output, TextOrJson};
use tcpcost_console::output;
use tcpcost_counts::table::{WIDTH, wrap};
use tcpcost_counts::{MeterName, Quantity, Source, exact_cost_ns};
use tcpcost_host::apply;
use tcpcost_host::journal::{self, Journal};
use tcpcost_host::lock::{HostLock, LockKind};
use tcpcost_model::advice::{Rule, SCHEMA_VERSION, rule, rules};
use tcpcost_model::{Cause, Counts, PriceList, time};
use tcpcost_study::{DeviceOwner, DeviceSettings, HostName, Knobs};

use super::place::{Place, Watcher};
use crate::explain::TargetArgs;
use tcpcost_observe::Target;

/// Time of one of the four parts: each side has two of them.
const PART: &str = "1";

/// Sides in their order: without, with, with, without. A load that grows or falls steadily hits both sides alike.
const ORDER: [bool; 4] = [false, true, true, false];

/// Counts of one side.
#[derive(Debug, Default)]
struct SideCounts {
    counts: Counts,
    payload_bytes: f64,
    cpu_ns: Option<f64>,
}

impl SideCounts {
    fn add(&mut self, part: &dyn Source) {
        for (cause, count) in Counts::of(part).iter() {
            let sum = self.counts.get(cause).unwrap_or(0.0);
            self.counts.set(cause, sum + count);
        }
        let of = [Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];
        let bytes = of
            .iter()
            .filter_map(|&of| part.count(MeterName::Segments, of));
        self.payload_bytes += bytes.sum::<f64>();
        if let Some(ns) = exact_cost_ns(part) {
            *self.cpu_ns.get_or_insert(0.0) += ns;
        }
    }

    /// Counts per KiB of payload.
    fn per_kib(&self) -> Counts {
        self.counts.scaled(1024.0 / self.payload_bytes)
    }
}

/// Result of an attempt, per KiB of payload.
pub struct Tried {
    rule: &'static Rule,
    settings: String,
    /// Priced cost, ns per KiB, without and with the setting.
    ns: [f64; 2],
    /// Change of the priced cost: the ratio, and its interval by the prices alone.
    ratio: f64,
    low: f64,
    high: f64,
    /// Change of the measured CPU time per KiB; `None` if it was not measured.
    measured: Option<f64>,
    /// Causes whose cost changed most: cause, change in ns per KiB.
    moved: Vec<(Cause, f64)>,
}

/// Makes the attempt.
///
/// # Errors
/// There is no such rule, it is not a setting that can be tried, there are no prices, or the setting cannot be made or restored.
pub fn attempt(
    target: &TargetArgs,
    id: &str,
    prices: Result<&PriceList, String>,
) -> anyhow::Result<Tried> {
    let rule = tryable(id)?;
    let list = prices.map_err(|why| anyhow::anyhow!("--try prices what it counts: {why}"))?;
    let watcher = Watcher::new(target);
    watcher.end();
    let place = watcher.watch();
    anyhow::ensure!(
        !place.device.is_empty(),
        "--try {id}: no open connection of the work was seen, so its device is not known: try again while it runs"
    );
    let settings = settings(rule)?;
    let lock = watcher.within(hold)??;
    let mut journal = Journal::open(&journal::folder()?)?;
    let measured = measure(target, rule, &watcher, &place, &settings, &mut journal);
    if let Err(error) = watcher.within(|| journal.put_back())? {
        // The file stays for `tcpcost doctor --restore` in that namespace. Dropping would write into this one.
        std::mem::forget(journal);
        return Err(error).context(format!("restore the setting of --try {id}"));
    }
    drop(lock);
    tried(rule, list, measured?)
}

/// Rule whose setting can be tried.
fn tryable(id: &str) -> anyhow::Result<&'static Rule> {
    let can: Vec<&str> = rules()
        .filter(|rule| !rule.set.is_empty())
        .map(|rule| rule.id)
        .collect();
    match rule(id) {
        Some(rule) if !rule.set.is_empty() => Ok(rule),
        Some(rule) => Err(usage(format!(
            "--try {id}: this is no setting that acts on running connections; verify it by {}",
            rule.study
        ))),
        None => Err(usage(format!(
            "--try {id}: no such rule; these can be tried: {}",
            can.join(", ")
        ))),
    }
}

fn settings(rule: &Rule) -> anyhow::Result<DeviceSettings> {
    let mut knobs = Knobs::default();
    for (name, value) in rule.set {
        knobs.set(name, value).map_err(usage)?;
    }
    Ok(DeviceSettings::from_knobs(&knobs, HostName::CLIENT))
}

/// Lock on the settings of this namespace.
fn hold() -> anyhow::Result<HostLock> {
    let lock = HostLock::open(&journal::folder()?)?;
    anyhow::ensure!(
        lock.try_hold(LockKind::Exclusive)?,
        "the network settings are held by {}",
        lock.holders()
    );
    Ok(lock)
}

/// Counts of the four parts. The setting may be left made: the caller restores it.
fn measure(
    target: &TargetArgs,
    rule: &Rule,
    watcher: &Watcher,
    place: &Place,
    settings: &DeviceSettings,
    journal: &mut Journal,
) -> anyhow::Result<[SideCounts; 2]> {
    let device = place.device.parse()?;
    let peer = place.peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let owner = match place.settings.get("driver") {
        Some("lo") => DeviceOwner::Loopback,
        // A namespace of its own has its own route and qdisc.
        _ if watcher.is_elsewhere() => DeviceOwner::Bed,
        _ => DeviceOwner::Host,
    };
    let mut sides = [SideCounts::default(), SideCounts::default()];
    let part = TargetArgs {
        of: Target {
            per: None,
            fresh_netns: false,
            ..target.of.clone()
        },
        command: vec!["sleep".to_string(), PART.to_string()],
    };
    for is_with in ORDER {
        if is_with {
            watcher
                .within(|| apply::apply(settings, &device, peer, owner, journal))?
                .with_context(|| format!("--try {}", rule.id))?;
        } else {
            watcher.within(|| journal.put_back())??;
        }
        let observed = part.observe()?;
        anyhow::ensure!(observed.code == 0, "--try {}: interrupted", rule.id);
        sides[usize::from(is_with)].add(&observed.growth);
    }
    Ok(sides)
}

/// Least payload of a side, bytes: below it the counts are of background traffic.
const PAYLOAD_LEAST: f64 = 1_048_576.0;

fn tried(rule: &'static Rule, list: &PriceList, sides: [SideCounts; 2]) -> anyhow::Result<Tried> {
    anyhow::ensure!(
        sides.iter().all(|side| side.payload_bytes >= PAYLOAD_LEAST),
        "--try {}: less than 1 MiB of payload in 2 s: nothing to compare",
        rule.id
    );
    let [without, with] = [sides[0].per_kib(), sides[1].per_kib()];
    let ns = [list.cost_ns(&without), list.cost_ns(&with)];
    let drawn = list.drawn_costs_ns(&with);
    let mut ratios: Vec<f64> = drawn
        .iter()
        .zip(list.drawn_costs_ns(&without))
        .map(|(with, without)| with / without)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ns[1] / ns[0];
    let at = |share: f64| {
        let last = ratios.len().checked_sub(1)?;
        ratios.get((last as f64 * share).round() as usize).copied()
    };
    let mut moved: Vec<(Cause, f64)> = list
        .prices
        .iter()
        .filter_map(|price| {
            let change = with.get(price.cause)? - without.get(price.cause)?;
            Some((price.cause, change * price.ns))
        })
        .collect();
    moved.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
    moved.truncate(MOVED_MAX);
    let measured = |side: &SideCounts| Some(side.cpu_ns? / side.payload_bytes);
    let settings = rule
        .set
        .iter()
        .map(|(name, value)| format!("{name} = {value}"));
    Ok(Tried {
        rule,
        settings: settings.collect::<Vec<_>>().join(", "),
        ns,
        ratio,
        low: at(0.05).unwrap_or(ratio),
        high: at(0.95).unwrap_or(ratio),
        measured: measured(&sides[1])
            .zip(measured(&sides[0]))
            .map(|(with, without)| with / without),
        moved,
    })
}

/// Difference of the priced and the measured ratio from which they disagree. Two seconds of one load differ by less.
const DISAGREES: f64 = 0.2;

/// Limit on the causes that are named.
const MOVED_MAX: usize = 3;

impl Tried {
    /// Prints the result.
    pub fn print(&self, output: &Output<TextOrJson>) -> anyhow::Result<()> {
        for (format, _) in output.each() {
            match format {
                Format::Json => output::write_json(&format!("{}\n", self.json()))?,
                _ => output::write(&self.text())?,
            };
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema_version": SCHEMA_VERSION,
            "tried": {
                "id": self.rule.id,
                "settings": self.settings,
                "ns_per_kib": {"without": self.ns[0], "with": self.ns[1]},
                "ratio": self.ratio,
                "interval": {"low": self.low, "high": self.high},
                "measured_ratio": self.measured,
            },
        })
    }

    fn text(&self) -> String {
        let change =
            |ratio: f64| format!("{:+.0} %", 100.0 * (ratio - 1.0)).replace('-', "\u{2212}");
        let mut text = format!(
            "{} ({}) changes TCP's cost by counts and prices from {} to {} per KiB: {} [{}, {}].",
            self.rule.id,
            self.settings,
            time(self.ns[0]),
            time(self.ns[1]),
            change(self.ratio),
            change(self.low),
            change(self.high)
        );
        text = wrap(&text, WIDTH, "") + "\n\n";
        let moved: Vec<String> = self
            .moved
            .iter()
            .map(|(cause, ns)| {
                let sign = if *ns < 0.0 { "\u{2212}" } else { "+" };
                format!("{} {sign}{}", cause.label(), time(ns.abs()))
            })
            .collect();
        let mut notes = vec![format!("Changed most, per KiB: {}.", moved.join("; "))];
        if let Some(ratio) = self.measured {
            let change = change(ratio);
            notes.push(format!(
                "Measured CPU time in these seconds: {change} (no interval: one pair of 2 s)."
            ));
            if (ratio - self.ratio).abs() > DISAGREES {
                notes
                    .push("The two disagree: the prices do not fit what changed here.".to_string());
            }
        }
        notes.push(
            "Counted for 2 s with the setting and 2 s without, in turn; the setting is restored. The interval is that of the prices alone: \
             verify it by pairs."
                .to_string(),
        );
        for note in notes {
            text += &(wrap(&note, WIDTH, "  ") + "\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_that_can_be_tried_is_one_that_a_study_has() {
        let mut count = 0;
        for rule in rules().filter(|rule| !rule.set.is_empty()) {
            let made = settings(rule).unwrap_or_else(|error| panic!("{}: {error}", rule.id));
            assert!(
                !made.values.is_empty() || !made.sysctls.is_empty(),
                "{}",
                rule.id
            );
            count += 1;
        }
        assert!(count > 10, "{count}");
        assert!(
            tryable("larger-writes")
                .unwrap_err()
                .to_string()
                .contains("tcpcost compare")
        );
        assert!(tryable("gor").unwrap_err().to_string().contains("gro,"));
    }
}
