//! Compares three methods at both ends of a veth pair: the meter `segments`, the kernel's own counters and a
//! capture (AF_PACKET) must count the same segments, bytes and pure ACKs. docs/method.md says where they may
//! differ. Needs root and ip(8), else it is skipped.
#![cfg(feature = "bpf")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use tcpcost_counts::{Counts, MeterName, Quantity as Q};
use tcpcost_meter::Meter;
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::{self, Pausable};
use tcpcost_meter::netstat::Netstat;
use tcpcost_testbed::{in_namespace, skip, thread_id, unless_missed};

const PORT: u16 = 5001;

#[test]
fn ebpf_counters_and_a_capture_agree_at_both_ends_of_a_wire() {
    if Command::new("ip").arg("-V").output().is_err() {
        return skip("needs ip, of the package iproute2");
    }
    // Super-segments with a copy of the programs for each end, then one skb per segment with shared programs.
    for (settings, shares) in [(&[][..], false), (&["gso_max_segs", "1"], true)] {
        for (near, far) in [("10.9.0.1", "10.9.0.2"), ("fd09::1", "fd09::2")] {
            unless_missed(|| exchange(near, far, settings, shares));
        }
    }
}

/// Messages both ways, counted by all three methods at both ends. `None` if eBPF missed something.
fn exchange(near: &str, far: &str, settings: &[&str], shares: bool) -> Option<()> {
    let (to_server, from_client) = mpsc::channel();
    let (to_client, from_server) = mpsc::channel();
    let (lends, borrows) = mpsc::channel();
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            in_namespace(move || server(&Peer(to_client, from_client), far, &borrows)).flatten()
        });
        let client = scope.spawn(move || {
            let lend = |handle| lends.send(handle).unwrap();
            let peer = Peer(to_server, from_server);
            let work = move || {
                client(&peer, near, far, settings, |handle: Option<String>| {
                    lend(handle.filter(|_| shares))
                })
            };
            in_namespace(work).flatten()
        });
        let (client, server) = (client.join().unwrap(), server.join().unwrap());
        let (Some(client), Some(server)) = (client, server) else {
            return Some(()); // Skipped.
        };
        println!("{near} {settings:?}: {client:?} {server:?}");
        for seen in [&client, &server] {
            seen.check()?;
        }
        // A veth pair loses packets only if its backlog is full, and these are retransmitted.
        let again = client.kernel[&Q::SegmentsRetransmitted] * 65_536;
        let sent = client.ebpf[&Q::DataSkbBytesSent];
        let received = server.ebpf[&Q::DataSkbBytesReceived];
        assert!((received..=received + again).contains(&sent));
        assert!(received >= BYTES);
        Some(())
    })
}

const BYTES: u64 = 200 * (65_536 + 1);

/// Channels to the other end's thread.
struct Peer(Sender<u32>, Receiver<u32>);

impl Peer {
    /// Sends a word and waits for the other end's. `None` if the other end has ended.
    fn meet(&self, word: u32) -> Option<u32> {
        self.0.send(word).ok()?;
        self.1.recv().ok()
    }
}

/// The end that makes the veth pair, and sends.
fn client(
    peer: &Peer,
    address: &str,
    far: &str,
    settings: &[&str],
    lend: impl FnOnce(Option<String>),
) -> Option<Seen> {
    let thread = peer.meet(0)?.to_string();
    let pair = ["type", "veth", "peer", "name", "far", "netns", &thread];
    ip(&[&["link", "add", "near"], &pair[..]].concat());
    if !settings.is_empty() {
        ip(&[&["link", "set", "near"], settings].concat());
    }
    up("near", address);
    peer.meet(0)?; // The veth pair exists.
    peer.meet(0)?; // The other end listens.
    let far = SocketAddr::new(far.parse().unwrap(), PORT);
    let mut stream = TcpStream::connect(far).unwrap();
    let mut end = End::new("near", None)?;
    lend(end.meter.handle());
    let before = end.settled();
    peer.meet(0)?;
    for length in [65_536, 1].repeat(200) {
        stream.write_all(&vec![7; length]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    let after = end.settled();
    peer.meet(0)?; // The connection may be closed from now on.
    Some(Seen::between(&before, &after))
}

/// The end that answers each message with a byte.
fn server(peer: &Peer, address: &str, borrows: &Receiver<Option<String>>) -> Option<Seen> {
    peer.meet(thread_id())?;
    peer.meet(0)?;
    up("far", address);
    let listener = TcpListener::bind(SocketAddr::new(address.parse().unwrap(), PORT)).unwrap();
    peer.meet(0)?;
    let (mut stream, _) = listener.accept().unwrap();
    let mut end = End::new("far", borrows.recv().ok()?)?;
    let before = end.settled();
    peer.meet(0)?;
    let mut buffer = vec![0; 65_536];
    for length in [65_536, 1].repeat(200) {
        stream.read_exact(&mut buffer[..length]).unwrap();
        stream.write_all(&[1]).unwrap();
    }
    let after = end.settled();
    peer.meet(0)?;
    Some(Seen::between(&before, &after))
}

fn up(device: &str, address: &str) {
    let (prefix, nodad): (_, &[&str]) = match address.contains(':') {
        true => (64, &["nodad"]),
        false => (24, &[]),
    };
    let address = format!("{address}/{prefix}");
    ip(&[&["address", "add", &address, "dev", device], nodad].concat());
    ip(&["link", "set", device, "up"]);
}

/// Runs ip(8) in this thread's namespace, which a child inherits.
fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {output:?}");
}

/// Counts of each method at an instant.
struct Moment {
    ebpf: tcpcost_counts::Snapshot,
    kernel: tcpcost_counts::Snapshot,
    capture: [Captured; 2],
}

struct End {
    meter: Box<dyn Pausable + Send>,
    netstat: Netstat,
    capture: Capture,
}

impl End {
    /// Opens the three methods. Shares the programs of `handle` if there is one.
    fn new(device: &str, handle: Option<String>) -> Option<End> {
        let is_lent = handle.is_some();
        let scope = Scope {
            namespaces: 2,
            loaded: handle
                .map(|handle| (MeterName::Segments, handle))
                .into_iter()
                .collect(),
            ..Scope::default()
        };
        let meter = match bpf::load(MeterName::Segments, &scope) {
            Ok(meter) => {
                assert_eq!(meter.handle().is_none(), is_lent, "one copy has one owner");
                meter
            }
            Err(error) if error.needs().is_some() => {
                tcpcost_testbed::skip(&error.to_string());
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        Some(End {
            meter,
            netstat: Netstat::default(),
            capture: Capture::new(device).unwrap(),
        })
    }

    /// Reads all three at an instant when nothing is sent or received.
    fn settled(&mut self) -> Moment {
        loop {
            self.capture.take();
            let ebpf = self.meter.snapshot().unwrap();
            let kernel = self.netstat.snapshot().unwrap();
            let later = self.meter.snapshot().unwrap();
            let capture = self.capture.totals;
            self.capture.take();
            if ebpf.totals == later.totals && capture == self.capture.totals {
                return Moment {
                    ebpf,
                    kernel,
                    capture,
                };
            }
        }
    }
}

/// Counts of one end's three methods.
#[derive(Debug)]
struct Seen {
    ebpf: Counts,
    kernel: Counts,
    sent: Captured,
    received: Captured,
}

impl Seen {
    fn between(before: &Moment, after: &Moment) -> Seen {
        let growth = |after: &tcpcost_counts::Snapshot, before| {
            let mut readings = after.since(before).unwrap();
            readings.remove(0).counts.into()
        };
        let [sent, received] = [0, 1].map(|way| after.capture[way].minus(before.capture[way]));
        Seen {
            ebpf: growth(&after.ebpf, &before.ebpf),
            kernel: growth(&after.kernel, &before.kernel),
            sent,
            received,
        }
    }

    /// Compares the methods. `None` if eBPF missed something.
    fn check(&self) -> Option<()> {
        let ebpf = |quantity| self.ebpf[&quantity];
        let by_ebpf = [
            [
                Q::DataSkbsSent,
                Q::DataWireSegmentsSent,
                Q::DataSkbBytesSent,
                Q::PureAcksSent,
            ],
            [
                Q::DataSkbsReceived,
                Q::DataWireSegmentsReceived,
                Q::DataSkbBytesReceived,
                Q::PureAcksReceived,
            ],
        ];
        let by_capture = [self.sent, self.received];
        let of = |one: Captured| [one.skbs, one.segments, one.bytes, one.pure_acks];
        let (by_ebpf, by_capture) = (by_ebpf.map(|way| way.map(ebpf)), by_capture.map(of));
        for (ebpf, capture) in by_ebpf.iter().flatten().zip(by_capture.iter().flatten()) {
            assert!(ebpf <= capture, "{self:?}");
        }
        let is_whole = by_ebpf == by_capture;

        let kernel = |quantity| self.kernel[&quantity];
        let [sent, received] = [self.sent, self.received];
        assert_eq!(
            kernel(Q::SegmentsSent) + kernel(Q::SegmentsRetransmitted),
            sent.segments + sent.pure_acks,
            "{self:?}"
        );
        assert_eq!(
            kernel(Q::SuperSegmentsReceived),
            received.skbs + received.pure_acks,
            "{self:?}"
        );
        // IP's own counters include packets of other protocols, such as neighbour discovery.
        for (way, packets, octets) in [
            (sent, Q::IpPacketsSent, Q::IpOctetsSent),
            (received, Q::IpPacketsReceived, Q::IpOctetsReceived),
        ] {
            let tcp = way.skbs + way.pure_acks;
            let most = tcp + way.other_packets;
            assert!((tcp..=most).contains(&kernel(packets)), "{self:?}");
            let most = way.octets + way.other_octets;
            assert!((way.octets..=most).contains(&kernel(octets)), "{self:?}");
        }
        is_whole.then_some(())
    }
}

/// Counts of a capture in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Captured {
    /// Number of skbs with payload.
    skbs: u64,
    segments: u64,
    bytes: u64,
    pure_acks: u64,
    /// IP octets of all TCP packets.
    octets: u64,
    /// IP packets of other protocols.
    other_packets: u64,
    other_octets: u64,
}

impl Captured {
    fn minus(self, other: Captured) -> Captured {
        Captured {
            skbs: self.skbs - other.skbs,
            segments: self.segments - other.segments,
            bytes: self.bytes - other.bytes,
            pure_acks: self.pure_acks - other.pure_acks,
            octets: self.octets - other.octets,
            other_packets: self.other_packets - other.other_packets,
            other_octets: self.other_octets - other.other_octets,
        }
    }

    /// Adds a frame without its link-layer header. A `gso_size` of 0 means one segment.
    fn add(&mut self, packet: &[u8], length: usize, gso_size: usize) {
        let is_ipv6 = packet[0] >> 4 == 6;
        let (network, protocol) = if is_ipv6 {
            (40, packet[6])
        } else {
            (20, packet[9])
        };
        if protocol != 6 {
            self.other_packets += 1;
            self.other_octets += length as u64;
            return;
        }
        let payload = length - network - usize::from(packet[network + 12] >> 4) * 4;
        self.octets += length as u64;
        if payload == 0 {
            self.pure_acks += 1;
            return;
        }
        self.skbs += 1;
        self.bytes += payload as u64;
        self.segments += if gso_size == 0 {
            1
        } else {
            payload.div_ceil(gso_size)
        } as u64;
    }
}

/// A packet socket on one device.
struct Capture {
    socket: File,
    /// Counts of sent and of received packets.
    totals: [Captured; 2],
}

impl Capture {
    fn new(device: &str) -> io::Result<Capture> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let name = std::ffi::CString::new(device)?;
        // SAFETY: the name is terminated; an all-zero address is valid; every pointer is of a value that
        // outlives its call and is as long as the call is told; the descriptor is new and ours.
        unsafe {
            let protocol = (libc::ETH_P_ALL as u16).to_be();
            let socket = libc::socket(libc::AF_PACKET, kind, i32::from(protocol));
            if socket < 0 {
                return Err(io::Error::last_os_error());
            }
            let socket = File::from_raw_fd(socket);
            for (level, option, value) in [
                (libc::SOL_PACKET, PACKET_VNET_HDR, 1),
                (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20),
            ] {
                let value: libc::c_int = value;
                let length = size_of_val(&value) as libc::socklen_t;
                let pointer = (&raw const value).cast();
                if libc::setsockopt(socket.as_raw_fd(), level, option, pointer, length) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = protocol;
            address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
            let length = size_of_val(&address) as libc::socklen_t;
            if libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Capture {
                socket,
                totals: Default::default(),
            })
        }
    }

    /// Takes the packets that have arrived. Panics if some were lost.
    fn take(&mut self) {
        let mut buffer = [0_u8; VNET_HEADER + 14 + 128];
        loop {
            // SAFETY: an all-zero address is valid; buffer and address are as long as the call is told.
            let (length, address) = unsafe {
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                let mut address_length = size_of_val(&address) as libc::socklen_t;
                let length = libc::recvfrom(
                    self.socket.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_TRUNC,
                    (&raw mut address).cast(),
                    &raw mut address_length,
                );
                (length, address)
            };
            let Ok(length) = usize::try_from(length) else {
                assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock);
                break;
            };
            // The type is PACKET_OUTGOING for packets from this host, PACKET_HOST for received ones.
            let way = usize::from(address.sll_pkttype != 4);
            let is_ip = [0x0800_u16, 0x86dd].contains(&u16::from_be(address.sll_protocol));
            if is_ip {
                let gso_size = u16::from_ne_bytes([buffer[4], buffer[5]]).into();
                let packet = &buffer[VNET_HEADER + 14..];
                self.totals[way].add(packet, length - VNET_HEADER - 14, gso_size);
            }
        }
        // SAFETY: struct tpacket_stats is two words of 32 bits, as long as the call is told.
        let lost = unsafe {
            let mut statistics = [0_u32; 2];
            let mut length = size_of_val(&statistics) as libc::socklen_t;
            let pointer = statistics.as_mut_ptr().cast();
            let socket = self.socket.as_raw_fd();
            libc::getsockopt(
                socket,
                libc::SOL_PACKET,
                PACKET_STATISTICS,
                pointer,
                &raw mut length,
            );
            statistics[1]
        };
        assert_eq!(lost, 0, "the capture's buffer was too small");
    }
}

/// Values from linux/if_packet.h.
const PACKET_STATISTICS: libc::c_int = 6;
const PACKET_VNET_HDR: libc::c_int = 15;
/// Size of struct virtio_net_hdr (linux/virtio_net.h); gso_size is at offset 4.
const VNET_HEADER: usize = 10;
