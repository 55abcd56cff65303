//! Effects in words: one sentence for each knob, the effect first.

use tcpcost_study::{Derived, Value};

use crate::derive::estimate::Estimate;
use crate::derive::number::{percent_decimals, precise, signed, trials};
use crate::judge::effects::{Effect, EffectAt, Moved};
use crate::judge::reason::Reason;
use crate::judge::sign::{Sign, is_established};
use crate::words::labels;

/// Limit on the settings that are named after the first. Of more, only the number is given.
const MORE_SETTINGS: usize = 2;

/// Sentence such as `mtu 9000 instead of 1500 saves 23 % [19, 28] of the exact CPU per KiB (CPU-bound; at 1Gbit:
/// not established, 3 % [-4, 9]). Also changed: client's ACKs per KiB −88 %.`
pub(crate) fn sentence(effect: &Effect) -> String {
    // Established effects come first, the largest of these first.
    let mut at: Vec<&EffectAt> = effect.at.iter().collect();
    at.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let (first, others) = at.split_first().expect("at least one, as documented");
    let values = format!(
        "{} {} instead of {}",
        effect.knob,
        value(first.to.as_ref()),
        value(first.from.as_ref())
    );
    let mut settings = vec![first.setting.clone()];
    settings.extend(others.iter().take(MORE_SETTINGS).map(|other| {
        let pair = match (&other.from, &other.to) == (&first.from, &first.to) {
            true => String::new(),
            false => format!("{} ", value(other.to.as_ref())),
        };
        format!("{}: {pair}{}", other.setting, short(&other.percent))
    }));
    if let Some(more) = others.len().checked_sub(MORE_SETTINGS + 1) {
        settings.push(format!("and {} more settings", more + 1));
    }
    let most = match first.values {
        0..=2 => String::new(),
        values => format!(", the most of {values} values"),
    };
    let cause = first.because.map_or(String::new(), because);
    let with = first.with.map_or(String::new(), with);
    format!(
        "{values} {}{most} ({}){cause}.{with}",
        claim(effect.quantity, &first.percent),
        settings.join("; ")
    )
}

fn weight(at: &EffectAt) -> f64 {
    let size = at.percent.median.abs();
    if is_established(&at.percent) {
        size + 1e9
    } else {
        size
    }
}

fn value(value: Option<&Value>) -> String {
    value.map_or("the host's own value".to_string(), ToString::to_string)
}

/// Claim such as `saves 23 % [19, 28] of the CPU per KiB`.
pub(crate) fn claim(of: Derived, percent: &Estimate) -> String {
    let what = labels::in_sentence(of);
    match (Sign::of(percent), of.kind.is_cost()) {
        (Sign::Below, true) => format!("saves {} of the {what}", size(percent)),
        (Sign::Above, true) => format!("costs {} more {what}", size(percent)),
        _ => change(&format!("the {what}"), percent),
    }
}

/// Claim without the name of the quantity, such as `saves 25 % [24, 26]`.
pub(crate) fn again(of: Derived, percent: &Estimate) -> String {
    match (Sign::of(percent), of.kind.is_cost()) {
        (Sign::Below, true) => format!("saves {}", size(percent)),
        (Sign::Above, true) => format!("costs {} more", size(percent)),
        (Sign::Open, _) => format!("has no established effect: {}", signed(percent)),
        _ => change("it", percent),
    }
}

/// Claim about a quantity that is no cost, or about a change without a direction.
fn change(what: &str, percent: &Estimate) -> String {
    match Sign::of(percent) {
        Sign::Below => format!("lowers {what} by {}", size(percent)),
        Sign::Above => format!("raises {what} by {}", size(percent)),
        Sign::Open => format!("has no established effect on {what}: {}", signed(percent)),
        Sign::Unknown => format!(
            "changed {what} by {} ({}: too few for an interval)",
            signed(percent),
            trials(percent.n)
        ),
    }
}

/// Short form such as `3 % [-4, 9]`, with a note if the interval includes zero.
fn short(percent: &Estimate) -> String {
    match Sign::of(percent) {
        Sign::Open => format!("not established, {}", signed(percent)),
        Sign::Unknown => format!("{}, too few trials for an interval", signed(percent)),
        Sign::Below | Sign::Above => signed(percent),
    }
}

/// Percentage without its sign, which the verb expresses. Rounded to whole numbers.
fn size(percent: &Estimate) -> String {
    let ends = percent.lo.zip(percent.hi);
    let ends = ends.map(|(lo, hi)| (lo.abs().min(hi.abs()), lo.abs().max(hi.abs())));
    signed(&Estimate {
        median: percent.median.abs(),
        lo: ends.map(|(lo, _)| lo),
        hi: ends.map(|(_, hi)| hi),
        n: percent.n,
    })
}

/// Text such as `, because of copy: 63 % of the difference by call chains`.
pub(crate) fn because(reason: Reason) -> String {
    let share = precise((reason.share * 100.0).min(100.0), 0);
    let (what, by) = (reason.what, reason.by.name());
    format!(", because of {what}: {share} % of the difference by {by}")
}

/// Text such as ` Also changed: client's ACKs per KiB −88 %.`
fn with(moved: Moved) -> String {
    let plus = if moved.percent.median > 0.0 { "+" } else { "" };
    format!(
        " Also changed: {} {plus}{} %.",
        labels::in_sentence(moved.quantity),
        precise(moved.percent.median, percent_decimals(moved.percent.median))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::reason::ReasonBy;
    use tcpcost_study::{Figure, HostName};

    fn percent(median: f64, lo: f64, hi: f64) -> Estimate {
        Estimate {
            median,
            lo: Some(lo),
            hi: Some(hi),
            n: 6,
        }
    }

    fn at(setting: &str, to: u64, percent: Estimate) -> EffectAt {
        EffectAt {
            setting: setting.to_string(),
            from: Some(Value::Bytes(1500)),
            to: Some(Value::Bytes(to)),
            values: 2,
            percent,
            with: None,
            because: None,
        }
    }

    fn effect(at: Vec<EffectAt>) -> Effect {
        Effect {
            knob: "mtu".to_string(),
            quantity: Derived::total(Figure::ExactUsPerKib),
            at,
        }
    }

    #[test]
    fn what_is_established_comes_first_and_what_moved_with_it_last() {
        let mut bound = at("CPU-bound", 9000, percent(-23.2, -28.4, -18.6));
        bound.with = Some(Moved {
            quantity: Derived::of(HostName::SERVER, Figure::AcksPerKib),
            percent: percent(-87.5, -90.0, -85.0),
            from: 0.354,
            to: 0.0442,
        });
        bound.because = Some(Reason {
            what: "TCP input and ACK",
            share: 0.634,
            by: ReasonBy::CallChains,
        });
        let open = at("at 1Gbit", 9000, percent(3.2, -4.1, 9.3));
        assert_eq!(
            sentence(&effect(vec![open, bound])),
            "mtu 9000B instead of 1500B saves 23 % [19, 28] of the exact CPU per KiB (CPU-bound; at 1Gbit: not \
             established, 3.2 % [\u{2212}4.1, 9.3]), because of TCP input and ACK: 63 % of the difference by call chains. \
             Also changed: server's ACKs per KiB \u{2212}88 %."
        );
    }

    #[test]
    fn of_many_values_and_settings_the_most_is_told_and_the_rest_counted() {
        let mut all: Vec<EffectAt> = ["a", "b", "c", "d"]
            .map(|setting| at(setting, 3000, percent(12.0, 9.0, 15.0)))
            .to_vec();
        all[0] = at("a", 9000, percent(20.0, 19.0, 21.0));
        all[0].values = 4;
        assert_eq!(
            sentence(&effect(all)),
            "mtu 9000B instead of 1500B costs 20 % [19, 21] more exact CPU per KiB, the most of 4 values (a; b: 3000B \
             12 % [9, 15]; c: 3000B 12 % [9, 15]; and 1 more settings)."
        );
    }

    #[test]
    fn nothing_is_claimed_where_the_interval_holds_zero_or_there_is_none() {
        let told = |percent| sentence(&effect(vec![at("CPU-bound", 9000, percent)]));
        assert_eq!(
            told(percent(0.4, -3.0, 4.0)),
            "mtu 9000B instead of 1500B has no established effect on the exact CPU per KiB: 0.4 % [\u{2212}3.0, 4.0] (CPU-bound)."
        );
        assert_eq!(
            told(Estimate::new([-30.0; 3]).unwrap()),
            "mtu 9000B instead of 1500B changed the exact CPU per KiB by \u{2212}30 % (3 trials: too few for an interval) \
             (CPU-bound)."
        );
    }
}
