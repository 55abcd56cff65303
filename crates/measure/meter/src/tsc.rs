//! The time-stamp counter: a clock at a constant rate, not a count of core cycles.
//!
//! x86-64 has the TSC, arm64 the virtual counter CNTVCT_EL0. Reading it takes about 10 ns, or a microsecond
//! if a hypervisor traps it; a snapshot takes 0.1 µs. The reading is not serialised: the CPU may move dozens
//! of instructions across it, which does not matter over a second.

#![allow(unsafe_code, reason = "the counter is read by an instruction")]

#[cfg(not(target_arch = "aarch64"))]
use rustix::time::ClockId;
use tcpcost_counts::{CountOwner, MeterName, Quantity, Snapshot};

use crate::{Meter, MeterError, snapshot_of};

/// Current value of the counter. `None` on an architecture without a known counter.
#[cfg(target_arch = "x86_64")]
pub fn now() -> Option<u64> {
    // SAFETY: every x86-64 has the instruction; Linux leaves it to user mode unless a process asked
    // otherwise (PR_SET_TSC), which this one does not.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

/// Current value of the counter. `None` on an architecture without a known counter.
#[cfg(target_arch = "aarch64")]
pub fn now() -> Option<u64> {
    let count: u64;
    // SAFETY: reads a register that Linux leaves to user mode (arch_timer's CNTKCTL_EL1.EL0VCTEN).
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    Some(count)
}

/// Current value of the counter. `None` on an architecture without a known counter.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn now() -> Option<u64> {
    None
}

/// Rate of the counter, Hz. `None` if there is no counter. arm64 reports it. On x86-64 it is measured against
/// CLOCK_MONOTONIC_RAW over 25 ms, which is right to some parts in a million.
#[cfg(target_arch = "aarch64")]
pub fn rate_hz() -> Option<u64> {
    let rate: u64;
    // SAFETY: same as CNTVCT_EL0 above.
    unsafe { std::arch::asm!("mrs {}, cntfrq_el0", out(reg) rate, options(nomem, nostack)) };
    (rate > 0).then_some(rate)
}

/// Rate of the counter, Hz. `None` if there is no counter. arm64 reports it. On x86-64 it is measured against
/// CLOCK_MONOTONIC_RAW over 25 ms, which is right to some parts in a million.
#[cfg(not(target_arch = "aarch64"))]
pub fn rate_hz() -> Option<u64> {
    let (count, at_ns) = pair()?;
    std::thread::sleep(std::time::Duration::from_millis(25));
    let (later_count, later_ns) = pair()?;
    let counted = u128::from(later_count.checked_sub(count)?);
    let elapsed_ns = u128::from(later_ns.checked_sub(at_ns)?);
    u64::try_from((counted * 1_000_000_000).checked_div(elapsed_ns)?).ok()
}

/// Counter and clock at one instant: the narrowest of several tries, because an interrupt may come between
/// the two.
#[cfg(not(target_arch = "aarch64"))]
fn pair() -> Option<(u64, u64)> {
    let tries = (0..16).filter_map(|_| {
        let before = now()?;
        let at_ns = crate::clock::now_ns(ClockId::MonotonicRaw);
        let width = now()?.checked_sub(before)?;
        Some((width, before + width / 2, at_ns))
    });
    let (_, count, at_ns) = tries.min()?;
    Some((count, at_ns))
}

/// Meter of the counter: [`Quantity::TscCycles`] of the host.
#[derive(Debug, Default)]
pub struct Tsc;

impl Meter for Tsc {
    fn name(&self) -> MeterName {
        MeterName::Tsc
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let counts = now().map(|count| (Quantity::TscCycles, count));
        Ok(snapshot_of(
            self.name(),
            CountOwner::Host,
            counts.into_iter().collect(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_grows_at_its_rate() {
        let (Some(before), Some(rate_hz)) = (now(), rate_hz()) else {
            tcpcost_testbed::skip("no counter on this architecture");
            return;
        };
        let grown = now().unwrap() - before;
        // rate_hz took at least 25 ms on x86-64. A rate below 1 MHz or above 20 GHz is wrong.
        assert!((1_000_000..20_000_000_000).contains(&rate_hz), "{rate_hz}");
        if cfg!(target_arch = "x86_64") {
            assert!(grown >= rate_hz / 1000 * 24, "{grown} at {rate_hz} Hz");
        }
    }
}
