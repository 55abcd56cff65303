//! Writes a capture of 96-byte snap length for measuring readers: `generate PACKETS FLOWS > FILE`.
//!
//! Each flow sends full segments in rounds of eight, and all flows are interleaved round by round.
//! The receiver's ACK follows every second segment. Sequence numbers, TCP timestamps and ids
//! advance like a host's; packets are 1 µs apart.

use std::io::{self, BufWriter, Write};

const SNAP_LEN: usize = 96;
const PAYLOAD: u32 = 1448;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().ok());
    let (Some(Some(packets)), Some(Some(flows)), None) = (args.next(), args.next(), args.next())
    else {
        eprintln!("usage: generate PACKETS FLOWS > FILE");
        std::process::exit(2);
    };
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    out.write_all(&[
        0xd4,
        0xc3,
        0xb2,
        0xa1,
        2,
        0,
        4,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        SNAP_LEN as u8,
        0,
        0,
        0,
        1,
        0,
        0,
        0,
    ])?;
    let mut flows = vec![Flow::default(); flows.max(1) as usize];
    let mut written = 0;
    'all: loop {
        for (number, flow) in flows.iter_mut().enumerate() {
            for segment in 0..8 {
                for from_client in [true, false] {
                    // The receiver answers every second segment.
                    if !from_client && segment % 2 == 0 {
                        continue;
                    }
                    if written == packets {
                        break 'all;
                    }
                    out.write_all(&flow.packet(number as u32, from_client, written))?;
                    written += 1;
                }
            }
        }
    }
    out.flush()
}

#[derive(Clone, Default)]
struct Flow {
    sent: u32,
    ids: [u16; 2],
}

impl Flow {
    /// Record of the next packet.
    fn packet(&mut self, number: u32, from_client: bool, at_us: u64) -> Vec<u8> {
        let payload = if from_client { PAYLOAD } else { 0 };
        let wire = 14 + 20 + 32 + payload;
        let captured = (wire as usize).min(SNAP_LEN);
        let mut record = Vec::with_capacity(16 + captured);
        record.extend(((at_us / 1_000_000) as u32).to_le_bytes());
        record.extend(((at_us % 1_000_000) as u32).to_le_bytes());
        record.extend((captured as u32).to_le_bytes());
        record.extend(wire.to_le_bytes());
        record.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        let id = &mut self.ids[usize::from(from_client)];
        *id = id.wrapping_add(1);
        record.extend([0x45, 0]);
        record.extend(((20 + 32 + payload) as u16).to_be_bytes());
        record.extend(id.to_be_bytes());
        record.extend([0x40, 0, 64, 6, 0, 0]);
        let [_, above, high, low] = number.to_be_bytes();
        let client = ([10, 0, high, low], 40_000 + u16::from(above));
        let server = ([10, 1, high, low], 5001u16);
        let (source, destination) = if from_client {
            (client, server)
        } else {
            (server, client)
        };
        record.extend(source.0);
        record.extend(destination.0);
        record.extend(source.1.to_be_bytes());
        record.extend(destination.1.to_be_bytes());
        let (seq, ack) = if from_client {
            (self.sent, 1)
        } else {
            (1, self.sent)
        };
        record.extend(seq.to_be_bytes());
        record.extend(ack.to_be_bytes());
        record.extend([0x80, 0x10, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
        let stamp = (at_us / 1000) as u32;
        record.extend(stamp.to_be_bytes());
        record.extend(stamp.to_be_bytes());
        record.resize(16 + captured, 0);
        self.sent = self.sent.wrapping_add(payload);
        record
    }
}
