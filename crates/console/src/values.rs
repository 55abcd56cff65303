//! Parsers of values that several commands take.

use std::net::SocketAddr;
use std::time::Duration;

use tcpcost_knobs::units::{self, UnitError};

/// Longest time of an option: as good as never, and fits every clock.
pub const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Parses an amount with a unit, and refuses an amount that does not fit.
pub fn amount<T, U: TryFrom<T>>(
    text: &str,
    parse: fn(&str) -> Result<T, UnitError>,
    fits: fn(&T) -> bool,
    expected: &str,
) -> Result<U, String> {
    let amount = parse(text).map_err(|error| error.to_string())?;
    let fitting = Some(amount).filter(fits);
    let fitting = fitting.and_then(|amount| U::try_from(amount).ok());
    fitting.ok_or_else(|| format!("expected {expected}"))
}

/// Parses an interval of `watch` and `trace --follow`: at least 10 ms, a tick of /proc/stat, below which a line costs
/// more than it shows.
pub fn interval(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "a time such as 1s, 500ms, or plain seconds; at least 10ms";
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => units::duration(text).ok(),
    };
    parsed
        .filter(|interval| (Duration::from_millis(10)..=YEAR).contains(interval))
        .ok_or_else(|| EXPECTED.to_string())
}

/// Parses a whole number from 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number >= 1);
    number.ok_or_else(|| "a whole number from 1".to_string())
}

/// Parses an address at which metrics are served, such as `127.0.0.1:9464` or `[::1]:9464`, or a port of 127.0.0.1 (`9464`,
/// `:9464`).
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    match port {
        Ok(port) => Ok(([127, 0, 0, 1], port).into()),
        Err(_) => text
            .parse()
            .map_err(|_| "an address such as 127.0.0.1:9464, or a port".to_string()),
    }
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

    #[test]
    fn metrics_are_on_loopback_unless_told_otherwise() {
        for text in ["9464", ":9464", "127.0.0.1:9464"] {
            assert_eq!(listen_address(text), Ok(([127, 0, 0, 1], 9464).into()));
        }
        assert!(listen_address("0.0.0.0:9464").is_ok());
        assert!(listen_address("localhost").is_err());
    }
}
