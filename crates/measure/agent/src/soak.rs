//! The soaker around a trial: spinners that run from before the traffic until after it. They are calibrated
//! before and after, while nothing else runs.
//!
//! The agent's own thread reads them, because a worker could not sleep through the calibrations. Its
//! snapshots are some microseconds off the workers', and have their own clock readings.

use std::time::Duration;

use tcpcost_meter::soak::{self, Calibration, DIRTY_LINES_DEFAULT, Soakers};
use tcpcost_meter::{Meter, MeterError, proc::Proc};
use tcpcost_study::{MeterName, Reading, Snapshot};

use crate::protocol::{Span, clock_ns};
use crate::readings::since;
use crate::{PrepareError, failed};

/// Duration of each calibration. At 1.3 million units a second the error of one unit is negligible; a 10 ms
/// step of steal is 4 %.
pub const CALIBRATION: Duration = Duration::from_millis(250);

/// Pause after the end of traffic: both ends stop at the same instant and need a moment.
const STOPPING_NS: u64 = 5_000_000;

/// Time when the calibration after a trial is normally over. A busy host may take longer.
pub fn over_ns(span: Span) -> u64 {
    const MARGIN_NS: u64 = 20_000_000;
    span.stop_ns + STOPPING_NS + CALIBRATION.as_nanos() as u64 + MARGIN_NS
}

/// Running spinners and their calibration.
pub struct Soak {
    soakers: Soakers,
    proc: Proc,
    before: Vec<Calibration>,
}

impl Soak {
    /// Starts the spinners and calibrates, before there is traffic.
    pub fn start(cpus: &[usize]) -> Result<Soak, MeterError> {
        let mut soak = Soak {
            soakers: Soakers::start(cpus, DIRTY_LINES_DEFAULT)?,
            proc: Proc::new(cpus),
            before: Vec::new(),
        };
        soak.before = soak.calibrate()?;
        Ok(soak)
    }

    /// Reads the spinners at the span's two instants, then waits for the end of all traffic and calibrates
    /// again. Returns the soaker's readings, and a warning if a CPU was not idle during a calibration.
    pub fn measure(&mut self, span: Span) -> Result<(Vec<Reading>, Option<String>), PrepareError> {
        sleep_until(span.from_ns);
        let before = self.snapshots().map_err(failed)?;
        sleep_until(span.to_ns);
        let after = self.snapshots().map_err(failed)?;
        sleep_until(span.stop_ns + STOPPING_NS);
        let later = self.calibrate().map_err(failed)?;

        let (mut readings, proc) = split(since(&before, &after).map_err(failed)?);
        let mean: Vec<Calibration> = self
            .before
            .iter()
            .zip(&later)
            .map(|(one, other)| one.with(other))
            .collect();
        soak::add_idle_work(&mut readings, &proc, &mean);
        let disturbed = mean.iter().find(|calibration| !calibration.is_quiet());
        let warning = disturbed.map(|calibration| {
            format!(
                "meter soak: CPU {} was not idle while it was calibrated ({:.1} % others): its load is less certain",
                calibration.cpu,
                calibration.others_ratio * 100.0
            )
        });
        Ok((readings, warning))
    }

    fn calibrate(&mut self) -> Result<Vec<Calibration>, MeterError> {
        let before = self.snapshots()?;
        std::thread::sleep(CALIBRATION);
        let after = self.snapshots()?;
        // A total that went backwards means a broken source; then there is no calibration.
        let (soak, proc) = split(since(&before, &after).unwrap_or_default());
        Ok(Calibration::of(&soak, &proc))
    }

    fn snapshots(&mut self) -> Result<Vec<Snapshot>, MeterError> {
        Ok(vec![self.soakers.snapshot()?, self.proc.snapshot()?])
    }
}

fn split(readings: Vec<Reading>) -> (Vec<Reading>, Vec<Reading>) {
    readings
        .into_iter()
        .partition(|reading| reading.meter == MeterName::Soak)
}

/// Sleeps until an instant of the monotonic clock.
pub fn sleep_until(at_ns: u64) {
    std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(clock_ns())));
}
