//! Transfer in memory for a count of instructions (`bench/instructions.py`): `count PATH SEGMENTS`,
//! where PATH is a name in [`PATHS`]. The transfer does not depend on time or chance.

use std::time::{Duration, Instant};

use tcpcost_tcp::wire::{Checksum, Packet};
use tcpcost_tcp::{AckPolicy, Config, CongestionControl, ConnId, Endpoint, Pool};

/// Name, limit of a super-segment in bytes, true if we compute checksums, bytes per write. In
/// `acks` every segment gets its own ACK.
const PATHS: [(&str, u32, bool, usize); 5] = [
    ("segments", CUT, false, 65_536),
    ("segments-summed", CUT, true, 65_536),
    ("units", 65_160, false, 65_536),
    ("acks", CUT, false, 65_536),
    ("requests", 0, false, 100),
];

/// Limit for super-segments that are cut before they leave.
const CUT: u32 = 65_161;

const MSS: usize = 1448;

/// Packets that go from one end to the other at a time.
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let usage = "usage: count segments|segments-summed|units|acks|requests COUNT";
    let [_, name, count] = &arguments[..] else {
        return Err(usage.into());
    };
    let path = PATHS.iter().find(|path| path.0 == name).ok_or(usage)?;
    let (_, supers, summed, write) = *path;
    let bytes = count.parse::<usize>()? * write.min(MSS);
    let mut config = Config {
        congestion: CongestionControl::Fixed(512 << 10),
        receive_buffer: 1 << 20,
        receive_buffer_max: 0,
        ..Config::default()
    };
    config.segmentation.super_segment_bytes_max = supers;
    if name == "acks" {
        config.ack = AckPolicy::Exactly {
            segments: 1,
            delay_max: Duration::from_millis(40),
        };
    }
    let checksum = if summed {
        Checksum::Complete
    } else {
        Checksum::Partial
    };
    Pair::new(&config, checksum)?.transfer(bytes, write)
}

struct Pair {
    ends: [Endpoint; 2],
    ids: [ConnId; 2],
    now: Instant,
}

impl Pair {
    fn new(config: &Config, checksum: Checksum) -> Result<Self, Box<dyn std::error::Error>> {
        #[allow(clippy::disallowed_methods, reason = "the one look at a clock")]
        let now = Instant::now();
        let endpoint =
            |seed| Endpoint::new(config.clone(), Pool::default(), [seed; 16], checksum, now);
        let mut ends = [endpoint(1), endpoint(2)];
        if config.segmentation.super_segment_bytes_max == CUT {
            let sums = checksum == Checksum::Partial;
            ends.iter_mut()
                .for_each(|end| end.set_offloads(sums, false));
        }
        ends[1].listen(80, 5, config.clone())?;
        let id = ends[0].connect("10.0.0.1:5000".parse()?, "10.0.0.2:80".parse()?, now)?;
        let mut batch = vec![Packet::default(); BATCH];
        for _ in 0..3 {
            pass(&mut ends, &mut batch, 0, now);
            pass(&mut ends, &mut batch, 1, now);
        }
        let accepted = ends[1].accept(80).ok_or("nothing was accepted")?;
        let ids = [id, accepted];
        Ok(Self { ends, ids, now })
    }

    fn transfer(mut self, bytes: usize, write: usize) -> Result<(), Box<dyn std::error::Error>> {
        let source = vec![7u8; write];
        let mut buffer = vec![0; 64 << 10];
        let mut batch = vec![Packet::default(); BATCH];
        let (mut written, mut read) = (0, 0);
        while read < bytes {
            self.now += Duration::from_micros(50);
            let now = self.now;
            self.ends[0].apply(self.ids[0], |connection| {
                let mut turn = 0;
                while written < bytes && turn < 256 << 10 && connection.writable() >= write {
                    written += connection.write(&source).unwrap_or(0);
                    turn += if write < MSS { 256 << 10 } else { write };
                }
            });
            pass(&mut self.ends, &mut batch, 0, now);
            self.ends[1].apply(self.ids[1], |connection| {
                while let Ok(n) = connection.read(&mut buffer, now) {
                    read += n;
                }
            });
            pass(&mut self.ends, &mut batch, 1, now);
        }
        Ok(())
    }
}

/// Moves the packets of end `from` to the other end, in batches as to a device.
fn pass(ends: &mut [Endpoint; 2], batch: &mut [Packet], from: usize, now: Instant) {
    let [a, b] = ends;
    let (from, to) = if from == 0 { (a, b) } else { (b, a) };
    loop {
        let mut places = batch.iter_mut();
        let end = places.position(|packet| !from.poll_packet_into(packet, now));
        let n = end.unwrap_or(batch.len());
        to.on_packets(&mut batch[..n], now);
        if n < batch.len() {
            break;
        }
    }
    to.on_timeout(now);
}
