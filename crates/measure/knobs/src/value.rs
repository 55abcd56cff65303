//! Value of a knob, and its text, which is the same in a study file, a record and a table.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::program::Program;
use crate::units;

/// Value of a knob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A plain number: flows, segments.
    Count(u64),
    /// A size in bytes; written `"64KiB"`.
    Bytes(u64),
    /// A rate in bits per second; written `"941Mbit"`.
    BitsPerS(u64),
    /// Rate in events per second; written `"10000/s"`.
    PerS(u64),
    /// Time; written `"40ms"`.
    Time(Duration),
    /// A share, in millionths; written `"1%"`, `"0.05%"`.
    Share(u64),
    /// Switch: on or off.
    Switch(bool),
    /// CPU numbers, in the order in which threads are placed on them; written `[0, 2]`.
    Cpus(Vec<usize>),
    /// Word of a list, or free text such as a sysctl's value.
    Word(String),
    /// Program of each connection; written `[{ send = "1KiB" }, { receive = "1KiB" }]`.
    Program(Program),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => write!(f, "{count}"),
            Value::Bytes(bytes) => f.write_str(&units::show_bytes(*bytes)),
            Value::BitsPerS(rate) => f.write_str(&units::show_bits_per_s(*rate)),
            Value::PerS(rate) => write!(f, "{rate}/s"),
            Value::Time(time) => f.write_str(&units::show_duration(*time)),
            Value::Share(ppm) => f.write_str(&units::show_share(*ppm)),
            Value::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Value::Cpus(cpus) => {
                for (index, cpu) in cpus.iter().enumerate() {
                    write!(f, "{}{cpu}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Value::Word(word) => f.write_str(word),
            Value::Program(program) => program.fmt(f),
        }
    }
}

impl Value {
    /// Number for an axis: bytes, bits per second, seconds, or the count itself. `None` for words,
    /// switches, CPU lists and programs, between which there is no distance.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Count(n) | Value::Bytes(n) | Value::BitsPerS(n) | Value::PerS(n) => {
                Some(*n as f64)
            }
            Value::Time(time) => Some(time.as_secs_f64()),
            Value::Share(ppm) => Some(*ppm as f64 / 1e6),
            Value::Switch(_) | Value::Cpus(_) | Value::Word(_) | Value::Program(_) => None,
        }
    }
}

impl Value {
    /// Whole number: a count, bytes, bits per second or events per second. `None` for other values.
    pub fn whole(&self) -> Option<u64> {
        match self {
            Value::Count(n) | Value::Bytes(n) | Value::BitsPerS(n) | Value::PerS(n) => Some(*n),
            _ => None,
        }
    }

    /// Time. `None` for other values.
    pub fn time(&self) -> Option<Duration> {
        match self {
            Value::Time(time) => Some(*time),
            _ => None,
        }
    }

    /// State of a switch. `None` for other values.
    pub fn is_on(&self) -> Option<bool> {
        match self {
            Value::Switch(on) => Some(*on),
            _ => None,
        }
    }

    /// Word. `None` for other values.
    pub fn word(&self) -> Option<&str> {
        match self {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// CPU numbers. `None` for other values.
    pub fn cpus(&self) -> Option<&[usize]> {
        match self {
            Value::Cpus(cpus) => Some(cpus),
            _ => None,
        }
    }

    /// Program. `None` for other values.
    pub fn program(&self) -> Option<&Program> {
        match self {
            Value::Program(program) => Some(program),
            _ => None,
        }
    }
}

impl Serialize for Value {
    /// Serializes counts as numbers, switches as booleans, CPU lists and programs as lists, and all
    /// else as text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Count(count) => serializer.serialize_u64(*count),
            Value::Switch(on) => serializer.serialize_bool(*on),
            Value::Cpus(cpus) => cpus.serialize(serializer),
            Value::Program(program) => program.serialize(serializer),
            other => serializer.collect_str(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_plain_units_and_no_words() {
        assert_eq!(Value::Share(2500).number(), Some(0.0025));
        assert_eq!(
            Value::Time(Duration::from_micros(250)).number(),
            Some(0.000_25)
        );
        assert_eq!(Value::BitsPerS(941).number(), Some(941.0));
        assert_eq!(Value::Switch(true).number(), None);
    }
}
