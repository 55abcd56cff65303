//! Form of a rule: what it tests, what it changes, what it claims.

use crate::advice::signal::Signal;
use crate::advice::situation::Situation;
use crate::causes::{Cause, Counts};

/// Strength of what a rule may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Class {
    /// May claim a saving with an interval.
    A,
    /// Worth trying, without a number.
    B,
    /// Only ever "not worth it here".
    C,
}

/// A knob, with the conditions for advising it.
#[derive(Debug)]
pub struct Rule {
    /// Stable name.
    pub id: &'static str,
    /// Advice in a few words.
    pub title: &'static str,
    /// Strength.
    pub class: Class,
    /// Needs: kernel, driver, privilege.
    pub needs: Needs,
    /// Conditions that all hold when it is advised.
    pub when: &'static [Condition],
    /// Conditions that suffice where calls were not counted, as in a capture. Then nothing is claimed.
    pub by_packets: &'static [Condition],
    /// Conditions that a claim needs, as far as they are known: elsewhere the change of the counts is not the stated one.
    pub claims_if: &'static [Condition],
    /// Conditions of which one makes it not worth it here.
    pub not_when: &'static [Condition],
    /// Causes that it can lower. Their cost is the upper bound of the saving.
    pub acts_on: &'static [Cause],
    /// Change of the counts, which is priced. Empty for rules without a number.
    pub change: &'static [Change],
    /// True if the interval's half with the smaller saving is said: the counts are hard to guess.
    pub is_cautious: bool,
    /// True if something that is not priced becomes less, too: the program's own work, or timers of pacing.
    pub saves_more: bool,
    /// Limits, and cases in which it does not help.
    pub limits: &'static str,
    /// Claims elsewhere, each in its own unit.
    pub claim: &'static str,
    /// Source of the claim.
    pub source: &'static str,
    /// Comparison of a study that tests the rule.
    pub study: &'static str,
    /// Line that does it. TARGET, DEV, LOAD, OLD and NEW stand for names that a user puts there.
    pub act: &'static str,
    /// Line that undoes it.
    pub undo: &'static str,
    /// Comparison of before and after on the running workload.
    pub verify: Verify,
    /// Knobs of a study that `advise --try` sets and restores while the workload runs: name, value. Empty if the
    /// change is not a setting that acts on running connections.
    pub set: &'static [(&'static str, &'static str)],
    /// Costs and risks.
    pub costs: &'static str,
    /// Other rules with the same effect: only the best is advised.
    pub instead: &'static [&'static str],
}

/// Comparison of before and after on the running workload, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Two loads: one on the program as it is, one on a copy with the change, such as another port.
    Loads,
    /// One load, with the setting undone and done before each run.
    Switch,
}

impl Rule {
    /// Line that compares two loads.
    pub const LOADS: &str = "tcpcost stat TARGET -n 10 -- OLD --versus -- NEW";

    /// Line that compares one load with a setting undone and done.
    pub fn switch(undo: &str, act: &str) -> String {
        format!("tcpcost stat TARGET -n 10 -- sh -c '{undo}; LOAD' --versus -- sh -c '{act}; LOAD'")
    }
}

/// Needs of a knob.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Least release of Linux; `None` for any that runs tcpcost.
    pub kernel: Option<(u32, u32)>,
    /// Driver, device or program, in words; empty for any.
    pub device: &'static str,
    /// Who may change it: `the program`, `root`.
    pub who: &'static str,
}

/// A condition on a signal, a setting or a share of the cost.
#[derive(Debug, Clone, Copy)]
pub enum Condition {
    /// The signal is above the bound.
    Above(Signal, f64),
    /// The signal is below the bound.
    Below(Signal, f64),
    /// The first word of the setting is one of these.
    Is(&'static str, &'static [&'static str]),
    /// The first word of the setting is none of these.
    IsNot(&'static str, &'static [&'static str]),
    /// The setting's number is above the bound.
    Over(&'static str, f64),
    /// The setting's number is below the bound.
    Under(&'static str, f64),
    /// The causes' share of the priced cost is above the bound.
    Share(&'static [Cause], f64),
}

/// Result of testing a condition.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// It holds; the text has the number.
    Holds(String),
    /// It does not hold; the text has the number.
    Fails(String),
    /// The signal, setting or price is not known.
    Unknown,
}

impl Condition {
    /// Tests the condition.
    pub fn test(&self, of: &Situation<'_>) -> Test {
        let verdict = |holds: bool, text: String| {
            if holds {
                Test::Holds(text)
            } else {
                Test::Fails(text)
            }
        };
        match *self {
            Condition::Above(signal, bound) | Condition::Below(signal, bound) => {
                let Some(value) = signal.value(of) else {
                    return Test::Unknown;
                };
                let is_above = matches!(self, Condition::Above(..));
                let holds = if is_above {
                    value > bound
                } else {
                    value < bound
                };
                verdict(holds, signal.sentence(value))
            }
            Condition::Is(name, words) | Condition::IsNot(name, words) => {
                let value = of.settings.get(name);
                let Some(first) = value.and_then(|value| value.split(' ').next()) else {
                    return Test::Unknown;
                };
                let is_one = words.contains(&first);
                let holds = is_one == matches!(self, Condition::Is(..));
                verdict(holds, format!("{name} is {first}"))
            }
            Condition::Over(name, bound) | Condition::Under(name, bound) => {
                let Some(value) = of.settings.number(name) else {
                    return Test::Unknown;
                };
                let is_over = matches!(self, Condition::Over(..));
                let holds = if is_over {
                    value > bound
                } else {
                    value < bound
                };
                verdict(holds, format!("{name} is {value}"))
            }
            Condition::Share(causes, bound) => match of.share(causes) {
                Some(share) => {
                    let text = format!(
                        "{} are {:.0} % of TCP's cost",
                        labels(causes),
                        100.0 * share
                    );
                    verdict(share > bound, text)
                }
                None => Test::Unknown,
            },
        }
    }

    /// True if it tests a setting.
    pub fn is_of_setting(&self) -> bool {
        matches!(
            self,
            Condition::Is(..) | Condition::IsNot(..) | Condition::Over(..) | Condition::Under(..)
        )
    }

    /// Condition in words, for the documentation.
    pub fn words(&self) -> String {
        match *self {
            Condition::Above(signal, bound) => {
                format!("{} above {}", signal.words(), signal.text(bound))
            }
            Condition::Below(signal, bound) => {
                format!("{} below {}", signal.words(), signal.text(bound))
            }
            Condition::Is(name, words) => format!("`{name}` is {}", words.join(" or ")),
            Condition::IsNot(name, words) => format!("`{name}` is not {}", words.join(" or ")),
            Condition::Over(name, bound) => format!("`{name}` above {bound}"),
            Condition::Under(name, bound) => format!("`{name}` below {bound}"),
            Condition::Share(causes, bound) => {
                format!(
                    "{} above {:.0} % of the priced cost",
                    labels(causes),
                    100.0 * bound
                )
            }
        }
    }
}

/// Causes that [`Change::Packets`] changes, beside [`RUNS`].
const PACKETS: &[Cause] = &[
    Cause::SkbSent,
    Cause::AckReceived,
    Cause::SkbReceived,
    Cause::BacklogMerge,
    Cause::ReceiveCall,
    Cause::Sleep,
    Cause::AckSent,
];

/// Causes that go with runs of softirqs: the run, and the interrupts that begin it or that wake a reader.
pub(super) const RUNS: &[Cause] = &[
    Cause::NetRxRun,
    Cause::IpiReceived,
    Cause::IpiSent,
    Cause::RescheduleIpi,
];

/// Labels of causes: `send calls, receive calls`.
pub(super) fn labels(causes: &[Cause]) -> String {
    let labels: Vec<&str> = causes.iter().map(|cause| cause.label()).collect();
    labels.join(", ")
}

/// A change of counts that is priced. A number that is not known is drawn between two bounds.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    /// Some causes, the same at both ends.
    Count(&'static [Cause], By),
    /// Packets (skbs) that this end sends get this size. At this end ACKs and softirq runs follow their
    /// number; at the other end the packets received are as many, and receive calls, sleeps, ACKs and
    /// softirq runs follow. What follows does so by the power γ of the number, which is unknown between
    /// 0 and 1. The other end changes only if the counts are of both.
    Packets(Size),
}

/// Amount of a change.
#[derive(Debug, Clone, Copy)]
pub enum By {
    /// Times a factor between these.
    Factor(f64, f64),
    /// Times a factor between these, by their logarithm: the order of magnitude is unknown.
    Magnitude(f64, f64),
    /// To one for each `Size` bytes: times a signal in bytes divided by the size.
    ToSize(Signal, Size),
    /// Less by between so many and so many for each unit of a cause, not below 0.
    LessPer(Cause, f64, f64),
}

/// Size that a write, a read or a packet will have, in bytes.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// Between two bounds, linear.
    Between(f64, f64),
    /// Between two bounds, by their logarithm: the order of magnitude is unknown.
    MagnitudeBetween(f64, f64),
    /// This size.
    Bytes(f64),
    /// Bytes per send times a factor between two bounds, at most 64 KiB.
    OfSends(f64, f64),
    /// Present size times a factor, at most 64 KiB.
    Times(f64),
}

/// Unknown numbers of a rule, each between 0 and 1.
#[derive(Debug, Clone, Copy)]
pub struct Unknowns {
    /// γ: how far the receiver's calls, sleeps, ACKs and softirq runs follow the number of packets.
    pub follows: f64,
    /// Place between bounds.
    pub between: f64,
}

impl Size {
    /// Size in bytes; `None` if a signal is missing.
    fn bytes(self, now: f64, of: &Situation<'_>, unknowns: Unknowns) -> Option<f64> {
        let u = unknowns.between;
        let linear = |low: f64, high: f64| low + (high - low) * u;
        let bytes = match self {
            Size::Between(low, high) => linear(low, high),
            Size::MagnitudeBetween(low, high) => low.powf(1.0 - u) * high.powf(u),
            Size::Bytes(bytes) => bytes,
            Size::OfSends(low, high) => {
                (Signal::BytesPerSend.value(of)? * linear(low, high)).min(PACKET_MAX)
            }
            Size::Times(factor) => (now * factor).min(PACKET_MAX),
        };
        // A response is not longer than it is.
        let whole = Signal::BytesPerExchange.value(of);
        Some(whole.map_or(bytes, |whole| bytes.min(whole)))
    }

    fn words(self) -> String {
        let kib = |bytes: f64| Signal::BytesPerSend.text(bytes);
        match self {
            Size::Between(low, high) | Size::MagnitudeBetween(low, high) => {
                format!("{} to {}", kib(low), kib(high))
            }
            Size::Bytes(bytes) => kib(bytes),
            Size::OfSends(low, high) => format!("{low} to {high} times the bytes per send"),
            Size::Times(factor) => format!("{factor:.1} times as many bytes"),
        }
    }
}

/// Largest skb without BIG TCP, bytes.
const PACKET_MAX: f64 = 65_536.0;

/// Factor of a number of packets or calls when the bytes of each grow from the signal's to the size. It never
/// raises the number. `None` if a signal is missing.
fn ratio(signal: Signal, size: Size, of: &Situation<'_>, unknowns: Unknowns) -> Option<f64> {
    let now = signal.value(of)?;
    Some((now / size.bytes(now, of, unknowns)?).min(1.0))
}

impl Change {
    /// Changes counts. `None` if a signal that it needs is missing.
    pub fn apply(self, counts: &mut Counts, of: &Situation<'_>, unknowns: Unknowns) -> Option<()> {
        let mut scale = |causes: &[Cause], factor: f64| {
            for &cause in causes {
                if let Some(count) = counts.get(cause) {
                    counts.set(cause, count * factor);
                }
            }
        };
        match self {
            Change::Packets(size) => {
                let fewer = ratio(Signal::SkbBytes, size, of, unknowns)?;
                let follows = fewer.powf(unknowns.follows);
                scale(&[Cause::SkbSent], fewer);
                scale(&[Cause::AckReceived], follows);
                scale(RUNS, follows);
                if of.has_both_ends {
                    scale(&[Cause::SkbReceived, Cause::BacklogMerge], fewer);
                    scale(&[Cause::ReceiveCall, Cause::Sleep, Cause::AckSent], follows);
                }
            }
            Change::Count(causes, By::LessPer(each, low, high)) => {
                let less = low + (high - low) * unknowns.between;
                let units = of.counts.get(each)?;
                for &cause in causes {
                    counts.add(cause, -less * units);
                }
            }
            Change::Count(causes, By::Factor(low, high)) => {
                scale(causes, low + (high - low) * unknowns.between);
            }
            Change::Count(causes, By::Magnitude(low, high)) => {
                let between = unknowns.between;
                scale(causes, low.powf(1.0 - between) * high.powf(between));
            }
            Change::Count(causes, By::ToSize(signal, size)) => {
                scale(causes, ratio(signal, size, of, unknowns)?);
            }
        }
        Some(())
    }

    /// Causes that it can change.
    pub fn causes(self) -> Vec<Cause> {
        match self {
            Change::Count(causes, _) => causes.to_vec(),
            Change::Packets(_) => [PACKETS, RUNS].concat(),
        }
    }

    /// Change in words, for the documentation.
    pub fn words(self) -> String {
        let (causes, by) = match self {
            Change::Packets(size) => return format!("packets of {}", size.words()),
            Change::Count(causes, by) => (labels(causes), by),
        };
        let amount = match by {
            By::Factor(low, high) if low == high => format!("× {low}"),
            By::Factor(low, high) | By::Magnitude(low, high) => format!("× {low} to {high}"),
            By::ToSize(signal, size) => format!("× {} / {}", signal.words(), size.words()),
            By::LessPer(cause, low, high) if low == high => format!("− {low} per {}", cause.unit()),
            By::LessPer(cause, low, high) => format!("− {low} to {high} per {}", cause.unit()),
        };
        format!("{causes} {amount}")
    }
}
