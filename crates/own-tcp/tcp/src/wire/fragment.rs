//! Fragment of a packet (RFC 791 §3.2, RFC 8200 §4.5).

use std::net::IpAddr;

use super::ip::{self, Ecn, IpHeader};
use super::packet::{Checksum, HEADER_BYTES_MAX, Header, TCP};
use super::{DropReason, Packet};

/// Fields that identify the packet of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentKey {
    pub source: IpAddr,
    pub dest: IpAddr,
    id: u32,
}

/// Part of what follows the IP header of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Fragment {
    pub key: FragmentKey,
    /// Offset in bytes.
    pub at: usize,
    /// True if it is not the last fragment.
    pub more: bool,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
}

impl Fragment {
    /// Reads a packet that [`IpHeader::parse`] found to be a fragment. Errors: not TCP, or invalid
    /// lengths.
    pub(crate) fn parse(packet: &Packet) -> Result<Self, DropReason> {
        let whole = [packet.header.as_ref(), &packet.payload.to_vec()].concat();
        let place = ip::fragment_place(&whole)?;
        if place.protocol != TCP {
            return Err(DropReason::NotTcp);
        }
        let bytes = whole
            .get(place.body.clone())
            .ok_or(DropReason::Truncated)?
            .to_vec();
        // All fragments but the last have a multiple of eight bytes. None is empty or reaches
        // beyond 65,515 bytes.
        let uneven = place.more && !bytes.len().is_multiple_of(8);
        if uneven || bytes.is_empty() || place.at + bytes.len() > BODY_MAX {
            return Err(DropReason::BadIp);
        }
        Ok(Self {
            key: FragmentKey {
                source: place.source,
                dest: place.dest,
                id: place.id,
            },
            at: place.at,
            more: place.more,
            ecn: place.ecn,
            bytes,
        })
    }
}

/// Makes the original packet, without its IP options.
pub(crate) fn rebuild(key: &FragmentKey, ecn: Ecn, body: &[u8]) -> Packet {
    let header_bytes = IpHeader::emitted_bytes(key.dest);
    let mut header = [0; HEADER_BYTES_MAX];
    IpHeader {
        source: key.source,
        dest: key.dest,
        protocol: TCP,
        ecn,
        dscp: 0,
        header_bytes,
        body_bytes: body.len(),
    }
    .emit(&mut header);
    Packet {
        header: Header::default(),
        payload: crate::Piece::from([&header[..header_bytes], body].concat()).into(),
        checksum: Checksum::Complete,
        segment_size: 0,
    }
}

/// 65,535 bytes less the IPv4 header.
const BODY_MAX: usize = 65_515;
