//! Sizes, times and rates as people write them: the only parser and printer of units.
//!
//! Sizes are binary (`KiB` = 1024 B). `KB` is refused instead of guessed: netperf's KB is 1024 and
//! a disk's is 1000, and the wrong choice is off by 2.4 %.

use std::time::Duration;

/// Error for a text that is not the required amount, with what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected}{}{}", if note.is_empty() { "" } else { "; " }, note)]
pub struct UnitError {
    /// Description of what was expected.
    pub expected: String,
    /// Reason why the given unit is not accepted. Empty if it needs no explanation.
    pub note: &'static str,
}

impl UnitError {
    fn new(expected: impl Into<String>) -> UnitError {
        UnitError {
            expected: expected.into(),
            note: "",
        }
    }
}

fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))?;
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

/// Product `number * scale` as an integer. `None` if it is not whole or too large.
fn exact(number: f64, scale: f64) -> Option<u64> {
    let product = number * scale;
    (product.fract() == 0.0 && product >= 0.0 && product < 2f64.powi(53)).then_some(product as u64)
}

fn parse(text: &str, units: &[(&str, f64)], expected: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError::new(expected);
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let scale = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?
        .1;
    exact(number, scale).ok_or_else(wrong)
}

/// Parses a size, e.g. `"64KiB"`, to bytes. Units: `B`, `KiB`, `MiB`, `GiB`.
///
/// # Errors
/// Another unit, no unit, or a fraction of a byte.
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    if ["KB", "kB", "MB", "GB"]
        .iter()
        .any(|unit| text.trim().ends_with(unit))
    {
        return Err(UnitError {
            expected: "a size in KiB, MiB or GiB (1024, 1024², 1024³)".to_string(),
            note: "KB could mean 1000 or 1024",
        });
    }
    const UNITS: [(&str, f64); 4] = [
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1048576.0),
        ("GiB", 1073741824.0),
    ];
    parse(text, &UNITS, "a size such as \"64KiB\" (B, KiB, MiB, GiB)")
}

/// Parses a time, e.g. `"2s"`. Units: `ns`, `us` (or `µs`), `ms`, `s`, `min`.
///
/// # Errors
/// Another unit, no unit, or a fraction of a nanosecond.
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    const UNITS: [(&str, f64); 6] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 6e10),
    ];
    parse(text, &UNITS, "a time such as \"2s\" (ns, us, ms, s, min)").map(Duration::from_nanos)
}

/// Parses a rate, as people write it, to bits per second: `941Mbit`, `1G`, `10Gbit/s`, `941Mbps`,
/// `1 Gb/s`, `37.4 Gbits/sec`.
///
/// A rate is a number, a prefix (`k`, `M`, `G`, `T` in either case; powers of 1000, as for links),
/// and `b`, `bit`, `bits` or nothing, with or without `/s`, `/sec` or `ps`. Without a prefix the
/// unit is required: `941` more likely lacks its `M` than is a rate. `B` is bytes, and `Gi` a power
/// of 1024; both are refused with a hint.
///
/// # Errors
/// Another unit, no unit, zero, or a fraction of a bit.
pub fn bits_per_s(text: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError::new(format!("{BIT_RATE} per second"));
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let prefix = unit
        .chars()
        .next()
        .map(|letter| letter.to_ascii_lowercase());
    let power = prefix.and_then(|letter| "kmgt".find(letter));
    let unit = if power.is_some() { &unit[1..] } else { unit };
    let endings = ["/s", "/sec", "ps"];
    let bits = endings.iter().find_map(|per| unit.strip_suffix(per));
    match bits.unwrap_or(unit) {
        "b" | "bit" | "bits" => {}
        "" if power.is_some() => {}
        other if other.starts_with(['B', 'i']) || other.starts_with("byte") => {
            return Err(UnitError {
                note: "bits have a small b and powers of 1000, and a byte is 8 of them",
                ..wrong()
            });
        }
        _ => return Err(wrong()),
    }
    let scale = power.map_or(1.0, |power| [1e3, 1e6, 1e9, 1e12][power]);
    match exact((number * scale).round(), 1.0) {
        Some(rate) if rate > 0 && (number * scale - rate as f64).abs() < 1e-3 => Ok(rate),
        _ => Err(wrong()),
    }
}

/// Description of a rate, for error messages.
pub(crate) const BIT_RATE: &str =
    "a rate such as \"941Mbit\", \"10G\" or \"1.5 Gb/s\" (bits; k, M, G, T)";

/// Parses events per second, e.g. `"10000/s"`.
///
/// # Errors
/// No `/s`, or zero.
pub fn per_s(text: &str) -> Result<u64, UnitError> {
    const EXPECTED: &str = "transactions per second such as \"10000/s\"";
    match parse(text, &[("/s", 1.0)], EXPECTED)? {
        0 => Err(UnitError::new(EXPECTED)),
        rate => Ok(rate),
    }
}

/// Parses a percentage, e.g. `"5%"`, to a ratio in 0..=1.
///
/// # Errors
/// No `%`, or over 100.
pub fn ratio(text: &str) -> Result<f64, UnitError> {
    match split(text) {
        Some((number, "%")) if number <= 100.0 => Ok(number / 100.0),
        _ => Err(UnitError::new("a percentage such as \"5%\" (0% to 100%)")),
    }
}

/// Parses a share of up to a half to millionths: `"0.05%"` is 500.
///
/// # Errors
/// No percentage, or more than a half, which would leave nothing to measure.
pub fn share(text: &str) -> Result<u64, UnitError> {
    match split(text) {
        Some((number, "%")) if number <= 50.0 => Ok((number * 1e4).round() as u64),
        _ => Err(UnitError::new("a percentage such as \"0.1%\" (0% to 50%)")),
    }
}

/// Renders a share as a percentage, with as many digits as it needs.
pub fn show_share(ppm: u64) -> String {
    format!("{}%", ppm as f64 / 1e4)
}

/// Description of the texts that [`ports`] accepts.
pub const PORTS: &str = "a range of ports from 1 to 65535";

/// Parses a range such as `5000-5015` to its first and last port. `None` if the text is no range.
pub fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (0 < first && first <= last).then_some((first, last))
}

fn largest(amount: u64, units: &[(&str, u64)]) -> String {
    let (name, scale) = units
        .iter()
        .find(|(_, scale)| amount >= *scale && amount.is_multiple_of(*scale))
        .unwrap_or_else(|| units.last().expect("a table of units is not empty"));
    format!("{}{name}", amount / scale)
}

/// Renders a size in the largest unit that keeps it whole: `65536` is `"64KiB"`, `1448` is
/// `"1448B"`.
pub fn show_bytes(bytes: u64) -> String {
    largest(
        bytes,
        &[
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("B", 1),
        ],
    )
}

/// Renders a size to a tenth of the largest unit that it reaches: `1.5 GiB`.
pub fn about_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Nanoseconds of a time; more than 584 years are that long.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Renders a time in the largest unit that keeps it whole.
pub fn show_duration(duration: Duration) -> String {
    let ns = nanos(duration);
    if ns == 0 {
        return "0ms".to_string();
    }
    largest(
        ns,
        &[
            ("s", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("ns", 1),
        ],
    )
}

/// Renders a rate in the largest unit that keeps it whole.
pub fn show_bits_per_s(rate: u64) -> String {
    largest(
        rate,
        &[
            ("Gbit", 1_000_000_000),
            ("Mbit", 1_000_000),
            ("kbit", 1_000),
            ("bit", 1),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_binary_and_need_a_unit() {
        assert_eq!(bytes("64KiB"), Ok(65536));
        assert_eq!(bytes("1.5 MiB"), Ok(1572864));
        assert_eq!(bytes("1448B"), Ok(1448));
        for wrong in ["64", "64KB", "64ms", "0.3B", "", "KiB", "-1B", "1e400B"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_of_ports_goes_up() {
        assert_eq!(ports("5000-5015"), Some((5000, 5015)));
        assert_eq!(ports("65535 - 65535"), Some((65535, 65535)));
        for wrong in ["5000", "5015-5000", "0-5", "5000-65536", "-", "a-b", ""] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_and_rates_know_their_units() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert!(duration("2KiB").is_err());
        assert_eq!(bits_per_s("941Mbit"), Ok(941_000_000));
        assert_eq!(bits_per_s("2Gbit/s"), Ok(2_000_000_000));
        for (text, rate) in [
            ("1G", 1_000_000_000),
            ("10Gbit/s", 10_000_000_000),
            ("941Mbps", 941_000_000),
            ("1 Gb/s", 1_000_000_000),
            ("100m", 100_000_000),
            ("4.7 Mbit", 4_700_000),
            ("37.4 Gbits/sec", 37_400_000_000),
            ("1.1Tbps", 1_100_000_000_000),
            ("64 kbit/s", 64_000),
            ("1500bit", 1500),
            ("1500 bps", 1500),
        ] {
            assert_eq!(bits_per_s(text), Ok(rate), "{text}");
        }
        for wrong in [
            "0bit",
            "941",
            "1500/s",
            "1Qbit",
            "G",
            "1GHz",
            "0.1bit",
            "1 Gbit/min",
            "-1G",
        ] {
            let error = bits_per_s(wrong).unwrap_err();
            assert!(error.note.is_empty(), "{wrong}");
        }
        for bytes in ["100MB/s", "1GiB/s", "1Gibit", "10MBps", "1 Gbyte/s", "1B"] {
            let error = bits_per_s(bytes).unwrap_err();
            assert!(error.note.contains("a byte is 8"), "{bytes}: {error}");
        }
        assert_eq!(per_s("10000/s"), Ok(10_000));
        assert_eq!(ratio("2.5%"), Ok(0.025));
        assert!(ratio("0.5").is_err());
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_back(amount in 0u64..1 << 50) {
            prop_assert_eq!(bytes(&show_bytes(amount)), Ok(amount));
            let time = Duration::from_nanos(amount);
            prop_assert_eq!(duration(&show_duration(time)), Ok(time));
            prop_assert_eq!(bits_per_s(&show_bits_per_s(amount + 1)), Ok(amount + 1));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (bytes(&text), duration(&text), bits_per_s(&text), per_s(&text), ratio(&text));
        }
    }
}
