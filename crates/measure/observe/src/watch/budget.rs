//! Limits the CPU time that one thread may take to a share of one CPU. Work that exceeds its share must wait.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// CPU time that is earned as time passes, up to a burst, and spent by the work.
#[derive(Debug)]
pub(crate) struct Budget {
    share: f64,
    burst: Duration,
    left_ns: f64,
    /// Time of the last call, and the CPU time spent until then.
    last: Option<(Instant, Duration)>,
}

impl Budget {
    pub(crate) fn new(share: f64, burst: Duration) -> Budget {
        Budget {
            share,
            burst,
            left_ns: burst.as_nanos() as f64,
            last: None,
        }
    }

    /// How long the work must wait before it goes on; zero if it need not. `cpu` is its CPU time so far.
    pub(crate) fn debt(&mut self, now: Instant, cpu: Duration) -> Duration {
        let (then, spent) = self.last.replace((now, cpu)).unwrap_or((now, cpu));
        let earned = now.saturating_duration_since(then).as_nanos() as f64 * self.share;
        let spent = cpu.saturating_sub(spent).as_nanos() as f64;
        self.left_ns = (self.left_ns + earned - spent).min(self.burst.as_nanos() as f64);
        if self.left_ns >= 0.0 {
            return Duration::ZERO;
        }
        Duration::from_nanos((-self.left_ns / self.share) as u64).max(Duration::from_millis(1))
    }
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime)
        .try_into()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_end_gets_its_share_and_the_burst() {
        let ms = Duration::from_millis;
        let mut budget = Budget::new(0.05, ms(250));
        let (start, mut now, mut cpu) = (Instant::now(), Instant::now(), Duration::ZERO);
        // The work takes a millisecond whenever the budget allows.
        while now < start + Duration::from_secs(100) {
            match budget.debt(now, cpu) {
                Duration::ZERO => (now, cpu) = (now + ms(1), cpu + ms(1)),
                wait => now += wait,
            }
        }
        assert!((5_200..=5_300).contains(&cpu.as_millis()), "{cpu:?}");
        // A pause earns no more than the burst.
        assert_eq!(
            budget.debt(now + Duration::from_secs(900), cpu),
            Duration::ZERO
        );
        assert!(budget.debt(now + Duration::from_secs(900), cpu + ms(300)) >= ms(900));
    }
}
