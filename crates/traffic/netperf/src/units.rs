//! Units of throughput (`-f`; netperf's `netlib.c`, `format_units` and `calc_thruput_interval_omni`).

use crate::Failure;

/// Unit of throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Transactions per second.
    Transactions,
    /// Microseconds per transaction.
    Latency,
    /// Bytes of 1, 1024, 1024^2, 1024^3 per second, by netperf's letter.
    Bytes(u32),
    /// Bits of 1, 1000, 1000^2, 1000^3 per second.
    Bits(u32),
}

impl Unit {
    /// Megabits, the default of a stream.
    pub const MEGABITS: Unit = Unit::Bits(2);

    /// Parses netperf's letter.
    ///
    /// # Errors
    /// There is no such letter.
    pub fn parse(text: &str) -> Result<Unit, Failure> {
        Ok(match text {
            "x" => Unit::Transactions,
            "u" => Unit::Latency,
            "B" => Unit::Bytes(0),
            "K" => Unit::Bytes(1),
            "M" => Unit::Bytes(2),
            "G" => Unit::Bytes(3),
            "b" => Unit::Bits(0),
            "k" => Unit::Bits(1),
            "m" => Unit::Bits(2),
            "g" => Unit::Bits(3),
            _ => {
                return Err(Failure::usage(format!(
                    "-f {text}: expected one of G M K B (bytes), g m k b (bits), x (transactions), u (microseconds)"
                )));
            }
        })
    }

    /// Name as printed, without "/s".
    pub fn name(self) -> &'static str {
        match self {
            Unit::Transactions => "Trans",
            Unit::Latency => "Usec",
            Unit::Bytes(0) => "Bytes",
            Unit::Bytes(1) => "KBytes",
            Unit::Bytes(2) => "MBytes",
            Unit::Bytes(_) => "GBytes",
            Unit::Bits(0) => "10^0bits",
            Unit::Bits(1) => "10^3bits",
            Unit::Bits(2) => "10^6bits",
            Unit::Bits(_) => "10^9bits",
        }
    }

    /// Throughput of `count` bytes or transactions in `seconds`; 0 if no time has passed.
    pub fn of(self, count: f64, seconds: f64) -> f64 {
        let per_s = match seconds > 0.0 {
            true => count / seconds,
            false => 0.0,
        };
        match self {
            Unit::Transactions => per_s,
            Unit::Latency if per_s > 0.0 => 1e6 / per_s,
            Unit::Latency => 0.0,
            Unit::Bytes(power) => per_s / 1024_f64.powi(power.cast_signed()),
            Unit::Bits(power) => 8.0 * per_s / 1000_f64.powi(power.cast_signed()),
        }
    }

    /// Unit for bytes. A unit of transactions cannot count bytes: megabits replace it, as in netperf.
    pub fn for_bytes(self) -> Unit {
        if self.counts_transactions() {
            Unit::MEGABITS
        } else {
            self
        }
    }

    /// True if the unit counts transactions instead of bytes.
    pub fn counts_transactions(self) -> bool {
        matches!(self, Unit::Transactions | Unit::Latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_letter_scales_as_it_says() {
        let of = |letter| Unit::parse(letter).unwrap().of(1_048_576.0, 2.0);
        assert_eq!(of("M"), 0.5);
        assert_eq!(of("B"), 524_288.0);
        assert_eq!(of("k"), 4_194.304);
        assert_eq!(of("x"), 524_288.0);
        assert_eq!(Unit::Latency.of(4.0, 2.0), 500_000.0);
        assert_eq!(Unit::MEGABITS.of(1.0, 0.0), 0.0);
        assert!(Unit::parse("q").is_err());
    }
}
