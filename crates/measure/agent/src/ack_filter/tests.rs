//! Tests of the ACK filter in real namespaces, which need root.
//!
//! [`Peer`] is a TCP written by hand at the other side of a TAP. So each segment that the kernel's receiver
//! gets, and each ACK that may leave, is known. In these tests no flush runs but the test's own. Whole
//! transfers go over a veth, with the flush thread.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use tcpcost_link::{Copied, Device, Layer, Offloads, Tap};
use tcpcost_study::{AckFilterRule, Counts, Quantity};
use tcpcost_tcp::wire::{Checksum, Flags, FourTuple, Options, Packet, Segment, Timestamps};
use tcpcost_tcp::{Piece, SeqNum};

use super::*;
use tcpcost_host::route::set_quickack;
use tcpcost_host::{ethtool, qdisc};
use tcpcost_testbed::{CLIENT, SERVER, in_namespace, skip, thread_id, with_bed};

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 212, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 212, 0, 2);
const MSS: u32 = 1000;
/// Limit on each wait. No step takes a hundredth of it unless the machine stalls.
const LONG: Duration = Duration::from_secs(10);

/// A TCP that sends only the segments that the test asks for.
struct Peer {
    tap: Tap,
    path: FourTuple,
    next: SeqNum,
    ack: SeqNum,
    clock: Option<u32>,
    echo: u32,
    arrived: VecDeque<Copied>,
}

impl Peer {
    /// Connects to the kernel's listener.
    fn connect(tap: Tap, listener: &TcpListener, timestamps: bool) -> Peer {
        let mut peer = Peer {
            tap,
            path: FourTuple {
                local: SocketAddr::from((PEER, 40_000)),
                remote: listener.local_addr().unwrap(),
            },
            next: SeqNum::new(1000),
            ack: SeqNum::new(0),
            clock: timestamps.then_some(1),
            echo: 0,
            arrived: VecDeque::new(),
        };
        let options = Options {
            mss: Some(1460),
            sack_permitted: true,
            ..Options::default()
        };
        peer.send(Segment {
            flags: Flags::SYN,
            options,
            ..Segment::default()
        });
        peer.next += 1;
        let answer = peer.receive();
        assert!(answer.flags.contains(Flags::SYN.with(Flags::ACK, true)));
        peer.ack = answer.end();
        peer.send(peer.empty());
        peer
    }

    fn empty(&self) -> Segment {
        Segment {
            flags: Flags::ACK,
            ..Segment::default()
        }
    }

    /// A full segment of data, `at` segments after the next one in order.
    fn data(&self, at: u32) -> Segment {
        Segment {
            seq: self.next + at * MSS,
            payload: Piece::from(vec![7; MSS as usize]).into(),
            ..self.empty()
        }
    }

    /// Sends `segments` full segments in order.
    fn send_data(&mut self, segments: u32) {
        for _ in 0..segments {
            self.send(self.data(0));
            self.next += MSS;
        }
    }

    fn send(&mut self, mut segment: Segment) {
        if segment.seq == SeqNum::new(0) {
            segment.seq = self.next;
        }
        segment.ack = self.ack;
        segment.window = 60_000;
        if let Some(clock) = &mut self.clock {
            *clock += 1;
            segment.options.timestamps = Some(Timestamps {
                value: *clock,
                echo: self.echo,
            });
        }
        let packet = Packet::emit(&self.path, segment, Checksum::Complete);
        let mut bytes = packet.header.as_ref().to_vec();
        for piece in packet.payload.iter() {
            bytes.extend_from_slice(piece.as_ref());
        }
        let mut frames = VecDeque::from([Copied::from(&bytes[..])]);
        self.tap.send(&mut frames, Instant::now()).unwrap();
        assert!(frames.is_empty());
    }

    /// Waits for the next segment from the kernel. Panics if its checksum is wrong.
    fn receive(&mut self) -> Segment {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(frame) = self.arrived.pop_front() {
                let packet = Packet::from_piece(Piece::from(frame.bytes));
                if !packet.is_tcp() {
                    continue;
                }
                let (_, segment) = packet.parse().unwrap();
                if let Some(timestamps) = segment.options.timestamps {
                    self.echo = timestamps.value;
                }
                return segment;
            }
            assert!(Instant::now() < deadline, "nothing left");
            Device::<Copied>::receive(
                &mut self.tap,
                &mut Copied::source(),
                &mut self.arrived,
                16,
                Instant::now(),
            )
            .unwrap();
            if self.arrived.is_empty() {
                self.tap.wait(Some(Duration::from_millis(100))).unwrap();
            }
        }
    }

    /// Waits for the next segment and checks that it acknowledges all data sent in order.
    fn expect_ack(&mut self) -> Segment {
        let segment = self.receive();
        assert_eq!(segment.ack, self.next, "{segment:?}");
        segment
    }
}

fn count(program: &AckFilterProgram, of: Quantity) -> u64 {
    program.snapshot().totals[0].counts[&of]
}

/// Waits until `held` ACKs have been held.
fn expect_held(program: &AckFilterProgram, held: u64) {
    let deadline = Instant::now() + LONG;
    while count(program, Quantity::AckFilterHeldAcks) < held {
        assert!(Instant::now() < deadline, "{:?}", program.snapshot());
        std::thread::yield_now();
    }
    assert_eq!(count(program, Quantity::AckFilterHeldAcks), held);
}

/// Runs a test with a connection from a [`Peer`] to the kernel, whose ACKs are filtered.
fn with_peer(
    rule: AckFilterRule,
    timestamps: bool,
    test: impl FnOnce(&AckFilterProgram, Peer, TcpStream, &OwnedFd) + Send + 'static,
) {
    in_namespace(move || {
        let mut tap = match Tap::open("t", Layer::Ethernet, Offloads::NONE) {
            Ok(tap) => tap,
            Err(error) => return skip(&error.to_string()),
        };
        tap.answer_for(PEER.into());
        link::add_address("t", KERNEL, 30).unwrap();
        link::set_up("t").unwrap();
        set_quickack("t", PEER.into(), true).unwrap();
        let index = link::read("t").unwrap().index;
        let program = match AckFilterProgram::attach(index, every(rule)) {
            Ok(program) => program,
            Err(error) if error.to_string().contains("needs ") => {
                return skip(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        let socket = packet_socket(index).unwrap();
        let listener = TcpListener::bind((KERNEL, 0)).unwrap();
        // The kernel's ARP requests wait in the TAP until `Peer::connect` reads and answers them.
        let peer = Peer::connect(tap, &listener, timestamps);
        let stream = listener.accept().unwrap().0;
        test(&program, peer, stream, &socket);
    });
}

fn check_what_is_never_held(timestamps: bool) {
    with_peer(
        AckFilterRule::Acks(64),
        timestamps,
        |program, mut peer, mut stream, socket| {
            let held = |held| expect_held(program, held);
            // The connection's first ACK leaves, the next ones are held.
            peer.send_data(1);
            peer.expect_ack();
            peer.send_data(3);
            held(3);

            // Old data draws a duplicate ACK at once, which acknowledges all data received.
            let mut old = peer.data(0);
            old.seq = peer.next - MSS;
            peer.send(old);
            peer.expect_ack();
            held(3);

            // The duplicate may have reported a hole, so the next ACK leaves. Then a real hole draws a SACK
            // at once.
            peer.send_data(1);
            peer.expect_ack();
            peer.send_data(2);
            held(5);
            peer.send(peer.data(1));
            let sack = peer.expect_ack();
            assert_eq!(sack.options.sack.as_slice().len(), 1);
            // The segment that fills the hole is acknowledged at once, too.
            peer.send_data(1);
            peer.next += MSS;
            peer.expect_ack();
            held(5);

            // A data segment from the kernel carries the ACK number.
            peer.send_data(2);
            held(7);
            stream.write_all(b"answer").unwrap();
            let answer = peer.expect_ack();
            assert_eq!(answer.payload.len(), 6);
            peer.ack = answer.end();
            peer.send(peer.empty());

            // The last ACK is held until a flush.
            peer.send_data(2);
            held(9);
            let last = program.overdue(clock_ns(), 0).next().unwrap();
            assert_eq!(program.overdue(clock_ns(), u64::MAX).count(), 0);
            send(socket, &last).unwrap();
            peer.expect_ack();
            assert_eq!(count(program, Quantity::AckFilterFlushedAcks), 1);
            assert_eq!(program.overdue(clock_ns(), 0).count(), 0);
            // A second copy of the same ACK passes uncounted, because the first copy has left.
            send(socket, &last).unwrap();

            // A FIN is acknowledged at once, and the kernel's own FIN leaves.
            let fin = Flags::ACK.with(Flags::FIN, true);
            peer.send(Segment {
                flags: fin,
                ..peer.empty()
            });
            peer.next += 1;
            peer.expect_ack();
            held(9);
            drop(stream);
            // The kernel closes with unread data, so by RST (RFC 2525 §2.17).
            let last = peer.receive();
            assert!(last.flags.intersects(Flags::FIN.with(Flags::RST, true)));
            assert_eq!(count(program, Quantity::AckFilterFlushedAcks), 1);
        },
    );
}

#[test]
fn what_must_leave_at_once_is_never_held() {
    check_what_is_never_held(true);
}

#[test]
fn sack_is_not_taken_for_timestamps_of_the_same_length() {
    check_what_is_never_held(false);
}

#[test]
fn every_nth_leaves() {
    with_peer(
        AckFilterRule::Acks(3),
        true,
        |program, mut peer, _stream, _| {
            peer.send_data(1);
            peer.expect_ack();
            for round in 1..=4 {
                peer.send_data(3);
                peer.expect_ack();
                expect_held(program, 2 * round);
            }
            assert_eq!(count(program, Quantity::AckFilterPassedAcks), 4);
        },
    );
}

#[test]
fn an_ack_leaves_for_so_many_full_segments() {
    with_peer(
        AckFilterRule::Segments(4),
        true,
        |program, mut peer, _stream, _| {
            peer.send_data(1);
            peer.expect_ack();
            peer.send_data(4);
            peer.expect_ack();
            expect_held(program, 3);
            // Short segments count by their bytes.
            for _ in 0..2 {
                let mut large = peer.data(0);
                large.payload = Piece::from(vec![7; 460]).into();
                peer.send(large);
                peer.next += 460;
            }
            peer.send_data(3);
            expect_held(program, 8);
            peer.send_data(1);
            peer.expect_ack();
        },
    );
}

#[test]
fn a_window_that_opens_again_is_told_at_once() {
    with_peer(
        AckFilterRule::Acks(64),
        true,
        |program, mut peer, mut stream, _| {
            // The application does not read, so the window closes. ACKs that shrink it must reach the peer
            // before it probes.
            let mut window = u32::MAX;
            let mut sent = 0_u32;
            while window >= MSS && sent < 1000 {
                peer.send_data(1);
                sent += 1;
                while let Some(segment) = arrived(&mut peer) {
                    window = segment.window.into();
                }
            }
            assert!(window < MSS, "{window} after {sent} segments");
            let held = count(program, Quantity::AckFilterHeldAcks);
            let mut buffer = vec![0; (sent * MSS) as usize];
            stream
                .read_exact(&mut buffer[..(sent * MSS / 2) as usize])
                .unwrap();
            let update = peer.receive();
            assert!(u32::from(update.window) > window, "{update:?}");
            assert_eq!(count(program, Quantity::AckFilterHeldAcks), held);
        },
    );
}

/// Next segment that has left already, without waiting. `None` if there is none.
fn arrived(peer: &mut Peer) -> Option<Segment> {
    if peer.arrived.is_empty() {
        Device::<Copied>::receive(
            &mut peer.tap,
            &mut Copied::source(),
            &mut peer.arrived,
            16,
            Instant::now(),
        )
        .unwrap();
    }
    (!peer.arrived.is_empty()).then(|| peer.receive())
}

/// Filters at the server, with the flush. Returns the counts after `work`; `None` if eBPF is unavailable.
fn filtered(rule: AckFilterRule, work: impl FnOnce()) -> Option<Counts> {
    ethtool::set("s", "gro", false).unwrap();
    set_quickack("s", IpAddr::from(CLIENT), true).unwrap();
    match AckFilter::start("s", rule, || Ok(())) {
        Ok(filter) => {
            work();
            Some(
                AckFilter::meter(std::slice::from_ref(&filter))
                    .unwrap()
                    .snapshot()
                    .unwrap()
                    .totals[0]
                    .counts
                    .clone(),
            )
        }
        Err(error) if error.to_string().contains("needs ") => {
            skip(&error.to_string());
            work();
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn connect(port: u16) -> TcpStream {
    let deadline = Instant::now() + LONG;
    loop {
        match TcpStream::connect((SERVER, port)) {
            Ok(stream) => return stream,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => std::thread::yield_now(), // The server does not listen yet.
        }
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

/// Sends `bytes` and waits until all of them are acknowledged.
fn send_acknowledged(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let deadline = Instant::now() + LONG;
    loop {
        let mut unacknowledged: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes an int, which outlives the call.
        let done =
            unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut unacknowledged) };
        assert_eq!(done, 0);
        if unacknowledged == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{unacknowledged} bytes");
        std::thread::yield_now();
    }
}

#[test]
fn a_bulk_transfer_is_whole_and_acknowledged_to_its_end() {
    const BYTES: usize = 4 << 20;
    for every in [1, 2, 8, 64] {
        let client = || {
            // One skb per MSS: without the filter each segment has an ACK.
            link::set_gso_max_segs("c", 1).unwrap();
            let mut stream = connect(5000);
            send_acknowledged(&mut stream, &pattern(BYTES));
        };
        let server = move || {
            let mut bytes = Vec::new();
            let counts = filtered(AckFilterRule::Acks(every), || {
                let listener = TcpListener::bind((SERVER, 5000)).unwrap();
                listener
                    .accept()
                    .unwrap()
                    .0
                    .read_to_end(&mut bytes)
                    .unwrap();
            });
            assert!(bytes == pattern(BYTES), "{} bytes", bytes.len());
            counts
        };
        let Some(((), Some(counts))) = with_bed(client, server) else {
            return;
        };
        let [passed, held, flushed] = [
            Quantity::AckFilterPassedAcks,
            Quantity::AckFilterHeldAcks,
            Quantity::AckFilterFlushedAcks,
        ]
        .map(|of| counts[&of]);
        // Other packets (window updates, segments of the close) also leave and let more ACKs be held.
        let others = (BYTES / 1448) as u64 + 10;
        println!("every {every}: {passed} passed, {held} held, {flushed} flushed");
        assert!(held <= u64::from(every - 1) * (passed + flushed + others));
        assert!(flushed <= held);
        match every {
            1 => assert_eq!(held, 0),
            // At least half of the ideal ratio, because a machine that stalls flushes more. With one ACK for
            // 64 segments, half of the window is soon in flight, so the bound is lower.
            2 | 8 => assert!(held > passed * u64::from(every - 1) / 2, "{counts:?}"),
            _ => assert!(held > 8 * passed, "{counts:?}"),
        }
    }
}

#[test]
fn the_last_ack_of_a_message_comes_by_the_flush() {
    const MESSAGES: usize = 30;
    let client = || {
        let mut stream = connect(5001);
        for _ in 0..MESSAGES {
            send_acknowledged(&mut stream, &pattern(100));
        }
    };
    let server = || {
        filtered(AckFilterRule::Acks(64), || {
            let listener = TcpListener::bind((SERVER, 5001)).unwrap();
            let mut bytes = Vec::new();
            listener
                .accept()
                .unwrap()
                .0
                .read_to_end(&mut bytes)
                .unwrap();
            assert_eq!(bytes.len(), MESSAGES * 100);
        })
    };
    if let Some(((), Some(counts))) = with_bed(client, server) {
        // Without the flush thread's CPU the sender's timeout would end each message, after 200 ms.
        assert!(counts[&Quantity::AckFilterFlushedAcks] > 0, "{counts:?}");
    }
}

#[test]
fn connections_come_and_go_through_it() {
    const CONNECTIONS: usize = 200;
    let client = || {
        for _ in 0..CONNECTIONS {
            let mut stream = connect(5002);
            stream.write_all(b"hello").unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"hello");
        }
    };
    let server = || {
        filtered(AckFilterRule::Acks(64), || {
            let listener = TcpListener::bind((SERVER, 5002)).unwrap();
            for _ in 0..CONNECTIONS {
                let mut stream = listener.accept().unwrap().0;
                let mut bytes = [0; 5];
                stream.read_exact(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            }
        })
    };
    with_bed(client, server);
}

#[test]
fn nothing_is_left_when_it_ends() {
    in_namespace(|| {
        let peer = thread_id();
        link::create_veth("a", "b", peer).unwrap();
        let clsact = || qdisc::has_clsact("a").unwrap();
        assert!(!clsact());
        match AckFilter::start("a", AckFilterRule::Acks(2), || Ok(())) {
            Ok(_filter) => assert!(clsact()),
            Err(error) => assert!(error.to_string().contains("needs "), "{error}"),
        }
        assert!(!clsact());
    });
}

#[test]
fn a_finished_frame_sums_to_nothing() {
    let mut frame = vec![0; 66];
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    for (index, byte) in frame[34..].iter_mut().enumerate() {
        *byte = u8::try_from(7 * index % 251).unwrap();
    }
    let frame = finished(&frame);
    let sum = Sum::new()
        .add_bytes(&frame[26..34])
        .add_word(6)
        .add_word(32)
        .add_bytes(&frame[34..]);
    assert_eq!(sum.partial(), 0xffff);
    assert_eq!(finished(&frame[..20]), frame[..20]);
}
