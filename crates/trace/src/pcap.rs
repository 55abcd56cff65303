//! Reader of libpcap's file format: both byte orders, timestamps in µs and ns, and Kuznetzov's
//! variant, whose packets have the number of their interface.

use std::io::Read;

use crate::bytes::{Bytes, LONGEST};
use crate::links::Link;
use crate::packet::segment_into;
use crate::read::{ReadFailure, Reading, Sink};
use crate::segment::Segment;

/// Byte order, unit of timestamps and layout of a file, from its magic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    big: bool,
    ns_per_unit: u64,
    /// Bytes before each packet: [`PACKET_HEADER`] or [`MODIFIED_HEADER`].
    packet_header: usize,
    /// True before version 2.4: the two lengths of a packet may be swapped.
    is_old: bool,
}

impl Order {
    /// Format of a file that begins with `head`. `None` if the magic number is not libpcap's.
    pub(crate) fn of(head: &[u8]) -> Option<Order> {
        let (big, ns_per_unit, packet_header) = match head.first_chunk::<4>()? {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1_000, PACKET_HEADER),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1_000, PACKET_HEADER),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1, PACKET_HEADER),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1, PACKET_HEADER),
            [0x34, 0xcd, 0xb2, 0xa1] => (false, 1_000, MODIFIED_HEADER),
            [0xa1, 0xb2, 0xcd, 0x34] => (true, 1_000, MODIFIED_HEADER),
            _ => return None,
        };
        Some(Order {
            big,
            ns_per_unit,
            packet_header,
            is_old: false,
        })
    }
}

const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// Length of Kuznetzov's packet header. After the four usual fields: interface (4), protocol (2),
/// way (1), padding.
const MODIFIED_HEADER: usize = 24;

/// Reads the packets of a file whose magic number is known.
pub(crate) fn read<R: Read>(
    bytes: &mut Bytes<R>,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), ReadFailure> {
    let held = bytes
        .fill(FILE_HEADER, sink, reading)
        .map_err(|error| ReadFailure::io(0, &error))?;
    let order = Order::of(bytes.held());
    let (Some(mut order), true) = (order, held >= FILE_HEADER) else {
        return Err(ReadFailure::new(0, "ends within the header of the file"));
    };
    let version = [4, 6].map(|at| {
        let number = u16::from_le_bytes([bytes.held()[at], bytes.held()[at + 1]]);
        if order.big {
            number.swap_bytes()
        } else {
            number
        }
    });
    order.is_old = (1..=3).contains(&version[1]) && version[0] == 2;
    // The upper bits describe frame check sequences.
    let number = u32_at::<true>(bytes.held(), 20);
    let number = if order.big {
        number
    } else {
        number.swap_bytes()
    };
    let link = Link::from_number(number & 0xffff);
    bytes.consume(FILE_HEADER);
    match (order.big, order.packet_header) {
        (false, PACKET_HEADER) => {
            packets::<R, false, PACKET_HEADER>(bytes, link, order, sink, reading)
        }
        (true, PACKET_HEADER) => {
            packets::<R, true, PACKET_HEADER>(bytes, link, order, sink, reading)
        }
        (false, _) => packets::<R, false, MODIFIED_HEADER>(bytes, link, order, sink, reading),
        (true, _) => packets::<R, true, MODIFIED_HEADER>(bytes, link, order, sink, reading),
    }
}

fn packets<R: Read, const BIG: bool, const HEADER: usize>(
    bytes: &mut Bytes<R>,
    link: Link,
    order: Order,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), ReadFailure> {
    let mut want = HEADER;
    let mut segment = Segment::unset();
    loop {
        let held = bytes
            .fill(want, sink, reading)
            .map_err(|error| ReadFailure::io(bytes.offset(), &error))?;
        if held < want {
            return match held {
                0 => Ok(()),
                _ => Err(ReadFailure::new(bytes.offset(), "ends within a packet")),
            };
        }
        let mut rest = bytes.held();
        let before = rest.len();
        want = HEADER;
        while let Some(header) = rest.first_chunk::<HEADER>() {
            let (captured, wire_len) = lengths::<BIG>(header, order);
            if captured > LONGEST - HEADER {
                let consumed = before - rest.len();
                bytes.consume(consumed);
                return Err(ReadFailure::new(
                    bytes.offset(),
                    format!("a packet of {captured} bytes"),
                ));
            }
            let Some(frame) = rest.get(HEADER..HEADER + captured) else {
                want = HEADER + captured;
                break;
            };
            let at_ns = u64::from(u32_at::<BIG>(header, 0)) * 1_000_000_000
                + u64::from(u32_at::<BIG>(header, 4)) * order.ns_per_unit;
            reading.packets += 1;
            if let Link::Unknown(number) = link {
                *reading.links_unread.entry(number).or_default() += 1;
            }
            let skipped = &mut reading.skipped;
            if segment_into(link, frame, wire_len, at_ns, skipped, &mut segment).is_some() {
                segment.frame = reading.packets;
                if HEADER == MODIFIED_HEADER {
                    segment.interface = u32_at::<BIG>(header, 16);
                }
                sink.segment(&segment);
            }
            rest = &rest[HEADER + captured..];
        }
        let consumed = before - rest.len();
        bytes.consume(consumed);
    }
}

/// Captured length and wire length of a packet. Old files may have them in either order, but the
/// captured length is never the larger one.
#[inline(always)]
fn lengths<const BIG: bool>(header: &[u8], order: Order) -> (usize, u32) {
    let (captured, wire) = (u32_at::<BIG>(header, 8), u32_at::<BIG>(header, 12));
    if order.is_old && captured > wire {
        (wire as usize, captured)
    } else {
        (captured as usize, wire)
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
