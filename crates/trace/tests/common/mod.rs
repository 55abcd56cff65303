//! Captures made from short scripts of packets.

#![allow(dead_code, reason = "each test file uses some of it")]

use tcpcost_trace::flag::{ACK, FIN, PSH, SYN};
use tcpcost_trace::{Analysis, Connection, DirectionCounts, Reading, Report, Settings, json, read};

/// One packet of a script.
#[derive(Debug, Clone, Default)]
pub struct Packet {
    pub at_us: u64,
    /// End that sends it; 0 is the client.
    pub from: usize,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub payload: u32,
    pub window: u16,
    pub ip_id: u16,
    pub client_port: u16,
    pub options: Vec<u8>,
    /// Number of routers passed.
    pub hops: u8,
    /// True for an IPv6 datagram.
    pub ipv6: bool,
    /// Interface, and true if this host sent the packet; for cooked captures.
    pub interface: u16,
    pub outgoing: bool,
}

/// Packets between one client and one server, with ids that count up.
#[derive(Default)]
pub struct Script {
    pub packets: Vec<Packet>,
    now_us: u64,
    ids: [u16; 2],
}

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
pub const ISN: [u32; 2] = [1000, 5000];

impl Script {
    /// Opens a connection with an MSS of 1460 in both SYNs and windows without scale; the server's
    /// answer takes 100 µs.
    pub fn open() -> Script {
        let mut script = Script::default();
        let mss = vec![2, 4, 0x05, 0xb4];
        script.after(0).raw(CLIENT, SYN, ISN[0], 0, 0).options = mss.clone();
        script
            .after(100)
            .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0)
            .options = mss;
        script.after(1).ack(CLIENT, 0);
        script
    }

    pub fn after(&mut self, us: u64) -> &mut Script {
        self.now_us += us;
        self
    }

    /// Adds any packet.
    pub fn raw(&mut self, from: usize, flags: u8, seq: u32, ack: u32, payload: u32) -> &mut Packet {
        self.ids[from] += 1;
        self.packets.push(Packet {
            at_us: self.now_us,
            from,
            flags,
            seq,
            ack,
            payload,
            window: 60_000,
            ip_id: self.ids[from],
            client_port: 40_000,
            options: Vec::new(),
            ..Packet::default()
        });
        self.packets.last_mut().unwrap()
    }

    /// Adds payload at `offset` in the sender's byte stream. None of the other end's data are
    /// acknowledged.
    pub fn data(&mut self, from: usize, offset: u32, payload: u32) -> &mut Packet {
        self.raw(
            from,
            ACK | PSH,
            ISN[from] + 1 + offset,
            ISN[1 - from] + 1,
            payload,
        )
    }

    /// Adds a pure ACK of all before `offset` in the other end's stream, from an end that sent no
    /// data.
    pub fn ack(&mut self, from: usize, offset: u32) -> &mut Packet {
        self.raw(from, ACK, ISN[from] + 1, ISN[1 - from] + 1 + offset, 0)
    }

    /// Adds a FIN at `offset`.
    pub fn fin(&mut self, from: usize, offset: u32, acked: u32) -> &mut Packet {
        self.raw(
            from,
            ACK | FIN,
            ISN[from] + 1 + offset,
            ISN[1 - from] + 1 + acked,
            0,
        )
    }

    pub fn analyse(&self) -> Vec<Connection> {
        self.analyse_of(101)
    }

    /// Analyses the packets as captured on this link type.
    pub fn analyse_of(&self, link: u32) -> Vec<Connection> {
        let mut analysis = Analysis::new(Settings::default());
        let (_, outcome) = read(&pcap_of(&self.packets, false, link)[..], &mut analysis);
        outcome.unwrap();
        analysis.finish().0
    }

    /// Counts of what an end sent, in the only connection that there must be.
    pub fn sent(&self, from: usize) -> DirectionCounts {
        self.one().directions[from].sent.clone()
    }

    pub fn one(&self) -> Connection {
        let mut connections = self.analyse();
        assert_eq!(connections.len(), 1);
        connections.remove(0)
    }
}

/// IP datagram with headers only, as a snap length cuts it.
pub fn datagram(packet: &Packet) -> Vec<u8> {
    let header = 20 + packet.options.len();
    if packet.ipv6 {
        return datagram6(packet);
    }
    let total = (20 + header) as u32 + packet.payload;
    let mut ip = vec![0x45, 0];
    ip.extend((total as u16).to_be_bytes());
    ip.extend(packet.ip_id.to_be_bytes());
    ip.extend([0x40, 0, 64 - packet.hops, 6, 0, 0]);
    let ends = [([10, 0, 0, 1], packet.client_port), ([10, 0, 0, 2], 80)];
    let (source, destination) = (ends[packet.from], ends[1 - packet.from]);
    ip.extend(source.0);
    ip.extend(destination.0);
    ip.extend(tcp(packet, source.1, destination.1));
    ip
}

/// IPv6 datagram with headers only. It has no id.
fn datagram6(packet: &Packet) -> Vec<u8> {
    let length = (20 + packet.options.len()) as u32 + packet.payload;
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend((length as u16).to_be_bytes());
    ip.extend([6, 64 - packet.hops]);
    let ends = [packet.client_port, 80];
    let address = |end: u8| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end + 1];
    ip.extend(address(packet.from as u8));
    ip.extend(address(1 - packet.from as u8));
    ip.extend(tcp(packet, ends[packet.from], ends[1 - packet.from]));
    ip
}

fn tcp(packet: &Packet, source: u16, destination: u16) -> Vec<u8> {
    let header = 20 + packet.options.len();
    let mut ip = Vec::new();
    ip.extend(source.to_be_bytes());
    ip.extend(destination.to_be_bytes());
    ip.extend(packet.seq.to_be_bytes());
    ip.extend(packet.ack.to_be_bytes());
    ip.extend([(header as u8 / 4) << 4, packet.flags]);
    ip.extend(packet.window.to_be_bytes());
    ip.extend([0, 0, 0, 0]);
    ip.extend(&packet.options);
    ip
}

/// Makes a pcap file of raw IP with timestamps in µs.
pub fn pcap(packets: &[Packet], big: bool) -> Vec<u8> {
    pcap_of(packets, big, 101)
}

/// Makes a pcap file of raw IP, or of Linux cooked packets of either version, with timestamps in
/// µs.
pub fn pcap_of(packets: &[Packet], big: bool, link: u32) -> Vec<u8> {
    let u32 = |value: u32| {
        if big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let mut file = u32(0xa1b2_c3d4).to_vec();
    file.extend([0; 12]);
    file.extend(u32(96));
    file.extend(u32(link));
    for packet in packets {
        let protocol: u16 = if packet.ipv6 { 0x86dd } else { 0x0800 };
        let way = if packet.outgoing { 4 } else { 0 };
        let mut ip = match link {
            113 => [&[0, way][..], &[0; 12], &protocol.to_be_bytes()].concat(),
            276 => {
                let head = [&protocol.to_be_bytes()[..], &[0; 4]].concat();
                [
                    &head[..],
                    &packet.interface.to_be_bytes(),
                    &[0; 2],
                    &[way],
                    &[0; 9],
                ]
                .concat()
            }
            _ => Vec::new(),
        };
        ip.extend(datagram(packet));
        file.extend(u32((packet.at_us / 1_000_000) as u32));
        file.extend(u32((packet.at_us % 1_000_000) as u32));
        file.extend(u32(ip.len() as u32));
        file.extend(u32(ip.len() as u32 + packet.payload));
        file.extend(ip);
    }
    file
}

/// Makes a pcapng file: one used interface of raw IP, timestamps in ns, and a block of statistics
/// if `dropped` is given.
pub fn pcapng(packets: &[Packet], big: bool, dropped: Option<u64>) -> Vec<u8> {
    let u32 = |value: u32| {
        if big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let u16 = |value: u16| {
        if big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let u64 = |value: u64| {
        if big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let mut file = Vec::new();
    let mut block = |kind: u32, body: Vec<u8>| {
        let length = u32(body.len() as u32 + 12);
        file.extend([&u32(kind)[..], &length, &body, &length].concat());
    };
    let mut section = u32(0x1a2b_3c4d).to_vec();
    section.extend([0; 4]);
    section.extend([0xff; 8]);
    block(0x0a0d_0d0a, section);
    // An interface that is not used, then the one that is: Ethernet in µs, raw IP in ns.
    block(1, [&u16(1)[..], &[0; 2], &u32(96)].concat());
    let resolution = [&u16(9)[..], &u16(1), &[9, 0, 0, 0], &[0; 4]].concat();
    block(1, [&u16(101)[..], &[0; 2], &u32(96), &resolution].concat());
    for packet in packets {
        let mut ip = datagram(packet);
        let captured = ip.len() as u32;
        ip.resize(ip.len().next_multiple_of(4), 0);
        let ns = packet.at_us * 1000;
        let mut body = [
            u32(1),
            u32((ns >> 32) as u32),
            u32(ns as u32),
            u32(captured),
        ]
        .concat();
        body.extend(u32(captured + packet.payload));
        body.extend(ip);
        block(6, body);
    }
    if let Some(dropped) = dropped {
        let option = [&u16(5)[..], &u16(8), &u64(dropped), &[0; 4]].concat();
        block(5, [&u32(1)[..], &[0; 8], &option].concat());
    }
    file
}

/// Report of a capture as JSON, without its format and length; and true if the capture is whole.
pub fn told(capture: &[u8]) -> (String, bool) {
    told_of(&[capture])
}

/// Report of several pieces of one capture, as [`told`] makes it.
pub fn told_of(pieces: &[&[u8]]) -> (String, bool) {
    let mut analysis = Analysis::new(Settings::default());
    let mut whole = Reading::default();
    let mut complete = true;
    for piece in pieces {
        let (reading, outcome) = read(*piece, &mut analysis);
        complete &= outcome.is_ok();
        whole.add(reading);
    }
    (whole.form, whole.bytes) = (None, 0);
    let (connections, ()) = analysis.finish();
    (
        json(&[Report::new("capture", &whole, Ok(()), &connections)]),
        complete,
    )
}
