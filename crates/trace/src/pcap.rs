//! libpcap's file format: both byte orders, stamps in µs and ns.

use std::io::Read;

use crate::bytes::{Bytes, LONGEST};
use crate::packet::{Link, segment};
use crate::read::{Broken, Reading, Sink};

/// Byte order and unit of a file's stamps, told by its magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    big: bool,
    ns_per_unit: u64,
}

impl Order {
    /// Of a file that begins so.
    pub(crate) fn of(head: &[u8]) -> Option<Order> {
        let (big, ns_per_unit) = match head.first_chunk::<4>()? {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            _ => return None,
        };
        Some(Order { big, ns_per_unit })
    }
}

const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// Reads the packets of a file whose magic is known.
pub(crate) fn read<R: Read>(
    bytes: &mut Bytes<R>,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), Broken> {
    let held = bytes
        .fill(FILE_HEADER, sink, reading)
        .map_err(|error| Broken::io(0, &error))?;
    let order = Order::of(bytes.held());
    let (Some(order), true) = (order, held >= FILE_HEADER) else {
        return Err(Broken::new(0, "ends within the header of the file"));
    };
    // The upper bits tell of frame check sequences.
    let number = u32_at::<true>(bytes.held(), 20);
    let number = if order.big {
        number
    } else {
        number.swap_bytes()
    };
    let link = Link::from_number(number & 0xffff);
    bytes.consume(FILE_HEADER);
    if order.big {
        packets::<R, true>(bytes, link, order.ns_per_unit, sink, reading)
    } else {
        packets::<R, false>(bytes, link, order.ns_per_unit, sink, reading)
    }
}

fn packets<R: Read, const BIG: bool>(
    bytes: &mut Bytes<R>,
    link: Link,
    ns_per_unit: u64,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), Broken> {
    let mut want = PACKET_HEADER;
    loop {
        let held = bytes
            .fill(want, sink, reading)
            .map_err(|error| Broken::io(bytes.offset(), &error))?;
        if held < want {
            return match held {
                0 => Ok(()),
                _ => Err(Broken::new(bytes.offset(), "ends within a packet")),
            };
        }
        let mut rest = bytes.held();
        let before = rest.len();
        want = PACKET_HEADER;
        while let Some(header) = rest.first_chunk::<PACKET_HEADER>() {
            let captured = u32_at::<BIG>(header, 8) as usize;
            if captured > LONGEST - PACKET_HEADER {
                let consumed = before - rest.len();
                bytes.consume(consumed);
                return Err(Broken::new(
                    bytes.offset(),
                    format!("a packet of {captured} bytes"),
                ));
            }
            let Some(frame) = rest.get(PACKET_HEADER..PACKET_HEADER + captured) else {
                want = PACKET_HEADER + captured;
                break;
            };
            let at_ns = u64::from(u32_at::<BIG>(header, 0)) * 1_000_000_000
                + u64::from(u32_at::<BIG>(header, 4)) * ns_per_unit;
            reading.packets += 1;
            let wire_len = u32_at::<BIG>(header, 12);
            if let Some(segment) = segment(link, frame, wire_len, at_ns, &mut reading.skipped) {
                sink.segment(&segment);
            }
            rest = &rest[PACKET_HEADER + captured..];
        }
        let consumed = before - rest.len();
        bytes.consume(consumed);
    }
}

#[inline(always)]
fn u32_at<const BIG: bool>(bytes: &[u8], at: usize) -> u32 {
    let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if BIG {
        u32::from_be_bytes(word)
    } else {
        u32::from_le_bytes(word)
    }
}
