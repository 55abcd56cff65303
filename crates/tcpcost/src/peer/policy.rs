//! The policy flags of `tcpcost peer`: the knobs of a study by their names, with dashes.

use clap::Args;
use tcpcost_study::{End, Knobs, PolicySettings};

/// One flag per policy knob; what is not given is our TCP's own.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Policies (as the knobs of a study: docs/study-file.md)")]
pub struct PolicyFlags {
    /// When to acknowledge: delayed, linux-like, every, exactly, avoidance, on-read, requested.
    #[arg(long, value_name = "POLICY", value_parser = knob("ack_policy"))]
    ack_policy: Option<String>,
    /// The same as --ack-policy every --ack-segments N.
    #[arg(long, value_name = "N", value_parser = knob("ack_segments"), conflicts_with_all = ["ack_policy", "ack_segments"])]
    ack_every: Option<String>,
    /// Segments per ACK of every, exactly, requested; the most that on-read waits with.
    #[arg(long, value_name = "N", value_parser = knob("ack_segments"))]
    ack_segments: Option<String>,
    /// Longest wait of an ACK [default: 40ms; linux-like 200ms, avoidance 50ms].
    #[arg(long, value_name = "TIME", value_parser = knob("ack_delay"))]
    ack_delay: Option<String>,
    /// Where the limit of avoidance begins [default: 1].
    #[arg(long, value_name = "N", value_parser = knob("ack_limit_initial"))]
    ack_limit_initial: Option<String>,
    /// Where the limit of avoidance ends [default: 22].
    #[arg(long, value_name = "N", value_parser = knob("ack_limit_max"))]
    ack_limit_max: Option<String>,
    /// ACKs behind a gap that linux-like leaves out in a row [default: 44].
    #[arg(long, value_name = "N", value_parser = knob("comp_sack_nr"))]
    comp_sack_nr: Option<String>,
    /// How long the first of them waits at most [default: 1000].
    #[arg(long, value_name = "N", value_parser = knob("comp_sack_delay_us"))]
    comp_sack_delay_us: Option<String>,
    /// Whether linux-like acknowledges once what came while the application had its turn [default: on].
    #[arg(long, value_name = "on|off", value_parser = knob("backlog_ack_defer"))]
    backlog_ack_defer: Option<String>,
    /// When a partial segment behind full ones leaves by itself: always, nagle.
    #[arg(long, value_name = "RULE", value_parser = knob("tail_split"))]
    tail_split: Option<String>,
    /// Fraction of its window that a sender waits for; 0: more than three segments.
    #[arg(long, value_name = "N", value_parser = knob("tso_win_divisor"))]
    tso_win_divisor: Option<String>,
    /// Most payload handed to the device at once; 0B: ordinary segments [default: 65160B].
    #[arg(long, value_name = "SIZE", value_parser = knob("super_segment"))]
    super_segment: Option<String>,
    /// Least segments of a paced super-segment [default: 2].
    #[arg(long, value_name = "N", value_parser = knob("tso_min_segs"))]
    tso_min_segs: Option<String>,
    /// Send super-segments whole or not at all, as Linux did in 2005.
    #[arg(long)]
    whole_super_segments: bool,
    /// Spread what is sent: off, timer.
    #[arg(long, value_name = "HOW", value_parser = knob("pacing"))]
    pacing: Option<String>,
    /// Rate of --pacing timer [default: by window and round-trip time].
    #[arg(long, value_name = "RATE", value_parser = knob("pacing_rate"))]
    pacing_rate: Option<String>,
    /// Initial congestion window in segments [default: 10].
    #[arg(long, value_name = "N", value_parser = knob("initial_window"))]
    initial_window: Option<String>,
    /// What opens the congestion window: bytes, per-ack.
    #[arg(long, value_name = "HOW", value_parser = knob("window_growth"))]
    window_growth: Option<String>,
    /// Whether to probe when the last segments of a flight stay unacknowledged: on, off.
    #[arg(long, value_name = "SWITCH", value_parser = knob("tail_loss_probe"))]
    tail_loss_probe: Option<String>,
}

impl PolicyFlags {
    /// The policies that were given.
    pub fn settings(&self) -> PolicySettings {
        let every = self.ack_every.as_ref().map(|_| "every".to_string());
        let whole = self.whole_super_segments.then(|| "on".to_string());
        let given = [
            ("ack_policy", self.ack_policy.as_ref().or(every.as_ref())),
            (
                "ack_segments",
                self.ack_segments.as_ref().or(self.ack_every.as_ref()),
            ),
            ("ack_delay", self.ack_delay.as_ref()),
            ("ack_limit_initial", self.ack_limit_initial.as_ref()),
            ("ack_limit_max", self.ack_limit_max.as_ref()),
            ("comp_sack_nr", self.comp_sack_nr.as_ref()),
            ("comp_sack_delay_us", self.comp_sack_delay_us.as_ref()),
            ("backlog_ack_defer", self.backlog_ack_defer.as_ref()),
            ("tail_split", self.tail_split.as_ref()),
            ("tso_win_divisor", self.tso_win_divisor.as_ref()),
            ("super_segment", self.super_segment.as_ref()),
            ("tso_min_segs", self.tso_min_segs.as_ref()),
            ("whole_super_segments", whole.as_ref()),
            ("pacing", self.pacing.as_ref()),
            ("pacing_rate", self.pacing_rate.as_ref()),
            ("initial_window", self.initial_window.as_ref()),
            ("window_growth", self.window_growth.as_ref()),
            ("tail_loss_probe", self.tail_loss_probe.as_ref()),
        ];
        let mut knobs = Knobs::default();
        for (name, text) in given {
            if let Some(text) = text {
                knobs
                    .set(name, text)
                    .expect("the flag's parser has read it as this knob's");
            }
        }
        PolicySettings::from_knobs(&knobs, End::Client)
    }
}

/// A parser that takes what the knob takes.
fn knob(name: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync {
    move |text| match Knobs::default().set(name, text) {
        Ok(()) => Ok(text.to_string()),
        Err(error) => Err(error.expected),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tcpcost_study::AckKind;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        policies: PolicyFlags,
    }

    fn parse(line: &str) -> Result<PolicySettings, clap::Error> {
        let words = ["peer"].into_iter().chain(line.split_whitespace());
        Ok(Command::try_parse_from(words)?.policies.settings())
    }

    #[test]
    fn every_policy_knob_of_an_end_is_a_flag() {
        let settings = parse(
            "--ack-policy avoidance --ack-segments 3 --ack-delay 50ms --ack-limit-initial 0 \
             --ack-limit-max 22 --comp-sack-nr 8 --comp-sack-delay-us 500 --backlog-ack-defer off --tail-split always --tso-win-divisor 8 --super-segment 16KiB \
             --tso-min-segs 4 --whole-super-segments --pacing timer --pacing-rate 1Gbit \
             --initial-window 3 --window-growth per-ack --tail-loss-probe off",
        )
        .unwrap();
        // Each field is set: none is as in the default.
        let set = format!("{settings:?}");
        assert!(!set.contains("None"), "{set}");
    }

    #[test]
    fn ack_every_is_a_short_form() {
        let settings = parse("--ack-every 8").unwrap();
        assert_eq!(
            (settings.ack, settings.ack_segments),
            (Some(AckKind::Every), Some(8))
        );
        assert!(parse("--ack-every 8 --ack-policy delayed").is_err());
        assert_eq!(parse("").unwrap(), PolicySettings::default());
    }

    #[test]
    fn what_a_knob_does_not_take_is_refused_with_what_it_takes() {
        let error = parse("--ack-policy sometimes").unwrap_err().to_string();
        assert!(error.contains("linux-like"), "{error}");
        assert!(parse("--ack-segments 65").is_err());
    }
}
