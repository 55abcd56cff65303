//! pcapng files, written with one section, one interface and times in nanoseconds
//! (draft-ietf-opsawg-pcapng). `tcpcost-trace` reads them.

use std::io::{self, Write};

/// Fields of a file that precede the packets.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a> {
    /// LINKTYPE of every packet.
    pub link_type: u16,
    /// Limit of bytes kept per packet; 0 keeps all.
    pub snap_len: u32,
    /// Comment on the whole file; empty for none.
    pub comment: &'a str,
    /// Name of the interface; empty for none.
    pub interface: &'a str,
}

/// LINKTYPE_RAW: IPv4 or IPv6, distinguished by the first four bits.
pub const RAW: u16 = 101;

impl Default for Header<'_> {
    /// Header for whole IP packets, without comment and interface name.
    fn default() -> Self {
        Header {
            link_type: RAW,
            snap_len: 0,
            comment: "",
            interface: "",
        }
    }
}

/// Fields of a packet other than its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Time since 1970 in ns.
    pub at_ns: u64,
    /// Length of the whole packet in bytes; fewer may be kept.
    pub len: u32,
    /// Direction; `None` if unknown.
    pub direction: Option<Direction>,
    /// Comment on the packet; empty for none.
    pub comment: &'a str,
}

/// Direction of a packet (epb_flags).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Received by this host.
    Inbound = 1,
    /// Sent by this host.
    Outbound = 2,
}

/// Writer of a file, block by block. Each block is one `write_all`.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    snap_len: usize,
    packets: u64,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// Fails if the header cannot be written.
    pub fn new(mut to: W, header: Header<'_>) -> io::Result<Self> {
        let mut blocks = Vec::new();
        // Section header: byte order, version 1.0, length unknown.
        block(&mut blocks, 0x0a0d_0d0a, |body| {
            body.extend(0x1a2b_3c4du32.to_le_bytes());
            body.extend([1, 0, 0, 0]);
            body.extend(u64::MAX.to_le_bytes());
            texts(body, &[(1, header.comment)]);
        });
        // Interface: times in nanoseconds (if_tsresol 9).
        block(&mut blocks, 1, |body| {
            body.extend(header.link_type.to_le_bytes());
            body.extend([0; 2]);
            body.extend(header.snap_len.to_le_bytes());
            option(body, 9, &[9]);
            texts(body, &[(2, header.interface)]);
        });
        to.write_all(&blocks)?;
        Ok(Writer {
            to,
            snap_len: match header.snap_len {
                0 => usize::MAX,
                most => most as usize,
            },
            packets: 0,
            block: Vec::new(),
        })
    }

    /// Adds a packet, given as consecutive pieces.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn packet<'b>(
        &mut self,
        packet: Packet<'_>,
        pieces: impl Iterator<Item = &'b [u8]>,
    ) -> io::Result<()> {
        let mut left = self.snap_len;
        self.packets += 1;
        self.block.clear();
        block(&mut self.block, 6, |body| {
            body.extend(0u32.to_le_bytes());
            body.extend(((packet.at_ns >> 32) as u32).to_le_bytes());
            body.extend((packet.at_ns as u32).to_le_bytes());
            let kept_at = body.len();
            body.extend([0; 4]);
            body.extend(packet.len.to_le_bytes());
            let start = body.len();
            for piece in pieces {
                let kept = &piece[..piece.len().min(left)];
                body.extend_from_slice(kept);
                left -= kept.len();
            }
            let kept = (body.len() - start) as u32;
            body[kept_at..kept_at + 4].copy_from_slice(&kept.to_le_bytes());
            pad(body);
            if let Some(direction) = packet.direction {
                option(body, 2, &(direction as u32).to_le_bytes());
            }
            if packet.direction.is_some() || !packet.comment.is_empty() {
                texts(body, &[(1, packet.comment)]);
            }
        });
        self.to.write_all(&self.block)
    }

    /// Packets written so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Ends the file. `dropped` is the number of packets missing from it (isb_osdrop), if known;
    /// then a statistics block with the time `at_ns` is written.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn finish(mut self, at_ns: u64, dropped: Option<u64>) -> io::Result<W> {
        if let Some(dropped) = dropped {
            self.block.clear();
            block(&mut self.block, 5, |body| {
                body.extend(0u32.to_le_bytes());
                body.extend(((at_ns >> 32) as u32).to_le_bytes());
                body.extend((at_ns as u32).to_le_bytes());
                option(body, 7, &dropped.to_le_bytes());
                option(body, 0, &[]);
            });
            self.to.write_all(&self.block)?;
        }
        self.to.flush()?;
        Ok(self.to)
    }
}

/// Writes a block with its length at both ends.
fn block(to: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend(kind.to_le_bytes());
    to.extend([0; 4]);
    fill(to);
    pad(to);
    let len = (to.len() - start + 4) as u32;
    to.extend(len.to_le_bytes());
    to[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}

/// Writes the non-empty texts as options, then the end of options.
fn texts(to: &mut Vec<u8>, options: &[(u16, &str)]) {
    for (code, text) in options.iter().filter(|(_, text)| !text.is_empty()) {
        option(to, *code, text.as_bytes());
    }
    option(to, 0, &[]);
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    to.extend(code.to_le_bytes());
    to.extend((value.len() as u16).to_le_bytes());
    to.extend(value);
    pad(to);
}

/// Pads to a multiple of four. Blocks start at multiples of four, so padding can count from the
/// start of `to`.
fn pad(to: &mut Vec<u8>) {
    to.resize(to.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(file: &[u8]) -> Vec<(u32, &[u8])> {
        let (mut at, mut blocks) = (0, Vec::new());
        while at < file.len() {
            let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            let len = word(at + 4) as usize;
            assert_eq!(word(at + len - 4) as usize, len);
            blocks.push((word(at), &file[at + 8..at + len - 4]));
            at += len;
        }
        blocks
    }

    #[test]
    fn a_file_says_what_was_asked_keeps_the_snap_length_and_ends_with_the_drops() {
        let header = Header {
            snap_len: 3,
            comment: "cell x",
            interface: "tc-tap",
            ..Header::default()
        };
        let mut writer = Writer::new(Vec::new(), header).unwrap();
        let packet = Packet {
            at_ns: 5_000_000_007,
            len: 60,
            direction: None,
            comment: "",
        };
        let pieces: [&[u8]; 3] = [&[1, 2], &[], &[3, 4, 5]];
        writer.packet(packet, pieces.into_iter()).unwrap();
        assert_eq!(writer.packets(), 1);
        let file = writer.finish(9, Some(77)).unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 5]);
        assert!(String::from_utf8_lossy(blocks[0].1).contains("cell x"));
        assert!(String::from_utf8_lossy(blocks[1].1).contains("tc-tap"));
        assert_eq!(&blocks[1].1[..8], [101, 0, 0, 0, 3, 0, 0, 0]);
        let kept = [3, 0, 0, 0, 60, 0, 0, 0, 1, 2, 3, 0];
        assert_eq!(&blocks[2].1[12..], kept);
        assert_eq!(&blocks[3].1[12..24], [7, 0, 8, 0, 77, 0, 0, 0, 0, 0, 0, 0]);
    }
}
