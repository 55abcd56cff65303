//! SYN cookies (RFC 4987 §3.6). When a listener's backlog is full, the state of a new connection is
//! kept in the sequence number and the timestamp of the SYN-ACK instead of in memory.
//!
//! The sequence number is as in Bernstein's design and in Linux: `F(path) + client's ISN + minute
//! << 24 + (G(path, minute) + MSS index) mod 2²⁴`. The SYN's window scale and SACK option are kept
//! in the low six bits of the timestamp. Without timestamps they are not used.

use std::time::Instant;

use super::secret::{Purpose, Secret, minutes};
use crate::connection::Clock;
use crate::wire::{Flags, FourTuple, Options, Segment, Timestamps};
use crate::{Config, SeqNum};

/// Makes a SYN-ACK for `syn` from which [`recover`] can restore the connection later.
pub(super) fn answer(
    secret: &Secret,
    clock: &Clock,
    config: &Config,
    path: &FourTuple,
    syn: &Segment,
    now: Instant,
) -> Segment {
    let peer_mss = syn.options.mss.unwrap_or(536);
    let index = MSS_TABLE
        .iter()
        .rposition(|mss| *mss <= peer_mss)
        .unwrap_or(0) as u32;
    let minute = minutes(clock.epoch, now);
    let first = secret.hash(path, Purpose::Cookie, 0) as u32;
    let second =
        (secret.hash(path, Purpose::CookieSecond, minute) as u32).wrapping_add(index) & LOW;
    let cookie = first
        .wrapping_add(syn.seq.value())
        .wrapping_add(minute << 24)
        .wrapping_add(second);
    let timestamps = syn.options.timestamps.filter(|_| config.timestamps);
    let said = Said {
        window_scale: syn.options.window_scale.filter(|_| config.window_scaling),
        sack: syn.options.sack_permitted && config.sack,
    };
    let with = timestamps.is_some();
    Segment {
        seq: SeqNum::new(cookie),
        ack: syn.seq + 1,
        flags: Flags::SYN | Flags::ACK,
        window: config.receive_buffer.min(0xffff) as u16,
        options: Options {
            mss: Some(config.mss),
            window_scale: said
                .window_scale
                .filter(|_| with)
                .map(|_| config.window_shift()),
            sack_permitted: said.sack && with,
            timestamps: timestamps.map(|theirs| Timestamps {
                value: said.hide(clock.at(now)),
                echo: theirs.value,
            }),
            ..Options::default()
        },
        ..Segment::default()
    }
}

/// Restores the SYN from the `ack` that completes the handshake; `None` unless it acknowledges one
/// of our cookies from this or the last period of 64 s.
pub(super) fn recover(
    secret: &Secret,
    clock: &Clock,
    path: &FourTuple,
    ack: &Segment,
    now: Instant,
) -> Option<Segment> {
    let client = ack.seq - 1;
    let first = secret.hash(path, Purpose::Cookie, 0) as u32;
    let rest = (ack.ack - 1)
        .value()
        .wrapping_sub(first)
        .wrapping_sub(client.value());
    let age = (minutes(clock.epoch, now).wrapping_sub(rest >> 24)) & 0xff;
    if age > 1 {
        return None;
    }
    let minute = minutes(clock.epoch, now).wrapping_sub(age);
    let second = secret.hash(path, Purpose::CookieSecond, minute) as u32;
    let index = rest.wrapping_sub(second) & LOW;
    let mss = *MSS_TABLE.get(index as usize)?;
    let timestamps = ack.options.timestamps;
    let said = timestamps
        .map(|stamps| Said::find(stamps.echo))
        .unwrap_or_default();
    let options = Options {
        mss: Some(mss),
        window_scale: said.window_scale,
        sack_permitted: said.sack,
        timestamps,
        ..Options::default()
    };
    Some(Segment {
        seq: client,
        flags: Flags::SYN,
        window: ack.window,
        options,
        ..Segment::default()
    })
}

/// Options of a SYN kept in six bits of a timestamp.
#[derive(Default)]
struct Said {
    window_scale: Option<u8>,
    sack: bool,
}

impl Said {
    /// Returns the latest clock value at or before `clock` whose low six bits hold these options.
    fn hide(&self, clock: u32) -> u32 {
        let bits = u32::from(self.window_scale.unwrap_or(15)) | u32::from(self.sack) << 4;
        let value = clock & !63 | bits;
        if value > clock {
            value.wrapping_sub(64)
        } else {
            value
        }
    }

    fn find(echo: u32) -> Self {
        let shift = (echo & 15) as u8;
        Self {
            window_scale: (shift < 15).then_some(shift),
            sack: echo & 16 != 0,
        }
    }
}

const LOW: u32 = 0xff_ffff;
/// Announced MSS values that a cookie can encode, as in Linux. A smaller MSS becomes the first
/// entry.
const MSS_TABLE: [u16; 4] = [536, 1220, 1440, 1460];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    #[test]
    fn a_cookie_remembers_the_syn_for_a_minute_and_belongs_to_its_path() {
        let secret = Secret::new([3; 16]);
        let clock = Clock {
            epoch: ms(0),
            offset: 12345,
        };
        let path = FourTuple {
            local: ([10, 0, 0, 1], 80).into(),
            remote: ([10, 0, 0, 2], 5000).into(),
        };
        let options = Options {
            mss: Some(1452),
            window_scale: Some(9),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 5, echo: 0 }),
            ..Options::default()
        };
        let syn = Segment {
            seq: SeqNum::new(77),
            flags: Flags::SYN,
            options,
            ..Segment::default()
        };
        let answer = answer(
            &secret,
            &clock,
            &Config::default(),
            &path,
            &syn,
            ms(100_000),
        );
        let sent = answer.options.timestamps.unwrap();
        let ack = Segment {
            seq: syn.seq + 1,
            ack: answer.seq + 1,
            flags: Flags::ACK,
            options: Options {
                timestamps: Some(Timestamps {
                    value: 9,
                    echo: sent.value,
                }),
                ..Options::default()
            },
            ..Segment::default()
        };
        let found = recover(&secret, &clock, &path, &ack, ms(150_000)).unwrap();
        assert_eq!(found.seq, syn.seq);
        assert_eq!(found.options.mss, Some(1440));
        assert_eq!(
            (found.options.window_scale, found.options.sack_permitted),
            (Some(9), true)
        );
        assert!(
            recover(&secret, &clock, &path, &ack, ms(300_000)).is_none(),
            "too old"
        );
        let other = FourTuple {
            remote: ([10, 0, 0, 2], 5001).into(),
            ..path
        };
        assert!(recover(&secret, &clock, &other, &ack, ms(150_000)).is_none());
        let forged = Segment {
            ack: ack.ack + 9,
            ..ack
        };
        assert!(recover(&secret, &clock, &path, &forged, ms(150_000)).is_none());
    }
}
