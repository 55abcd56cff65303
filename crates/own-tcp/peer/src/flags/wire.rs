//! Impairments of the wire: for both directions, or for each.

use std::time::Duration;

use clap::Args;
use tcpcost_console::exit::usage;
use tcpcost_console::values::amount;
use tcpcost_knobs::units;
use tcpcost_link::Impairment;

/// A value for each direction, as seen from our TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerDirection<T> {
    /// Value for packets that our TCP sends.
    pub sent: T,
    /// Value for packets that our TCP receives.
    pub received: T,
}

/// Makes a parser of `VALUE` for both directions, or `SENT,RECEIVED`.
fn per_direction<T: Clone, E>(
    one: impl Fn(&str) -> Result<T, E> + Clone,
) -> impl Fn(&str) -> Result<PerDirection<T>, E> + Clone {
    move |text| match text.split_once(',') {
        Some((sent, received)) => Ok(PerDirection {
            sent: one(sent)?,
            received: one(received)?,
        }),
        None => one(text).map(|value| PerDirection {
            sent: value.clone(),
            received: value,
        }),
    }
}

/// Makes a parser of a value, or `-` for none.
fn or_none<T, E>(
    one: impl Fn(&str) -> Result<T, E> + Clone,
) -> impl Fn(&str) -> Result<Option<T>, E> + Clone {
    move |text| match text {
        "-" => Ok(None),
        text => one(text).map(Some),
    }
}

/// Parses a size below 1 GiB.
pub fn size(text: &str) -> Result<u32, String> {
    amount(
        text,
        units::bytes,
        |&bytes| bytes < 1 << 30,
        "less than 1GiB",
    )
}

fn burst_length(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|packets: &f64| (1.0..=1e6).contains(packets))
        .ok_or_else(|| "expected a number from 1".to_string())
}

/// Impairments of the wire: a value for both directions, or SENT,RECEIVED as seen from our TCP.
#[derive(Debug, Clone, Args)]
pub struct WireFlags {
    /// Packets lost, e.g. 1%, or 1%,0% of what is sent only.
    #[arg(long, value_name = "RATIO", value_parser = per_direction(units::ratio), default_value = "0%")]
    pub loss: PerDirection<f64>,
    /// Packets at which a burst of losses begins (Gilbert's model).
    #[arg(long, value_name = "RATIO", value_parser = per_direction(units::ratio), default_value = "0%")]
    pub burst_loss: PerDirection<f64>,
    /// Mean length of a burst, packets.
    #[arg(long, value_name = "N", value_parser = per_direction(burst_length), default_value = "4", requires = "burst_loss")]
    pub burst_length: PerDirection<f64>,
    /// Packets sent twice.
    #[arg(long, value_name = "RATIO", value_parser = per_direction(units::ratio), default_value = "0%")]
    pub duplicate: PerDirection<f64>,
    /// Packets in which a bit is changed.
    #[arg(long, value_name = "RATIO", value_parser = per_direction(units::ratio), default_value = "0%")]
    pub corrupt: PerDirection<f64>,
    /// Packets held back by 1 ms.
    #[arg(long, value_name = "RATIO", value_parser = per_direction(units::ratio), default_value = "0%")]
    pub reorder: PerDirection<f64>,
    /// Time from one end to the other.
    #[arg(long, value_name = "TIME", value_parser = per_direction(units::duration), default_value = "0s")]
    pub delay: PerDirection<Duration>,
    /// Limit of a random extra delay, uniformly distributed; packets keep their order.
    #[arg(long, value_name = "TIME", value_parser = per_direction(units::duration), default_value = "0s")]
    pub jitter: PerDirection<Duration>,
    /// Rate, e.g. 100Mbit/s, or 100Mbit/s,- for one direction.
    #[arg(long, value_name = "RATE", value_parser = per_direction(or_none(units::bits_per_s)), default_value = "-", hide_default_value = true)]
    pub wire_rate: PerDirection<Option<u64>>,
    /// Bytes of the queue before the rate limit; a packet that finds it full is dropped.
    #[arg(long, value_name = "SIZE", value_parser = per_direction(or_none(size)), default_value = "-", hide_default_value = true, requires = "wire_rate")]
    pub wire_queue: PerDirection<Option<u32>>,
    /// Seed of the impairments.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub wire_seed: u64,
}

impl WireFlags {
    /// Impairments of each direction.
    pub fn impairment(&self) -> PerDirection<Impairment> {
        let impairment = |pick: fn(&PerDirection<f64>) -> f64,
                          time: fn(&PerDirection<Duration>) -> Duration| {
            Impairment {
                delay: time(&self.delay),
                jitter: time(&self.jitter),
                loss: pick(&self.loss),
                burst: pick(&self.burst_loss),
                burst_goes_on: 1.0 - 1.0 / pick(&self.burst_length),
                reorder: pick(&self.reorder),
                reorder_delay: Duration::from_millis(1),
                duplicate: pick(&self.duplicate),
                corrupt: pick(&self.corrupt),
                ..Impairment::default()
            }
        };
        let queue = |bytes: Option<u32>| bytes.map(|bytes| bytes as usize);
        PerDirection {
            sent: Impairment {
                rate_bits_per_s: self.wire_rate.sent,
                queue_bytes: queue(self.wire_queue.sent),
                ..impairment(|each| each.sent, |each| each.sent)
            },
            received: Impairment {
                rate_bits_per_s: self.wire_rate.received,
                queue_bytes: queue(self.wire_queue.received),
                ..impairment(|each| each.received, |each| each.received)
            },
        }
    }

    /// True if no impairment is set.
    pub fn is_unimpaired(&self) -> bool {
        let PerDirection { sent, received } = self.impairment();
        [sent, received].into_iter().all(|one| {
            let whole = Impairment {
                reorder_delay: one.reorder_delay,
                burst_goes_on: one.burst_goes_on,
                ..Impairment::default()
            };
            one == whole
        })
    }

    /// Checks that each flag has an effect.
    ///
    /// # Errors
    /// The queue of a direction without a rate.
    pub fn check(&self) -> anyhow::Result<()> {
        let idle = |queue: Option<u32>, rate: Option<u64>| queue.is_some() && rate.is_none();
        if idle(self.wire_queue.sent, self.wire_rate.sent)
            || idle(self.wire_queue.received, self.wire_rate.received)
        {
            return Err(usage(
                "--set wire_queue has no effect on a direction without wire_rate",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        wire: WireFlags,
    }

    fn parse(line: &str) -> Result<WireFlags, clap::Error> {
        let words = ["peer"].into_iter().chain(line.split_whitespace());
        Ok(Command::try_parse_from(words)?.wire)
    }

    #[test]
    fn one_value_is_for_both_directions_and_two_are_for_each() {
        let wire = parse(
            "--loss 1%,0% --delay 10ms --wire-rate 1Mbit/s,- --burst-loss 0%,1% --burst-length 5",
        )
        .unwrap();
        let PerDirection { sent, received } = wire.impairment();
        assert_eq!((sent.loss, received.loss), (0.01, 0.0));
        assert_eq!(
            (sent.delay, received.delay),
            (Duration::from_millis(10), Duration::from_millis(10))
        );
        assert_eq!(
            (sent.rate_bits_per_s, received.rate_bits_per_s),
            (Some(1_000_000), None)
        );
        assert_eq!(
            (sent.burst, received.burst, received.burst_goes_on),
            (0.0, 0.01, 0.8)
        );
        assert!(!wire.is_unimpaired() && parse("").unwrap().is_unimpaired());
        assert!(!parse("--jitter 0s,1ms").unwrap().is_unimpaired());
    }

    #[test]
    fn what_has_no_meaning_or_no_effect_is_refused() {
        for wrong in [
            "--loss 1%,",
            "--loss 1%,2%,3%",
            "--burst-length 0.5 --burst-loss 1%",
            "--burst-length 3",
            "--wire-queue 1KiB",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(
            parse("--wire-rate 1Mbit/s,- --wire-queue 9KiB")
                .unwrap()
                .check()
                .is_err()
        );
        assert!(
            parse("--wire-rate 1Mbit/s,- --wire-queue 9KiB,-")
                .unwrap()
                .check()
                .is_ok()
        );
    }
}
