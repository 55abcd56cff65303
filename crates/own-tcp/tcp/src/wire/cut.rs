//! Cutting of a super-segment while it is sent, for a device that does not cut.

use super::template::Template;
use super::{Checksum, Flags, FourTuple, Packet, Segment, Sum};
use crate::SeqNum;

/// Remaining part of a super-segment.
#[derive(Debug)]
pub(crate) struct Cut {
    path: FourTuple,
    checksum: Checksum,
    rest: Segment,
    /// Headers of the middle parts: not the first part, which may have CWR, nor the last.
    template: Option<Template>,
}

impl Cut {
    /// Takes the contents of `segment`, which goes from `path.local` to `path.remote`.
    pub(crate) fn new(path: FourTuple, segment: &mut Segment, checksum: Checksum) -> Self {
        Self {
            path,
            checksum,
            rest: std::mem::take(segment),
            template: None,
        }
    }

    /// Writes the next part into `packet`, which must be empty. True if more parts remain. `sum_of`
    /// returns the checksum sum over bytes of the stream if it is known.
    pub(crate) fn write_next(
        &mut self,
        packet: &mut Packet,
        sum_of: impl Fn(SeqNum, usize) -> Option<Sum>,
    ) -> bool {
        let size = usize::from(self.rest.segment_size);
        if let Some(template) = &self.template
            && self.rest.payload.len() > size
        {
            let seq = self.rest.seq;
            self.rest.seq += size as u32;
            self.rest.payload.move_front(size, &mut packet.payload);
            let summed = self.checksum == Checksum::Complete;
            let sum = summed.then(|| sum_of(seq, size).unwrap_or_else(|| packet.payload.sum()));
            template.write(&mut packet.header, seq, sum);
            packet.checksum = self.checksum;
            return true;
        }
        let first = self.rest.cut_first();
        let more = first.is_some();
        let mut part = first.unwrap_or_else(|| std::mem::take(&mut self.rest));
        if self.checksum == Checksum::Complete {
            // The sum was computed with the copy, for exactly these bytes.
            let sum = sum_of(part.seq, part.payload.len());
            part.payload.set_sum(sum);
        }
        packet.write(&self.path, &mut part, self.checksum);
        if self.rest.payload.len() > size && size > 0 {
            let mut template = Template::of(packet.header.clone(), packet.len());
            if let Some(template) = &mut template {
                let flags = self.rest.flags.without(Flags::PSH | Flags::FIN);
                template.set_flags(flags.bits());
            }
            self.template = template;
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;
    use crate::wire::{Options, Timestamps};
    use proptest::prelude::*;

    prop_compose! {
        /// Super-segments with two pieces.
        fn super_segments()(
            payload in prop::collection::vec(any::<u8>(), 1..300), cut in 0usize..300, size in 1u16..80,
            seq: u32, push: bool, fin: bool, reduced: bool, timestamps in prop::option::of(any::<(u32, u32)>()),
        ) -> Segment {
            let cut = cut.min(payload.len());
            Segment {
                seq: SeqNum::new(seq),
                flags: Flags::ACK.with(Flags::PSH, push).with(Flags::FIN, fin).with(Flags::CWR, reduced),
                options: Options {
                    timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
                    ..Options::default()
                },
                payload: [Piece::from(&payload[..cut]), Piece::from(&payload[cut..])].into_iter().collect(),
                segment_size: size,
                ..Segment::default()
            }
        }
    }

    proptest! {
        #[test]
        fn its_packets_are_those_of_the_segments_it_stands_for(
            segment in super_segments(), v6: bool, complete: bool, summed: bool,
        ) {
            let path = FourTuple {
                local: if v6 { "[fd00::1]:80" } else { "10.0.0.1:80" }.parse().unwrap(),
                remote: if v6 { "[fd00::2]:5" } else { "10.0.0.2:5" }.parse().unwrap(),
            };
            let checksum = if complete { Checksum::Complete } else { Checksum::Partial };
            let (all, start) = (segment.payload.to_vec(), segment.seq);
            let sum_of = |seq: SeqNum, bytes: usize| {
                let at = seq.since(start) as usize;
                summed.then(|| Sum::new().add_bytes(&all[at..at + bytes]))
            };
            let mut cut = Cut::new(path, &mut segment.clone(), checksum);
            let mut parts = segment.split().peekable();
            while let Some(part) = parts.next() {
                let expected = Packet::emit(&path, part, checksum);
                let mut packet = Packet::default();
                prop_assert_eq!(cut.write_next(&mut packet, sum_of), parts.peek().is_some());
                prop_assert_eq!(packet.header.as_ref(), expected.header.as_ref());
                prop_assert_eq!(packet.payload.to_vec(), expected.payload.to_vec());
                prop_assert_eq!((packet.checksum, packet.segment_size), (checksum, 0));
            }
        }
    }
}
