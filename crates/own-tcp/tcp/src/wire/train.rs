//! Joining of received segments, as by a device with receive offload. The first segment is parsed;
//! the following ones are only compared with it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::template::Template;
use super::{Checksum, DropReason, FourTuple, Header, Packet, Segment};
use crate::Chain;

/// Segment with the segments that were joined to it.
#[derive(Debug)]
pub(crate) struct Train {
    pub path: FourTuple,
    pub segment: Segment,
    /// Headers of the next full-sized segment; `None` if none may follow.
    template: Option<Template>,
}

impl Train {
    /// Parses a packet as the start of a train, in place.
    pub(crate) fn begin<'a>(
        place: &'a mut Option<Self>,
        packet: &mut Packet,
    ) -> Result<&'a mut Self, DropReason> {
        let train = place.insert(Self {
            path: NOWHERE,
            segment: Segment::default(),
            template: None,
        });
        train.path = packet.take_apart(&mut train.segment)?;
        let segment = &train.segment;
        if segment.segment_size == 0 && !segment.payload.is_empty() && segment.may_go_on() {
            let head = packet.head();
            let total = head.len() + segment.payload.len();
            train.template = Template::of(Header::from(head), total);
        }
        Ok(train)
    }

    /// Takes the payload of the next full-sized segment if its headers match the template.
    /// Otherwise false; then nothing is changed and `packet` must be parsed.
    #[inline]
    pub(crate) fn follow(&mut self, packet: &mut Packet) -> bool {
        let Some(template) = &self.template else {
            return false;
        };
        let len = self.segment.payload.len();
        let size = self.segment.full_size();
        let head = packet.head();
        let apart = packet.header.as_ref().len();
        // The headers are either separate from the payload or in front of it.
        let start = template.len().wrapping_sub(apart);
        let whole = (apart == 0 || start == 0) && packet.payload.len() == start + size;
        if !whole
            || packet.segment_size > 0
            || !self.segment.has_room_for(size)
            || !template.matches(head, self.segment.seq + len as u32)
        {
            return false;
        }
        // Computed from the received bytes, even if the sender's sum is known.
        let is_valid = |payload: &Chain| {
            packet.checksum != Checksum::Complete || template.is_valid(head, payload.sum_of_bytes())
        };
        if start > 0 {
            let mut payload = packet.payload.slice(start..start + size);
            if !is_valid(&payload) {
                return false;
            }
            self.segment.payload.append(&mut payload);
        } else {
            if !is_valid(&packet.payload) {
                return false;
            }
            self.segment.payload.append(&mut packet.payload);
        }
        self.segment.segment_size = size as u16;
        true
    }

    /// Appends `next` if it belongs to the same connection and follows; see [`Segment::couple`].
    pub(crate) fn couple(&mut self, next: &mut Self) -> bool {
        let coupled = self.path == next.path && self.segment.couple(&mut next.segment);
        if coupled && !self.segment.may_go_on() {
            self.template = None;
        }
        coupled
    }
}

/// Placeholder until the packet is parsed.
const NOWHERE: FourTuple = FourTuple {
    local: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
    remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Flags;
    use crate::{Piece, SeqNum};
    use proptest::prelude::*;

    const SIZE: u16 = 50;

    /// Packets of five full-sized segments, each in one piece or with a separate header.
    fn packets(v6: bool, apart: bool, checksum: Checksum) -> Vec<Packet> {
        let path = FourTuple {
            local: if v6 { "[fd00::1]:80" } else { "10.0.0.1:80" }
                .parse()
                .unwrap(),
            remote: if v6 { "[fd00::2]:5" } else { "10.0.0.2:5" }
                .parse()
                .unwrap(),
        };
        let whole = Segment {
            seq: SeqNum::new(u32::MAX - 100),
            flags: Flags::ACK,
            payload: Piece::from((0..250).collect::<Vec<u8>>()).into(),
            segment_size: SIZE,
            ..Segment::default()
        };
        let emit = |part| {
            let packet = Packet::emit(&path, part, checksum);
            if apart {
                return packet;
            }
            let bytes = [packet.header.as_ref(), &packet.payload.to_vec()].concat();
            Packet {
                checksum,
                ..Packet::from_piece(bytes.into())
            }
        };
        whole.split().map(emit).collect()
    }

    fn begin(mut packet: Packet) -> Train {
        let mut place = None;
        Train::begin(&mut place, &mut packet).unwrap();
        place.unwrap()
    }

    #[test]
    fn full_segments_that_follow_each_other_are_one() {
        for (v6, apart) in [(false, false), (false, true), (true, false), (true, true)] {
            for checksum in [Checksum::Complete, Checksum::Partial, Checksum::Verified] {
                let mut packets = packets(v6, apart, checksum).into_iter();
                let mut train = begin(packets.next().unwrap());
                for mut packet in packets {
                    assert!(train.follow(&mut packet), "{v6} {apart} {checksum:?}");
                }
                let whole = train.segment;
                assert_eq!(whole.payload.to_vec(), (0..250).collect::<Vec<u8>>());
                assert_eq!(whole.segment_size, SIZE);
            }
        }
    }

    #[test]
    fn what_does_not_follow_is_left_alone() {
        let mut packets = packets(false, true, Checksum::Complete);
        let mut third = packets.remove(2);
        let mut train = begin(packets.remove(0));
        assert!(!train.follow(&mut third), "there is a gap");
        assert_eq!(third.payload.len(), usize::from(SIZE));
        let mut second = packets.remove(0);
        second.payload = second.payload.slice(0..10);
        assert!(!train.follow(&mut second), "it is cut off");
    }

    #[test]
    fn behind_what_was_pushed_nothing_follows() {
        let mut packets = packets(false, true, Checksum::Partial).into_iter();
        let mut train = begin(packets.next().unwrap());
        let mut second = begin(packets.next().unwrap());
        second.segment.flags = Flags::ACK | Flags::PSH;
        assert!(train.couple(&mut second));
        assert!(!train.follow(&mut packets.next().unwrap()));
    }

    proptest! {
        #[test]
        fn one_changed_bit_is_noticed(v6: bool, apart: bool, at: prop::sample::Index, bit in 0u8..8) {
            let mut packets = packets(v6, apart, Checksum::Complete);
            let mut train = begin(packets.remove(0));
            let packet = packets.remove(0);
            let head = packet.header.as_ref().len();
            let mut bytes = [packet.header.as_ref(), &packet.payload.to_vec()].concat();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let mut changed = Packet {
                header: Header::from(&bytes[..head]),
                payload: Piece::from(&bytes[head..]).into(),
                ..Packet::default()
            };
            prop_assert!(!train.follow(&mut changed));
            prop_assert_eq!(changed.len(), bytes.len());
        }
    }
}
