//! Packet: header bytes, payload pieces, and the state of checksum and segmentation offload.

use std::net::SocketAddr;

use super::ip::IpHeader;
use super::tcp::TcpHeader;
use super::{DropReason, Segment};
use crate::{Chain, Piece};

/// Addresses and ports of the two ends of a connection. In a received packet `local` is the
/// destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourTuple {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

/// Packet as a device carries it: IP and TCP headers, then payload. A device that reads everything
/// into one buffer leaves `header` empty, and the headers are at the start of the first piece.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// IP and TCP headers; empty if they are in `payload`.
    pub header: Header,
    /// Bytes after `header`.
    pub payload: Chain,
    /// State of the TCP checksum.
    pub checksum: Checksum,
    /// Payload bytes of each wire segment except the last, in a super-segment; else 0.
    pub segment_size: u16,
}

/// State of a TCP checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Full checksum in the header, which must be verified on arrival.
    #[default]
    Complete,
    /// The header holds only the sum over the pseudo-header. The device completes it when the
    /// packet leaves the machine. A received packet in this state was never on a wire.
    Partial,
    /// Verified by the device.
    Verified,
}

/// IP and TCP header bytes, stored inline: at most 40 + 60.
#[derive(Clone)]
pub struct Header {
    pub(super) bytes: [u8; HEADER_BYTES_MAX],
    pub(super) len: u8,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            bytes: [0; HEADER_BYTES_MAX],
            len: 0,
        }
    }
}

impl AsRef<[u8]> for Header {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl From<&[u8]> for Header {
    /// Takes the first 100 bytes.
    fn from(bytes: &[u8]) -> Self {
        let mut header = Self::default();
        let len = bytes.len().min(HEADER_BYTES_MAX);
        header.bytes[..len].copy_from_slice(&bytes[..len]);
        header.len = len as u8;
        header
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Header({} bytes)", self.len)
    }
}

impl Packet {
    /// Makes a packet whose bytes are all in one piece.
    pub fn from_piece(piece: Piece) -> Self {
        Self {
            payload: piece.into(),
            ..Self::default()
        }
    }

    /// Number of bytes in the packet.
    pub fn len(&self) -> usize {
        self.header.as_ref().len() + self.payload.len()
    }

    /// True if the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if the IP header says TCP. Nothing else is checked.
    pub fn is_tcp(&self) -> bool {
        let head = self.head();
        match head.first().map(|first| first >> 4) {
            Some(4) => head.get(9) == Some(&TCP),
            Some(6) => head.get(6) == Some(&TCP),
            _ => false,
        }
    }

    /// Makes the packet of `segment` from `path.local` to `path.remote`. With [`Checksum::Partial`]
    /// the payload is not read; otherwise it is summed here.
    pub fn emit(path: &FourTuple, mut segment: Segment, checksum: Checksum) -> Self {
        let mut packet = Self::default();
        packet.write(path, &mut segment, checksum);
        packet
    }

    /// Writes the packet of `segment` in place and takes its payload. A move of a packet that was
    /// just written costs 20 ns, because its loads wait for the stores.
    pub(crate) fn write(&mut self, path: &FourTuple, segment: &mut Segment, checksum: Checksum) {
        let header = &mut self.header;
        let ip_bytes = IpHeader::emitted_bytes(path.remote.ip());
        let tcp_bytes = TcpHeader::emit(
            path.local.port(),
            path.remote.port(),
            segment,
            &mut header.bytes[ip_bytes..],
        );
        let ip = IpHeader {
            source: path.local.ip(),
            dest: path.remote.ip(),
            protocol: TCP,
            ecn: segment.ecn,
            dscp: segment.dscp,
            header_bytes: ip_bytes,
            body_bytes: tcp_bytes + segment.payload.len(),
        };
        ip.emit(&mut header.bytes);
        let pseudo = ip.pseudo_sum();
        let field = if checksum == Checksum::Partial {
            pseudo.partial()
        } else {
            let tcp = &header.bytes[ip_bytes..ip_bytes + tcp_bytes];
            let headers = pseudo.add_bytes(tcp);
            headers
                .followed_by(tcp_bytes as u32, segment.payload.sum())
                .finish()
        };
        header.bytes[ip_bytes + 16..ip_bytes + 18].copy_from_slice(&field.to_be_bytes());
        header.len = (ip_bytes + tcp_bytes) as u8;
        // Swapped with an empty chain, so that nothing is dropped here.
        std::mem::swap(&mut self.payload, &mut segment.payload);
        self.checksum = checksum;
        self.segment_size = segment.segment_size;
    }

    /// Parses the packet. The headers must lie in one piece.
    ///
    /// # Errors
    /// [`DropReason`] if the packet is not a valid TCP segment.
    pub fn parse(mut self) -> Result<(FourTuple, Segment), DropReason> {
        let mut segment = Segment::default();
        Ok((self.take_apart(&mut segment)?, segment))
    }

    /// Parses without moving the packet: fills `segment`, which must be a default one, and takes
    /// the payload.
    pub(crate) fn take_apart(&mut self, segment: &mut Segment) -> Result<FourTuple, DropReason> {
        let total = self.len();
        let head = self.head();
        let ip = IpHeader::parse(head, total)?;
        if ip.protocol != TCP {
            return Err(DropReason::NotTcp);
        }
        let body = &head[ip.header_bytes..];
        let tcp = TcpHeader::parse(&body[..body.len().min(ip.body_bytes)], segment)?;
        if self.checksum == Checksum::Complete && !self.checksum_is_valid(&ip) {
            return Err(DropReason::BadTcpChecksum);
        }
        let headers = ip.header_bytes + tcp.header_bytes;
        let apart = self.header.as_ref().len();
        // A separate header must end where its length fields say.
        if apart != 0 && apart != headers {
            return Err(DropReason::BadTcp);
        }
        let (start, end) = (headers - apart, ip.header_bytes + ip.body_bytes - apart);
        if start == 0 && end == self.payload.len() {
            std::mem::swap(&mut segment.payload, &mut self.payload);
        } else {
            segment.payload = self.payload.slice(start..end);
        }
        segment.segment_size = self.segment_size;
        segment.ecn = ip.ecn;
        segment.dscp = ip.dscp;
        Ok(FourTuple {
            local: SocketAddr::new(ip.dest, tcp.dest),
            remote: SocketAddr::new(ip.source, tcp.source),
        })
    }

    /// Returns the bytes that start with the headers.
    pub(super) fn head(&self) -> &[u8] {
        match self.header.as_ref() {
            [] => self.payload.iter().next().map_or(&[], Piece::as_ref),
            header => header,
        }
    }

    fn checksum_is_valid(&self, ip: &IpHeader) -> bool {
        let mut skip = ip.header_bytes;
        let mut left = ip.body_bytes;
        let runs =
            std::iter::once(self.header.as_ref()).chain(self.payload.iter().map(Piece::as_ref));
        let body = runs.map(|run| {
            let skipped = skip.min(run.len());
            skip -= skipped;
            let run = &run[skipped..];
            let run = &run[..run.len().min(left)];
            left -= run.len();
            run
        });
        ip.pseudo_sum().add_pieces(body).is_valid()
    }
}

/// IPv6 without extension headers, and TCP with 40 bytes of options.
pub const HEADER_BYTES_MAX: usize = 100;
pub(super) const TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeqNum;
    use crate::wire::{Ecn, Flags, Options, Sum, Timestamps};
    use proptest::prelude::*;

    fn path(v6: bool) -> FourTuple {
        let (a, b) = if v6 {
            ("[fd00::1]:80", "[fd00::2]:40000")
        } else {
            ("10.0.0.1:80", "10.0.0.2:40000")
        };
        FourTuple {
            local: a.parse().unwrap(),
            remote: b.parse().unwrap(),
        }
    }

    fn swapped(path: FourTuple) -> FourTuple {
        FourTuple {
            local: path.remote,
            remote: path.local,
        }
    }

    prop_compose! {
        fn segments()(
            seq: u32, ack: u32, flags: u8, window: u16, mss: Option<u16>, shift in prop::option::of(0u8..=14),
            sack_permitted: bool, timestamps: Option<(u32, u32)>, blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=2),
            payload in prop::collection::vec(any::<u8>(), 0..3000), cut in 0usize..3000, ecn in 0u8..4, dscp in 0u8..64,
        ) -> Segment {
            let cut = cut.min(payload.len());
            let mut options = Options { mss, window_scale: shift, sack_permitted, ..Options::default() };
            options.timestamps = timestamps.map(|(value, echo)| Timestamps { value, echo });
            // SYN options and SACK blocks together would not fit.
            if mss.is_none() && shift.is_none() && !sack_permitted {
                for (a, b) in blocks { options.sack.push(SeqNum::new(a), SeqNum::new(b)); }
            }
            let flags = Flags::from_bits(flags);
            Segment {
                seq: SeqNum::new(seq),
                ack: if flags.contains(Flags::ACK) { SeqNum::new(ack) } else { SeqNum::default() },
                flags, window, options,
                payload: [Piece::from(&payload[..cut]), Piece::from(&payload[cut..])].into_iter().collect(),
                segment_size: 0,
                ecn: [Ecn::NotCapable, Ecn::Capable1, Ecn::Capable0, Ecn::Congested][usize::from(ecn)],
                dscp,
                urgent: seq as u16,
                fast_open: None,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_itself(segment in segments(), v6: bool, one_piece: bool) {
            let mut packet = Packet::emit(&path(v6), segment.clone(), Checksum::Complete);
            if one_piece {
                let bytes = [packet.header.as_ref(), &packet.payload.to_vec(), b"padding"].concat();
                packet = Packet::from_piece(bytes.into());
            }
            let (parsed_path, parsed) = packet.parse().unwrap();
            prop_assert_eq!(parsed_path, swapped(path(v6)));
            prop_assert_eq!(parsed.payload.to_vec(), segment.payload.to_vec());
            prop_assert_eq!((parsed.seq, parsed.ack, parsed.flags, parsed.window, parsed.urgent), (segment.seq, segment.ack, segment.flags, segment.window, segment.urgent));
            prop_assert_eq!((parsed.options, parsed.ecn, parsed.dscp), (segment.options, segment.ecn, segment.dscp));
        }

        #[test]
        fn one_changed_bit_is_noticed(segment in segments(), at: prop::sample::Index, bit in 0u8..8) {
            let packet = Packet::emit(&path(false), segment, Checksum::Complete);
            let mut bytes = [packet.header.as_ref(), &packet.payload.to_vec()].concat();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(Packet::from_piece(bytes.into()).parse().is_err());
        }

        #[test]
        fn no_bytes_make_the_parser_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), v6: bool, partial: bool, apart: bool) {
            if let Some(first) = bytes.first_mut() { *first = if v6 { 0x60 } else { 0x45 }; }
            // Extension headers, in most inputs that are long enough.
            if let (true, Some(next)) = (v6, bytes.get_mut(6)) { *next = [0, 43, 44, 60][usize::from(*next % 4)]; }
            let mut packet = Packet::from_piece(bytes.as_slice().into());
            if apart {
                packet = Packet { header: Header::from(bytes.as_slice()), payload: Piece::from(bytes).into(), ..Packet::default() };
            }
            packet.checksum = if partial { Checksum::Partial } else { Checksum::Complete };
            let _ = crate::wire::parse_icmp(&packet);
            let _ = crate::wire::Fragment::parse(&packet);
            let _ = packet.parse();
        }
    }

    #[test]
    fn a_partial_checksum_is_completed_by_summing_the_rest() {
        for v6 in [false, true] {
            let segment = Segment {
                payload: Piece::from(b"odd".as_slice()).into(),
                ..Segment::default()
            };
            let packet = Packet::emit(&path(v6), segment.clone(), Checksum::Partial);
            let bytes = [packet.header.as_ref(), &packet.payload.to_vec()].concat();
            let tcp = &bytes[if v6 { 40 } else { 20 }..];
            let whole = Packet::emit(&path(v6), segment, Checksum::Complete);
            let field = whole.header.as_ref()[if v6 { 56 } else { 36 }..][..2].to_vec();
            assert_eq!(
                Sum::new().add_bytes(tcp).finish().to_be_bytes().to_vec(),
                field
            );
        }
    }
}
