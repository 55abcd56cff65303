//! Values of options that are amounts with a unit.

use std::time::Duration;

use tcpcost_study::units::UnitError;

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

/// Longest time of an option: as good as never, and fits every clock.
pub const YEAR: Duration = Duration::from_secs(365 * 86_400);
