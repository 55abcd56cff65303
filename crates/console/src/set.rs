//! `--set KEY=VALUE`: settings of `peer` and `relay` by name, among them the knobs of our own TCP.
//!
//! A command's settings are a clap struct of their own, which parses the words of `--set`. So a
//! setting has a type, a default and a description like any option.

use std::error::Error;
use std::ops::Deref;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tcpcost_knobs::nearest;

/// Value of `--set`: the settings of one command.
#[derive(Debug, Clone)]
pub struct Set<T>(T);

impl<T> Deref for Set<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Parses a switch: `on` or `off`.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_string()),
    }
}

impl<T: Args> Set<T> {
    /// Returns the parser of the words.
    fn parser() -> Command {
        let command = Command::new("set")
            .no_binary_name(true)
            .args_override_self(true)
            .disable_help_flag(true);
        T::augment_args(command)
    }

    /// Parses words such as `ack_policy=on-read`.
    ///
    /// # Errors
    /// A word has no value, its key is unknown, its value is refused, or it needs another setting.
    pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Set<T>, String> {
        let mut flags = Vec::new();
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("--set {word}: expected KEY=VALUE"))?;
            let is_key = |key: &str| Set::<T>::keys().iter().any(|known| known == key);
            if !is_key(key) {
                return Err(format!(
                    "--set {word}: no such setting{}",
                    Set::<T>::hint(key)
                ));
            }
            flags.push(format!("--{}={value}", key.replace('_', "-")));
        }
        let matches = Set::<T>::parser().try_get_matches_from(flags);
        let set = matches.and_then(|matches| T::from_arg_matches(&matches));
        set.map(Set).map_err(|error| reason(&error))
    }

    fn keys() -> Vec<String> {
        Set::<T>::parser().get_arguments().map(key).collect()
    }

    fn hint(wrong: &str) -> String {
        let keys = Set::<T>::keys();
        let near = nearest(wrong, keys.iter().map(String::as_str));
        near.map_or_else(String::new, |near| format!("; nearest is {near}"))
    }

    /// Lists the settings, one a line.
    fn list() -> String {
        let parser = Set::<T>::parser();
        let rows = parser.get_arguments().map(|arg| {
            let value = arg.get_value_names().unwrap_or_default();
            let value = value.first().map_or("VALUE", |name| name.as_str());
            let default: Vec<&str> = arg
                .get_default_values()
                .iter()
                .filter_map(|value| value.to_str())
                .collect();
            let default = match (arg.is_hide_default_value_set(), &default[..]) {
                (false, [default]) => format!(" [default: {default}]"),
                _ => String::new(),
            };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            format!("  {}={value}{default}\n      {help}\n", key(arg))
        });
        rows.collect()
    }
}

/// Returns the key of a setting: its long name with underscores.
fn key(arg: &Arg) -> String {
    arg.get_long().unwrap_or_default().replace('-', "_")
}

/// Returns why the words were refused, with keys in place of the parser's flags.
fn reason(error: &clap::Error) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let flag = text(ContextKind::InvalidArg);
    let name = flag
        .trim_start_matches("--")
        .split([' ', '='])
        .next()
        .unwrap_or_default();
    let key = name.replace('-', "_");
    match (error.kind(), error.source()) {
        (ErrorKind::ValueValidation, Some(why)) => {
            format!("--set {key}={}: {why}", text(ContextKind::InvalidValue))
        }
        (ErrorKind::ValueValidation | ErrorKind::InvalidValue, None) => {
            let valid = text(ContextKind::ValidValue);
            format!(
                "--set {key}={}: expected {valid}",
                text(ContextKind::InvalidValue)
            )
        }
        (ErrorKind::MissingRequiredArgument, _) => format!("--set needs {key}=…, too"),
        _ => error
            .to_string()
            .trim_start_matches("error: ")
            .trim_end()
            .to_string(),
    }
}

impl<T: Args> Args for Set<T> {
    fn augment_args(command: Command) -> Command {
        let help = "Set a knob of its TCP, or another setting; may be repeated (--help lists them)";
        let set = Arg::new("set")
            .long("set")
            .value_name("KEY=VALUE")
            .action(ArgAction::Append)
            .help(help)
            .long_help(format!(
                "Set a knob of its TCP, or another setting; may be repeated:\n{}",
                Set::<T>::list()
            ));
        command.arg(set)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Args> FromArgMatches for Set<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let words = matches.get_many::<String>("set").into_iter().flatten();
        Set::parse(words.map(String::as_str))
            .map_err(|text| clap::Error::raw(ErrorKind::ValueValidation, format!("{text}\n")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Args)]
    struct Settings {
        #[arg(long, value_parser = switch, action = ArgAction::Set, default_value = "off")]
        no_delay: bool,
        #[arg(long, requires = "no_delay")]
        flows: Option<u16>,
    }

    fn parse(words: &[&str]) -> Result<Set<Settings>, String> {
        Set::parse(words.iter().copied())
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        let set = parse(&["no_delay=on", "flows=2", "flows=3"]).unwrap();
        assert_eq!((set.no_delay, set.flows), (true, Some(3)));
        assert!(!parse(&[]).unwrap().no_delay);
    }

    #[test]
    fn a_mistake_names_the_key_and_what_is_expected() {
        let wrong = |words: &[&str], text: &str| {
            let error = parse(words).unwrap_err();
            assert!(error.contains(text), "{error}");
        };
        wrong(&["flows"], "--set flows: expected KEY=VALUE");
        wrong(
            &["flowz=1"],
            "--set flowz=1: no such setting; nearest is flows",
        );
        wrong(&["no_delay=yes"], "--set no_delay=yes: expected on or off");
        wrong(&["no_delay=on", "flows=x"], "--set flows=x: ");
        wrong(&["flows=1"], "--set needs no_delay=…, too");
    }
}
