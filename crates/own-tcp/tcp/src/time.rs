//! Points in time for tests. [`ms`] is the only function that may read the clock, once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the time `n` milliseconds after the start of the test run.
#[allow(
    clippy::disallowed_methods,
    reason = "tests need one Instant to count from"
)]
pub(crate) fn ms(n: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_millis(n)
}
