//! Knobs of our TCP as settings (`--set`) of `peer` and `relay`. Each setting is made from its row.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use tcpcost_knobs::{
    AckKind, AppliesTo, DeviceOwner, HostName, KNOBS, Knob, Knobs, UserKnob, UserSupport, Value,
    ValueKind,
};

/// Values of the knobs of our TCP. A knob that is not set has its default.
#[derive(Debug, Clone, Default)]
pub struct PolicyFlags(Knobs);

impl PolicyFlags {
    /// Knobs that are set, with their values.
    pub fn choices(&self) -> impl Iterator<Item = (UserKnob, Value)> {
        self.0.user_choices(HOST)
    }
}

/// Host whose knobs are read. A peer has one end only, so either host would do.
const HOST: HostName = HostName::CLIENT;
/// Id of the flag `--ack-every`.
const EVERY: &str = "ack_every";

/// Knobs of our TCP: each is a flag.
fn rows() -> impl Iterator<Item = &'static Knob> {
    KNOBS
        .iter()
        .filter(|row| matches!(row.applies_to, AppliesTo::Tcp(_, UserSupport::Supported(_))))
}

/// Flag with the values and the help of a knob.
fn flag(id: &'static str, row: &'static Knob) -> Arg {
    let doc = row.doc.replace('`', "");
    let first = doc.split_inclusive(". ").next().unwrap_or(&doc).trim_end();
    let value = match row.kind {
        ValueKind::Count(..) => "N",
        ValueKind::Bytes(..) => "SIZE",
        ValueKind::BitRate | ValueKind::EventRate => "RATE",
        ValueKind::Time(..) => "TIME",
        ValueKind::Share => "SHARE",
        ValueKind::Switch => "on|off",
        ValueKind::Choice(_)
        | ValueKind::Cpus
        | ValueKind::Text
        | ValueKind::Program
        | ValueKind::Reach
        | ValueKind::Device
        | ValueKind::Address
        | ValueKind::Ports => "WORD",
    };
    let parse = move |text: &str| match Knobs::default().set(row.name, text) {
        Ok(()) => Ok(text.to_string()),
        Err(error) => Err(error.expected),
    };
    let arg = Arg::new(id)
        .long(id.replace('_', "-"))
        .value_name(value)
        .value_parser(parse)
        .help(format!("{} Takes {}", dotted(first), row.expected()));
    match row.kind {
        // A switch without a value is on.
        ValueKind::Switch => arg.num_args(0..=1).default_missing_value("on"),
        _ => arg,
    }
}

fn dotted(text: &str) -> String {
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{text}{end}")
}

impl Args for PolicyFlags {
    fn augment_args(command: Command) -> Command {
        let segments = rows().find(|row| row.name == "ack_segments");
        let every = flag(EVERY, segments.expect("it is a row"))
            .help(
                "One ACK for each N full-sized segments, also of those that arrive together. \
                   The same as ack_policy=exactly and ack_segments=N",
            )
            .conflicts_with_all(["ack_policy", "ack_segments"]);
        rows().fold(command.arg(every), |command, row| {
            command.arg(flag(row.name, row))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PolicyFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut knobs = Knobs::default();
        let mut set = |name: &str, text: &str| {
            knobs
                .set(name, text)
                .expect("the flag's parser has read it as this knob's");
        };
        set("stack", "user");
        if let Some(segments) = matches.get_one::<String>(EVERY) {
            set("ack_policy", AckKind::Exactly.word());
            set("ack_segments", segments);
        }
        for row in rows() {
            if let Some(text) = matches.get_one::<String>(row.name) {
                set(row.name, text);
            }
        }
        let unmet = knobs.unmet().into_iter().next();
        let unmet = unmet.map(|unmet| (unmet.knob, unmet.reason));
        let unavailable = knobs.available_at(HOST, DeviceOwner::Loopback).err();
        match unmet.or(unavailable.map(|error| (error.knob, error.reason))) {
            None => Ok(Self(knobs)),
            Some((knob, reason)) => {
                let name = knob.rsplit('.').next().unwrap_or(&knob);
                let text = format!("--set {name} {reason}\n");
                Err(clap::Error::raw(ErrorKind::ArgumentConflict, text))
            }
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        policies: PolicyFlags,
    }

    fn parse(line: &str) -> Result<Vec<(UserKnob, Value)>, clap::Error> {
        let words = ["peer"].into_iter().chain(line.split_whitespace());
        Ok(Command::try_parse_from(words)?.policies.choices().collect())
    }

    /// Example of a value that is not the knob's default.
    fn example(row: &Knob) -> String {
        match row.kind {
            ValueKind::Count(_, most) => most.to_string(),
            ValueKind::Bytes(_, most) => format!("{most}B"),
            ValueKind::BitRate | ValueKind::EventRate => "1Gbit".to_string(),
            ValueKind::Time(least, _) => format!("{least}ms"),
            ValueKind::Share => "1%".to_string(),
            ValueKind::Switch => "on".to_string(),
            ValueKind::Choice(words) => words.last().expect("some").to_string(),
            ValueKind::Cpus
            | ValueKind::Text
            | ValueKind::Program
            | ValueKind::Reach
            | ValueKind::Device
            | ValueKind::Address
            | ValueKind::Ports => "reno".to_string(),
        }
    }

    #[test]
    fn every_knob_of_our_tcp_is_a_flag() {
        for row in rows() {
            // Alone, or with what its error says it needs.
            let alone = format!("--{} {}", row.name.replace('_', "-"), example(row));
            let line = match parse(&alone) {
                Ok(_) => alone,
                Err(error) => {
                    let text = error.to_string();
                    let (_, needed) = text
                        .split_once("needs ")
                        .unwrap_or_else(|| panic!("{text}"));
                    let (knob, rest) = needed.split_once(" = \"").expect("a word");
                    let (word, _) = rest.split_once('"').expect("a word");
                    format!("{alone} --{} {word}", knob.replace('_', "-"))
                }
            };
            let choices = parse(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let AppliesTo::Tcp(_, UserSupport::Supported(which)) = row.applies_to else {
                unreachable!("rows are of our TCP")
            };
            assert!(choices.iter().any(|(choice, _)| *choice == which), "{line}");
        }
    }

    #[test]
    fn ack_every_is_a_short_form() {
        assert_eq!(
            parse("--ack-every 8").unwrap(),
            [
                (UserKnob::AckPolicy, Value::Word("exactly".into())),
                (UserKnob::AckSegments, Value::Count(8)),
            ]
        );
        assert!(parse("--ack-every 8 --ack-policy delayed").is_err());
        assert_eq!(parse("").unwrap(), []);
        let whole = parse("--whole-super-segments --ack-every 2").unwrap();
        assert!(whole.contains(&(UserKnob::WholeSuperSegments, Value::Switch(true))));
    }

    #[test]
    fn what_a_knob_does_not_take_is_refused_with_what_it_takes() {
        let error = parse("--ack-policy sometimes").unwrap_err().to_string();
        assert!(error.contains("linux-like"), "{error}");
        assert!(parse("--ack-policy every --ack-segments 65").is_err());
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let check = |line, said: &str| {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        };
        check(
            "--pacing-rate 1Gbit",
            "--set pacing_rate needs pacing = \"timer\"",
        );
        check(
            "--ack-limit-max 8",
            "--set ack_limit_max needs ack_policy = \"avoidance\"",
        );
        check(
            "--comp-sack-nr 8",
            "--set comp_sack_nr needs ack_policy = \"linux-like\"",
        );
    }
}
