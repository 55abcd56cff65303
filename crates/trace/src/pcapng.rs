//! Reader of pcapng: sections of either byte order, any number of interfaces, timestamps of any
//! resolution.

use std::io::Read;

use crate::bytes::{Bytes, LONGEST};
use crate::links::Link;
use crate::packet::segment_into;
use crate::read::{ReadFailure, Reading, Sink};
use crate::segment::Segment;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Interface of a section.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Link,
    snap_len: u32,
    resolution: Resolution,
    /// Offset added to every timestamp, s.
    offset_s: i64,
    dropped: Option<u64>,
}

/// Unit of an interface's timestamps.
#[derive(Debug, Clone, Copy)]
enum Resolution {
    /// Length of a unit, ns.
    Ns(u64),
    /// Units in a second.
    PerSecond(u64),
}

impl Resolution {
    /// Resolution of option if_tsresol: a power of 10, or of 2 if the high bit is set. `None` if it
    /// does not fit 64 bits.
    fn from_option(value: u8) -> Option<Resolution> {
        let exponent = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            return 1u64.checked_shl(exponent).map(Resolution::PerSecond);
        }
        match exponent {
            0..=9 => Some(Resolution::Ns(10u64.pow(9 - exponent))),
            10..=19 => Some(Resolution::PerSecond(10u64.pow(exponent))),
            _ => None,
        }
    }

    fn ns(self, units: u64) -> u64 {
        match self {
            Resolution::Ns(ns) => units.saturating_mul(ns),
            Resolution::PerSecond(per_second) => {
                let ns = u128::from(units) * 1_000_000_000 / u128::from(per_second);
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Reads the blocks of a file that begins with a section header.
pub(crate) fn read<R: Read>(
    bytes: &mut Bytes<R>,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), ReadFailure> {
    let mut section = Section::default();
    while let Some((kind, length)) = section.next_block(bytes, sink, reading)? {
        let block = &bytes.held()[..length];
        let body = Fields {
            bytes: &block[8..length - 4],
            big: section.big,
        };
        let offset = bytes.offset();
        section
            .on_block(kind, body, sink, reading)
            .map_err(|what| ReadFailure::new(offset, what))?;
        bytes.consume(length);
    }
    Ok(())
}

/// State of the current section.
#[derive(Debug, Default)]
struct Section {
    /// True if the section is big-endian.
    big: bool,
    interfaces: Vec<Interface>,
}

impl Section {
    /// Reads the next block whole, and returns its kind and length. A section header sets the byte
    /// order. `None` at the end of the file.
    #[inline]
    fn next_block<R: Read>(
        &mut self,
        bytes: &mut Bytes<R>,
        sink: &mut impl Sink,
        reading: &mut Reading,
    ) -> Result<Option<(u32, usize)>, ReadFailure> {
        let offset = bytes.offset();
        let broken = |what: &str| Err(ReadFailure::new(offset, what));
        let mut fill = |bytes: &mut Bytes<R>, length| {
            let held = bytes.fill(length, sink, reading);
            held.map_err(|error| ReadFailure::io(offset, &error))
        };
        let held = fill(bytes, 12)?;
        let head = match bytes.held().first_chunk::<12>() {
            Some(head) => *head,
            None if held == 0 => return Ok(None),
            None => return broken("ends within a block"),
        };
        if head[..4] == SECTION.to_be_bytes() {
            self.big = match &head[8..12] {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                _ => return broken("a section header without byte order"),
            };
        }
        let fields = Fields {
            bytes: &head,
            big: self.big,
        };
        let kind = fields.u32(0).unwrap_or(0);
        let length = fields.u32(4).unwrap_or(0) as usize;
        if length < 12 || !length.is_multiple_of(4) || length > LONGEST {
            return broken(&format!("a block of {length} bytes"));
        }
        if fill(bytes, length)? < length {
            return broken("ends within a block");
        }
        Ok(Some((kind, length)))
    }

    /// Handles a block. The error says what is wrong with it.
    #[inline]
    fn on_block(
        &mut self,
        kind: u32,
        body: Fields<'_>,
        sink: &mut impl Sink,
        reading: &mut Reading,
    ) -> Result<(), &'static str> {
        match kind {
            SECTION => self.interfaces.clear(),
            INTERFACE => self
                .interfaces
                .push(interface(body).ok_or("a short description of an interface")?),
            ENHANCED_PACKET | OLD_PACKET | SIMPLE_PACKET => {
                let packet = packet(kind, body, &self.interfaces)
                    .ok_or("a packet block of lengths that cannot be, or of no interface")?;
                on_packet(packet, sink, reading);
            }
            STATISTICS => self.on_statistics(body, reading),
            _ => {}
        }
        Ok(())
    }

    /// Counts the packets that an interface dropped. The counts are totals of the interface: a
    /// later block replaces an earlier one.
    fn on_statistics(&mut self, body: Fields<'_>, reading: &mut Reading) {
        let index = body.u32(0);
        let Some(of) = index.and_then(|index| self.interfaces.get_mut(index as usize)) else {
            return;
        };
        let dropped = [5, 7].map(|code| body.option(12, code).and_then(|option| option.u64(0)));
        if dropped.iter().all(Option::is_none) {
            return;
        }
        let now = dropped.iter().flatten();
        let now = now.fold(0u64, |sum, n| sum.saturating_add(*n));
        let total = reading.dropped_by_capture.unwrap_or(0);
        let others = total.saturating_sub(of.dropped.unwrap_or(0));
        reading.dropped_by_capture = Some(others.saturating_add(now));
        of.dropped = Some(now);
    }
}

/// Counts a packet, and passes its segment on.
#[inline]
fn on_packet(packet: PacketBlock<'_>, sink: &mut impl Sink, reading: &mut Reading) {
    let PacketBlock {
        link,
        frame,
        wire_len,
        at_ns,
        interface,
    } = packet;
    reading.packets += 1;
    if let Link::Unknown(number) = link {
        *reading.links_unread.entry(number).or_default() += 1;
    }
    let mut segment = Segment::unset();
    let (stamp_ns, skipped) = (at_ns.unwrap_or(0), &mut reading.skipped);
    if segment_into(link, frame, wire_len, stamp_ns, skipped, &mut segment).is_some() {
        segment.at_ns = at_ns;
        segment.frame = reading.packets;
        // On the interface `any`, which is all of a host's, the packet itself names its interface.
        segment.interface |= interface << 16;
        sink.segment(&segment);
    }
}

fn interface(body: Fields<'_>) -> Option<Interface> {
    let resolution = body
        .option(8, 9)
        .and_then(|option| option.bytes.first().copied());
    Some(Interface {
        link: Link::from_number(u32::from(body.u16(0)?)),
        snap_len: body.u32(4)?,
        resolution: match resolution {
            Some(value) => Resolution::from_option(value)?,
            None => Resolution::Ns(1_000),
        },
        offset_s: body
            .option(8, 14)
            .and_then(|option| option.u64(0))
            .unwrap_or(0)
            .cast_signed(),
        dropped: None,
    })
}

struct PacketBlock<'a> {
    link: Link,
    frame: &'a [u8],
    wire_len: u32,
    at_ns: Option<u64>,
    interface: u32,
}

#[inline]
fn packet<'a>(kind: u32, body: Fields<'a>, interfaces: &[Interface]) -> Option<PacketBlock<'a>> {
    if kind == SIMPLE_PACKET {
        let of = interfaces.first()?;
        let wire_len = body.u32(0)?;
        let data = body.bytes.get(4..)?;
        let limit = if of.snap_len == 0 {
            u32::MAX
        } else {
            of.snap_len
        };
        let frame = &data[..data.len().min(wire_len.min(limit) as usize)];
        return Some(PacketBlock {
            link: of.link,
            frame,
            wire_len,
            at_ns: None,
            interface: 0,
        });
    }
    let index = match kind {
        ENHANCED_PACKET => body.u32(0)?,
        _ => u32::from(body.u16(0)?),
    };
    let of = interfaces.get(index as usize)?;
    let units = u64::from(body.u32(4)?) << 32 | u64::from(body.u32(8)?);
    let captured = body.u32(12)? as usize;
    let frame = body.bytes.get(20..20usize.checked_add(captured)?)?;
    let at_ns = of
        .resolution
        .ns(units)
        .saturating_add_signed(of.offset_s.saturating_mul(1_000_000_000));
    Some(PacketBlock {
        link: of.link,
        frame,
        wire_len: body.u32(16)?,
        at_ns: Some(at_ns),
        interface: index,
    })
}

/// Fields of a block.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl<'a> Fields<'a> {
    #[inline]
    fn u16(self, at: usize) -> Option<u16> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    #[inline]
    fn u32(self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn u64(self, at: usize) -> Option<u64> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big {
            u64::from_be_bytes(bytes)
        } else {
            u64::from_le_bytes(bytes)
        })
    }

    /// Value of the first option with this code. `at`: offset of the first option.
    fn option(self, mut at: usize, code: u16) -> Option<Fields<'a>> {
        loop {
            let (found, length) = (self.u16(at)?, usize::from(self.u16(at + 2)?));
            if found == 0 {
                return None;
            }
            if found == code {
                return Some(Fields {
                    bytes: self.bytes.get(at + 4..at + 4 + length)?,
                    big: self.big,
                });
            }
            at += 4 + length.next_multiple_of(4);
        }
    }
}
