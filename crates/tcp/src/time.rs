//! Points in time for tests: the only place that may read the clock, once.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The point `n` milliseconds after the beginning of the test run.
#[allow(
    clippy::disallowed_methods,
    reason = "tests need one Instant to count from"
)]
pub(crate) fn ms(n: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_millis(n)
}
