//! Numbers of uperf: `64k`, `1.5m`, `10ms`.

use std::time::Duration;

/// Parses a count or a size like `string_to_int` of uperf's numbers.c: digits, or digits with a
/// point, then B, K, M or G in steps of 1024. uperf stores it as a C `int`, so the limit is
/// 2147483647.
pub(super) fn whole(text: &str) -> Result<u32, &'static str> {
    let expected = "expected a number such as 8192, 64k or 1.5m";
    let (number, suffix) = split(text).ok_or(expected)?;
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err("no such unit: there are b, k, m, g"),
    };
    let value: f64 = number.parse().map_err(|_| expected)?;
    let value = value * f64::from(1u32 << shift);
    if value > f64::from(i32::MAX) {
        return Err("too large: 2147483647 is the most");
    }
    Ok(value as u32)
}

/// Parses a number like atoi(3), by which uperf reads `count` and `conn`: digits, and what follows
/// them is not read. Also returns true if something follows.
pub(super) fn leading(text: &str) -> Result<(u32, bool), &'static str> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    match digits {
        "" => Err("expected a number"),
        digits => Ok((whole(digits)?, !rest.is_empty())),
    }
}

/// Parses a time like `string_to_nsec`: in seconds without a unit.
pub(super) fn time(text: &str) -> Result<Duration, &'static str> {
    let expected = "expected a time such as 30s, 10ms or 5us";
    let (number, suffix) = split(text).ok_or(expected)?;
    let unit_ns = match suffix.to_ascii_lowercase().as_str() {
        "" | "s" | "sec" => 1e9,
        "m" | "ms" | "msec" => 1e6,
        "u" | "us" | "usec" => 1e3,
        "n" | "ns" | "nsec" => 1.0,
        "min" => return Err("no unit \"min\": uperf takes it for milliseconds"),
        _ => return Err("no such unit: there are s, ms, us, ns"),
    };
    let value: f64 = number.parse().map_err(|_| expected)?;
    let ns = value * unit_ns;
    if ns < 1.0 {
        return Err("expected more than 0");
    }
    if ns > MAX.as_nanos() as f64 {
        return Err("too long: an hour is the most");
    }
    Ok(Duration::from_nanos(ns as u64))
}

/// Limit, as for an operation of a program.
const MAX: Duration = Duration::from_secs(3600);

/// Splits into digits, with at most one point, and the rest. `None` without digits.
fn split(text: &str) -> Option<(&str, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let is_number = number.contains(|c: char| c.is_ascii_digit());
    is_number.then_some((number, suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_steps_of_1024_and_times_in_seconds() {
        for (text, bytes) in [
            ("90", 90),
            ("64k", 65536),
            ("64K", 65536),
            ("1.5k", 1536),
            (".5m", 524_288),
            ("1g", 1 << 30),
            ("0", 0),
        ] {
            assert_eq!(whole(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.2.3",
            "2g",
            "100000000000000000000",
            "64q",
            "0x10",
        ] {
            assert!(whole(text).is_err(), "{text}");
        }
        assert_eq!(leading("16k"), Ok((16, true)));
        assert_eq!(leading("16"), Ok((16, false)));
        assert!(leading("k").is_err() && leading("-1").is_err());
        for (text, us) in [
            ("20", 20_000_000),
            ("30s", 30_000_000),
            ("1.5ms", 1500),
            ("10m", 10_000),
            ("7us", 7),
        ] {
            assert_eq!(time(text), Ok(Duration::from_micros(us)), "{text}");
        }
        for text in ["", "s", "-1s", "0", "10min", "5000", "1h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
