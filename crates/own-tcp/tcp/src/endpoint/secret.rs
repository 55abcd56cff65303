//! Keyed hashes for the connection table, initial sequence numbers and other values that must not
//! be guessed.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::SeqNum;
use crate::wire::FourTuple;

/// Secret key of the hashes. All values that others must not guess are derived from it.
#[derive(Clone, Copy)]
pub(super) struct Secret {
    k0: u64,
    k1: u64,
}

/// Use of a hash. The same path gives unrelated values for different uses.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Table,
    InitialSequence,
    TimestampOffset,
    Port,
    Cookie,
    CookieSecond,
}

impl Secret {
    pub(super) fn new(bytes: [u8; 16]) -> Self {
        let [k0, k1] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        });
        Self { k0, k1 }
    }

    /// SipHash-2-4 of a path, a purpose and one more word.
    pub(super) fn hash(&self, path: &FourTuple, purpose: Purpose, word: u32) -> u64 {
        let mut input = Input {
            bytes: [0; 41],
            len: 0,
        };
        for end in [path.local, path.remote] {
            match end.ip() {
                IpAddr::V4(address) => input.put(&address.octets()),
                IpAddr::V6(address) => input.put(&address.octets()),
            }
            input.put(&end.port().to_le_bytes());
        }
        input.put(&[purpose as u8]);
        input.put(&word.to_le_bytes());
        siphash(self.k0, self.k1, &input.bytes[..input.len])
    }

    /// Initial sequence number (RFC 6528 §3): M + F(path, secret), where M increments every 4 µs.
    pub(super) fn initial_sequence(&self, path: &FourTuple, since_epoch: Duration) -> SeqNum {
        let ticks = (since_epoch.as_micros() / 4) as u32;
        SeqNum::new((self.hash(path, Purpose::InitialSequence, 0) as u32).wrapping_add(ticks))
    }

    /// Offset of the timestamp clock for a pair of hosts (RFC 7323 §5.4). It is the same for all
    /// ports, so that the timestamps of a port's next connection are later than the last one's.
    pub(super) fn timestamp_offset(&self, path: &FourTuple) -> u32 {
        let mut hosts = *path;
        hosts.local.set_port(0);
        hosts.remote.set_port(0);
        self.hash(&hosts, Purpose::TimestampOffset, 0) as u32
    }
}

/// Counter that increments every 64 s, for cookies.
pub(super) fn minutes(epoch: Instant, now: Instant) -> u32 {
    (now.saturating_duration_since(epoch).as_secs() / 64) as u32
}

struct Input {
    bytes: [u8; 41],
    len: usize,
}

impl Input {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// SipHash-2-4 with a key of 16 bytes.
pub(super) fn siphash_with(key: &[u8; 16], input: &[u8]) -> u64 {
    let Secret { k0, k1 } = Secret::new(*key);
    siphash(k0, k1, input)
}

/// SipHash-2-4 (Aumasson and Bernstein 2012). Not the standard library's hasher, because that is
/// deprecated or has an unspecified number of rounds.
fn siphash(k0: u64, k1: u64, input: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let absorb = |word: u64, v: &mut [u64; 4]| {
        v[3] ^= word;
        round(v);
        round(v);
        v[0] ^= word;
    };
    let chunks = input.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    last[7] = input.len() as u8;
    for chunk in chunks {
        absorb(
            u64::from_le_bytes(chunk.try_into().unwrap_or_default()),
            &mut v,
        );
    }
    absorb(u64::from_le_bytes(last), &mut v);
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].wrapping_add(v[3]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].wrapping_add(v[1]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_siphash_paper() {
        let key: Vec<u8> = (0..16).collect();
        let secret = Secret::new(key.try_into().unwrap());
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(secret.k0, secret.k1, &input), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn the_initial_sequence_moves_on_with_time_and_differs_by_path() {
        let secret = Secret::new([7; 16]);
        let path = |port| FourTuple {
            local: ([10, 0, 0, 1], 80).into(),
            remote: ([10, 0, 0, 2], port).into(),
        };
        let at = |seconds, port| secret.initial_sequence(&path(port), Duration::from_secs(seconds));
        assert_eq!(at(1, 5).since(at(0, 5)), 250_000);
        assert_ne!(at(0, 5), at(0, 6));
    }
}
