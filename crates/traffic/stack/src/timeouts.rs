//! Precision of a thread's timeouts.

use std::num::NonZeroU64;

/// Makes the calling thread's timeouts as precise as the host can, as a fixed rate needs: the default slack of
/// 50 µs would be in every response time. After a failure it stays.
pub fn use_precise_timeouts() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_thread_asks_for_timeouts_without_slack() {
        super::use_precise_timeouts();
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), 1);
    }
}
