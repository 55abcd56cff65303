//! Parsers of values that several commands take.

use std::time::Duration;

/// Parses an interval of `watch` and `trace --follow`: at least 10 ms, a tick of /proc/stat, below which a line costs
/// more than it shows.
pub fn interval(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a time such as 1s, 500ms, or plain seconds; at least 10ms";
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => tcpcost_study::units::duration(text).ok(),
    };
    // A year is as good as never, and fits every clock.
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    parsed
        .filter(|interval| (Duration::from_millis(10)..=YEAR).contains(interval))
        .ok_or(EXPECTED)
}

/// Parses a whole number from 1.
pub fn at_least_one(text: &str) -> Result<usize, &'static str> {
    let number = text.parse().ok().filter(|number| *number >= 1);
    number.ok_or("a whole number from 1")
}

/// Parses a version of IP.
pub fn ip_version(text: &str) -> Result<u8, &'static str> {
    match text {
        "4" => Ok(4),
        "6" => Ok(6),
        _ => Err("4 or 6"),
    }
}

/// Parses a percentage of one CPU. 0 would see nothing.
pub fn percent(text: &str) -> Result<f64, &'static str> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.01..=100.0).contains(percent))
        .ok_or("a number from 0.01 to 100")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_or_is_in_seconds() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "1ms", "nan", "inf", "1e300", "1h", "", "s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
