//! Numbers and pairs on netperf's command line (netperf's `netlib.c`, `convert`; `netsh.c`, `break_args`).

use crate::Failure;

/// Parses a size or count: digits, then K, M, G for powers of 1024 or k, m, g for powers of 1000.
///
/// netperf reads text that is no number as 0, and lets 10^20 overflow. Both are errors here.
///
/// # Errors
/// The text is no number, or is above 2^31 − 1, the limit of netperf's messages.
pub fn size(option: &str, text: &str) -> Result<i32, Failure> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'K')) => (&text[..at], 1_i64 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        Some((at, 'k')) => (&text[..at], 1_000),
        Some((at, 'm')) => (&text[..at], 1_000_000),
        Some((at, 'g')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value = is_number
        .then(|| digits.parse::<i64>().ok()?.checked_mul(factor))
        .flatten()
        .and_then(|value| i32::try_from(value).ok());
    value.ok_or_else(|| {
        Failure::usage(format!(
            "{option} {text}: expected a whole number up to 2147483647, also as 16K, 1M (1024) or 10k, 1m (1000)"
        ))
    })
}

/// Parses a number like atoi(3), for options that netperf reads so: digits, and what follows them is not
/// read. Also returns true if something follows.
///
/// # Errors
/// There are no digits, or too many.
pub fn leading(option: &str, text: &str) -> Result<(i32, bool), Failure> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    Ok((size(option, digits)?, !rest.is_empty()))
}

/// Parses the length of a test: seconds if positive, bytes or transactions if negative.
///
/// # Errors
/// The text is not a whole number, or is 0.
pub fn length(option: &str, text: &str) -> Result<i32, Failure> {
    let value = match text.strip_prefix('-') {
        Some(units) => -size(option, units)?,
        None => size(option, text)?,
    };
    if value == 0 {
        return Err(Failure::usage(format!(
            "{option} 0: netserver cannot end a test without a limit; give seconds, or -N bytes or transactions"
        )));
    }
    Ok(value)
}

/// Values of `first,second`; `None` for a value that is missing.
pub type Pair = (Option<String>, Option<String>);

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

/// Parses a pair. A single value is the first (netperf's `break_args_explicit`).
pub fn pair(text: &str) -> Pair {
    match text.split_once(',') {
        Some((first, second)) => (given(first), given(second)),
        None => (given(text), None),
    }
}

/// Parses a pair. A single value counts for both (netperf's `break_args`).
pub fn both(text: &str) -> Pair {
    match text.split_once(',') {
        Some((first, second)) => (given(first), given(second)),
        None => (given(text), given(text)),
    }
}

/// Parses each value of a pair as a [`size`].
///
/// # Errors
/// One of them is no size.
pub fn sizes(option: &str, pair: Pair) -> Result<(Option<i32>, Option<i32>), Failure> {
    let size = |text: Option<String>| text.map(|text| size(option, &text)).transpose();
    Ok((size(pair.0)?, size(pair.1)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_are_powers_of_1024_or_of_1000() {
        let of = |text| size("-m", text).unwrap();
        assert_eq!(
            ["5", "16K", "1M", "1G", "10k", "3m", "2g"].map(of),
            [
                5,
                16_384,
                1 << 20,
                1 << 30,
                10_000,
                3_000_000,
                2_000_000_000
            ]
        );
    }

    #[test]
    fn what_is_no_number_or_too_large_is_an_error_not_zero() {
        for text in [
            "",
            "K",
            "x",
            "-1",
            "1.5",
            "16KB",
            "2G",
            "100000000000000000000",
            "é",
        ] {
            assert!(size("-m", text).is_err(), "{text}");
        }
        assert_eq!(length("-l", "-1K").unwrap(), -1024);
        assert!(length("-l", "0").is_err());
        assert!(length("-l", "--5").is_err());
    }

    #[test]
    fn one_value_alone_is_the_first_or_both() {
        let some = |text: &str| Some(text.to_string());
        assert_eq!(pair("4"), (some("4"), None));
        assert_eq!(both("4"), (some("4"), some("4")));
        assert_eq!(both(",4"), (None, some("4")));
        assert_eq!(both("4,"), (some("4"), None));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = size("-m", &text);
            let _ = length("-l", &text);
        }
    }
}
