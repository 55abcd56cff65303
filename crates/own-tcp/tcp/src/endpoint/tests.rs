//! Tests with two endpoints and a wire of 1 ms between them.

mod fragments;
mod icmp;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::timers::SPARE_TIMERS;
use super::*;
use crate::time::ms;
use crate::wire::{self, Flags, Segment};
use crate::{AckPolicy, Ended, Piece, ReadError};

struct Net {
    client: Endpoint,
    server: Endpoint,
    now: Instant,
    wire: VecDeque<(Instant, bool, Packet)>,
}

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

impl Net {
    fn new(backlog: usize) -> Self {
        let endpoint = |seed| {
            Endpoint::new(
                Config::default(),
                Pool::default(),
                [seed; 16],
                Checksum::Complete,
                ms(0),
            )
        };
        let mut net = Self {
            client: endpoint(1),
            server: endpoint(2),
            now: ms(0),
            wire: VecDeque::new(),
        };
        net.server.listen(80, backlog, Config::default()).unwrap();
        net
    }

    fn connect(&mut self, port: u16) -> ConnId {
        self.client
            .connect(
                SocketAddr::new(CLIENT, port),
                SocketAddr::new(SERVER, 80),
                self.now,
            )
            .unwrap()
    }

    fn run_for(&mut self, milliseconds: u64) {
        let until = self.now + Duration::from_millis(milliseconds);
        loop {
            let later = self.now + Duration::from_millis(1);
            while let Some(packet) = self.client.poll_packet(self.now) {
                self.wire.push_back((later, true, packet));
            }
            while let Some(packet) = self.server.poll_packet(self.now) {
                self.wire.push_back((later, false, packet));
            }
            let wire = self.wire.front().map(|(at, _, _)| *at);
            let next = [wire, self.client.next_timeout(), self.server.next_timeout()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while self.wire.front().is_some_and(|(at, _, _)| *at <= self.now) {
                let (_, to_server, packet) = self.wire.pop_front().unwrap();
                if to_server {
                    self.server.on_packet(packet, self.now)
                } else {
                    self.client.on_packet(packet, self.now)
                }
            }
            self.client.on_timeout(self.now);
            self.server.on_timeout(self.now);
        }
        self.now = until;
    }

    /// Number of dormant connections at each end, after the applications have taken all readiness
    /// and `milliseconds` have passed.
    fn resting_after(&mut self, milliseconds: u64) -> (usize, usize) {
        while self.client.poll_ready().is_some() || self.server.poll_ready().is_some() {}
        self.run_for(milliseconds);
        (self.client.table.resting(), self.server.table.resting())
    }

    fn write(&mut self, id: ConnId, bytes: &[u8]) {
        assert_eq!(
            self.client.apply(id, |connection| connection.write(bytes)),
            Some(Ok(bytes.len()))
        );
    }

    fn read_at_server(&mut self, id: ConnId) -> Result<Vec<u8>, ReadError> {
        let now = self.now;
        let mut buffer = [0; 100];
        let n = self
            .server
            .apply(id, |connection| connection.read(&mut buffer, now))
            .unwrap()?;
        Ok(buffer[..n].to_vec())
    }
}

#[test]
fn a_packet_is_the_same_whatever_was_in_its_place() {
    let sent = |poll: fn(&mut Endpoint, Instant) -> Option<Packet>| -> Vec<_> {
        let mut net = Net::new(5);
        let id = net.connect(5000);
        net.client.set_offloads(false, false);
        net.run_for(10);
        net.write(id, &[7; 10_000]);
        let packets = std::iter::from_fn(|| poll(&mut net.client, net.now));
        packets
            .map(|of| {
                (
                    of.header.as_ref().to_vec(),
                    of.payload.to_vec(),
                    of.checksum,
                    of.segment_size,
                )
            })
            .collect()
    };
    let into_another = |endpoint: &mut Endpoint, now| {
        let mut packet = Packet {
            header: [9; 80].as_slice().into(),
            payload: Piece::from([9; 30].as_slice()).into(),
            checksum: Checksum::Verified,
            segment_size: 9,
        };
        endpoint
            .poll_packet_into(&mut packet, now)
            .then_some(packet)
    };
    let expected = sent(Endpoint::poll_packet);
    assert!(expected.len() > 3, "{expected:?}");
    assert_eq!(sent(into_another), expected);
}

#[test]
fn a_connection_is_accepted_used_and_forgotten() {
    let mut net = Net::new(5);
    let id = net.connect(0);
    net.run_for(5);
    assert_eq!(net.client.poll_ready(), Some(id));
    assert_eq!(net.server.poll_acceptable(), Some(80));
    let accepted = net.server.accept(80).unwrap();
    assert_eq!(net.server.accept(80), None);
    net.write(id, b"hello");
    net.run_for(5);
    assert_eq!(net.server.poll_ready(), Some(accepted));
    assert_eq!(net.read_at_server(accepted), Ok(b"hello".to_vec()));
    net.client.release(id, net.now);
    net.run_for(5);
    assert_eq!(net.read_at_server(accepted), Err(ReadError::Finished));
    net.server.release(accepted, net.now);
    net.run_for(5);
    assert_eq!(
        (
            net.client.connections(),
            net.client.time_waits(),
            net.server.connections()
        ),
        (0, 1, 0)
    );
    net.run_for(61_000);
    assert_eq!(
        (net.client.time_waits(), net.client.next_timeout()),
        (0, None)
    );
}

/// Number of pure ACKs that answer each of these batches of full-sized segments, before the
/// application reads.
fn acks_of_batches(ack: AckPolicy, backlog_ack_defer: bool, batches: &[usize]) -> Vec<u64> {
    let mut net = Net::new(5);
    let mut config = Config {
        ack,
        ..Config::default()
    };
    config.linux_acks.backlog_ack_defer = backlog_ack_defer;
    net.server.unlisten(80, ms(0));
    net.server.listen(80, 5, config).unwrap();
    net.client
        .configure(|config| config.segmentation.super_segment_bytes_max = 0);
    let id = net.connect(0);
    net.run_for(5);
    let accepted = net.server.accept(80).unwrap();
    let mut sent = |segments: usize| {
        let counted = |net: &Net| {
            let connection = net.server.connection(accepted).unwrap();
            connection.counters().pure_acks_sent
        };
        let before = counted(&net);
        net.write(id, &vec![1; segments * 1448]);
        net.run_for(1);
        let acks = counted(&net) - before;
        while net.read_at_server(accepted).is_ok() {}
        net.run_for(300);
        acks
    };
    batches.iter().map(|segments| sent(*segments)).collect()
}

#[test]
fn a_batch_is_acknowledged_once_or_each_of_it_where_the_policy_says() {
    let delay_max = Duration::from_millis(40);
    let linux_like = AckPolicy::LinuxLike { delay_max };
    let delayed = AckPolicy::Delayed { delay_max };
    let table = [
        (linux_like, true, [1, 4, 10], [1, 1, 1]),
        (linux_like, false, [1, 4, 10], [1, 4, 10]),
        // The setting has an effect for Linux's policy only.
        (delayed, false, [1, 4, 10], [0, 1, 1]),
    ];
    for (ack, defer, batches, expected) in table {
        let acks = acks_of_batches(ack, defer, &batches);
        assert_eq!(acks, expected, "{ack:?} {defer}");
    }
}

#[test]
fn nobody_listens_and_the_caller_learns_it() {
    let mut net = Net::new(5);
    let id = net
        .client
        .connect(
            SocketAddr::new(CLIENT, 0),
            SocketAddr::new(SERVER, 81),
            net.now,
        )
        .unwrap();
    net.run_for(5);
    assert_eq!(
        net.client.connection(id).unwrap().ended(),
        Some(Ended::Refused)
    );
    assert_eq!(net.server.counters().refused, 1);
}

#[test]
fn a_full_backlog_answers_with_cookies_and_the_connections_work() {
    let mut net = Net::new(4);
    // SYNs of clients that never answer fill the backlog.
    for port in 1..=4 {
        let path = FourTuple {
            local: SocketAddr::new(IpAddr::from([10, 9, 9, 9]), port),
            remote: SocketAddr::new(SERVER, 80),
        };
        let syn = Segment {
            flags: Flags::SYN,
            window: 1000,
            ..Segment::default()
        };
        net.server
            .on_packet(Packet::emit(&path, syn, Checksum::Complete), net.now);
    }
    let id = net.connect(5000);
    net.run_for(5);
    assert_eq!(
        net.client.connection(id).unwrap().state(),
        State::Established
    );
    assert_eq!(
        (
            net.server.counters().cookies_sent,
            net.server.counters().cookies_accepted
        ),
        (1, 1)
    );
    let accepted = net.server.accept(80).unwrap();
    net.write(id, &[7; 50]);
    net.run_for(100);
    assert_eq!(net.read_at_server(accepted), Ok(vec![7; 50]));
}

#[test]
fn connections_beyond_the_backlog_wait_for_accept_to_make_room() {
    let mut net = Net::new(2);
    let ids: Vec<ConnId> = (0..5).map(|_| net.connect(0)).collect();
    net.run_for(50);
    assert!(net.server.connections() <= 4);
    // The ACK of a cookie found no room, so the server knows the connection only when data arrives.
    for id in &ids {
        net.client.apply(*id, |connection| connection.write(b"x"));
    }
    let mut accepted = 0;
    for _ in 0..20 {
        while net.server.accept(80).is_some() {
            accepted += 1;
        }
        net.run_for(1000);
    }
    assert_eq!(accepted, 5);
    assert!(
        ids.iter()
            .all(|id| net.client.connection(*id).unwrap().state() == State::Established)
    );
}

#[test]
fn the_same_ports_can_be_used_again_while_the_server_waits() {
    let mut net = Net::new(5);
    for _ in 0..3 {
        let id = net.connect(5000);
        net.run_for(5);
        let accepted = net.server.accept(80).unwrap();
        // The server closes first and so has the TIME-WAIT.
        net.server.release(accepted, net.now);
        net.run_for(5);
        net.client.release(id, net.now);
        net.run_for(50);
        assert_eq!((net.client.connections(), net.server.time_waits()), (0, 1));
    }
}

#[test]
fn who_listens_at_one_address_is_not_at_the_others() {
    let mut net = Net::new(5);
    let other = SocketAddr::new("10.0.0.3".parse().unwrap(), 81);
    net.server.listen_on(other, 5, Config::default()).unwrap();
    let client = SocketAddr::new(CLIENT, 0);
    let mut connect = |at| net.client.connect(client, at, net.now).unwrap();
    let refused = connect(SocketAddr::new(SERVER, 81));
    let opened = connect(other);
    net.run_for(5);
    let ended = |id| net.client.connection(id).unwrap().ended();
    assert_eq!(
        (ended(refused), ended(opened)),
        (Some(Ended::Refused), None)
    );
    assert!(net.server.accept(81).is_some());
}

#[test]
fn two_listen_at_one_port_each_at_its_address() {
    let mut net = Net::new(5);
    let at = |address: &str| SocketAddr::new(address.parse().unwrap(), 81);
    let (one, other) = (at("10.0.0.2"), at("10.0.0.3"));
    let small = Config {
        mss: 600,
        ..Config::default()
    };
    net.server.listen_on(one, 5, Config::default()).unwrap();
    net.server.listen_on(other, 5, small).unwrap();
    let in_use = Err(ListenError::InUse);
    assert_eq!(net.server.listen_on(one, 5, Config::default()), in_use);
    assert_eq!(net.server.listen(81, 5, Config::default()), in_use);
    let client = SocketAddr::new(CLIENT, 0);
    let ids = [one, other, other].map(|to| net.client.connect(client, to, net.now).unwrap());
    net.run_for(5);
    let mss = |id: ConnId| net.client.connection(id).unwrap().mss();
    assert_eq!(
        ids.map(mss),
        [1448, 588, 588],
        "each has its listener's choices"
    );
    assert_eq!(net.server.poll_acceptable(), Some(81));
    let taken = net.server.accept_on(other).unwrap();
    assert_eq!(net.server.path(taken).unwrap().local, other);
    // Removal of a listener aborts its unaccepted connections and leaves the other's alone.
    net.server.unlisten_on(other, net.now);
    net.run_for(5);
    let ended = |id: ConnId| net.client.connection(id).unwrap().ended();
    assert_eq!(ids.map(ended), [None, None, Some(Ended::Reset)]);
    let refused = net.client.connect(client, other, net.now).unwrap();
    net.run_for(5);
    assert_eq!(
        net.client.connection(refused).unwrap().ended(),
        Some(Ended::Refused)
    );
    assert!(
        net.server
            .accept(81)
            .is_some_and(|id| net.server.path(id).unwrap().local == one)
    );
    assert_eq!(net.server.accept(81), None);
}

#[test]
fn a_connection_that_rests_wakes_as_it_was() {
    let mut net = Net::new(5);
    let keepalive = crate::KeepAlive {
        idle: Duration::from_secs(30),
        ..crate::KeepAlive::default()
    };
    let config = Config {
        keepalive: Some(keepalive),
        ..Config::default()
    };
    let (from, to) = (SocketAddr::new(CLIENT, 0), SocketAddr::new(SERVER, 80));
    let id = net.client.connect_with(config, from, to, net.now).unwrap();
    net.run_for(5);
    let accepted = net.server.accept(80).unwrap();
    net.write(id, b"hello");
    net.run_for(100);
    assert_eq!(net.read_at_server(accepted), Ok(b"hello".to_vec()));
    assert_eq!(net.resting_after(100), (0, 0));
    let later = net.now + Duration::from_secs(10);
    let told = |endpoint: &Endpoint, id| {
        let connection = endpoint.connection(id).unwrap();
        let (counters, due) = (*connection.counters(), connection.next_timeout());
        (connection.info(later), counters, connection.sequence(), due)
    };
    let before = (told(&net.client, id), told(&net.server, accepted));
    assert_eq!(net.resting_after(3000), (1, 1));
    assert_eq!((told(&net.client, id), told(&net.server, accepted)), before);
    assert_eq!(net.server.next_timeout(), None);
    // Reading does not restore it; a write or a packet does, and later it becomes dormant again.
    assert_eq!(net.resting_after(0), (1, 1));
    net.write(id, b"again");
    net.run_for(5);
    assert_eq!(net.read_at_server(accepted), Ok(b"again".to_vec()));
    assert_eq!(net.resting_after(5), (0, 0));
    assert_eq!(net.resting_after(4000), (1, 1));
    // Its timer restores it, too.
    net.run_for(40_000);
    let probes = net
        .client
        .connection(id)
        .unwrap()
        .counters()
        .keepalives_sent;
    assert_eq!(probes, 1);
    net.client.release(id, net.now);
    net.run_for(5);
    assert_eq!(net.read_at_server(accepted), Err(ReadError::Finished));
}

/// A connection that is not dormant keeps its timers.
#[test]
fn what_nobody_has_looked_at_does_not_rest() {
    let mut net = Net::new(5);
    let config = Config {
        keepalive: Some(crate::KeepAlive {
            idle: Duration::from_secs(5),
            ..crate::KeepAlive::default()
        }),
        ..Config::default()
    };
    let (from, to) = (SocketAddr::new(CLIENT, 0), SocketAddr::new(SERVER, 80));
    let id = net.client.connect_with(config, from, to, net.now).unwrap();
    net.run_for(9000);
    assert_eq!(net.client.table.resting(), 0);
    let counters = net.client.connection(id).unwrap().counters();
    assert_eq!(counters.keepalives_sent, 1);
}

#[test]
fn what_is_unread_does_not_rest() {
    let mut net = Net::new(5);
    let id = net.connect(0);
    net.run_for(5);
    let accepted = net.server.accept(80).unwrap();
    net.write(id, b"hello");
    assert_eq!(net.resting_after(10_000), (1, 0));
    assert_eq!(net.read_at_server(accepted), Ok(b"hello".to_vec()));
    assert_eq!(net.resting_after(10_000), (1, 1));
}

#[test]
fn an_idle_connection_is_on_no_list() {
    let mut net = Net::new(500);
    let ids: Vec<ConnId> = (0..100).map(|_| net.connect(0)).collect();
    net.run_for(1000);
    while net.client.poll_ready().is_some() {}
    net.run_for(5000);
    assert!(net.client.work.is_empty() && net.client.ready.is_empty());
    assert!(
        net.client
            .connection(ids[0])
            .unwrap()
            .next_timeout()
            .is_none()
    );
    net.run_for(100_000);
    assert_eq!(net.client.next_timeout(), None);
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let mut net = Net::new(50);
    for _ in 0..3000 {
        let id = net.connect(0);
        net.run_for(3);
        let accepted = net.server.accept(80).unwrap();
        net.client.apply(id, Connection::abort);
        net.client.release(id, net.now);
        net.server.release(accepted, net.now);
        net.run_for(3);
        while net.client.poll_ready().is_some() || net.server.poll_ready().is_some() {}
    }
    for endpoint in [&net.client, &net.server] {
        assert_eq!(endpoint.connections(), 0);
        assert!(
            endpoint.timers.len() <= SPARE_TIMERS + 1,
            "{}",
            endpoint.timers.len()
        );
        assert!(
            endpoint.acceptable.len() <= 1 && endpoint.ready.is_empty() && endpoint.work.is_empty()
        );
    }
}

#[test]
fn a_damaged_packet_is_counted_and_nothing_else() {
    let mut net = Net::new(5);
    let path = FourTuple {
        local: SocketAddr::new(CLIENT, 9),
        remote: SocketAddr::new(SERVER, 80),
    };
    let syn = Packet::emit(
        &path,
        Segment {
            flags: Flags::SYN,
            ..Segment::default()
        },
        Checksum::Complete,
    );
    let mut bytes = syn.header.as_ref().to_vec();
    bytes[25] ^= 1;
    net.server
        .on_packet(Packet::from_piece(Piece::from(bytes)), net.now);
    assert_eq!(net.server.counters().dropped_checksum, 1);
    assert_eq!(net.server.connections(), 0);
}

#[test]
fn a_device_that_does_not_cut_gets_ordinary_segments() {
    let mut net = Net::new(5);
    net.client.set_offloads(false, false);
    let id = net.connect(0);
    net.run_for(5);
    net.write(id, &[3; 5000]);
    let mut sizes = Vec::new();
    while let Some(packet) = net.client.poll_packet(net.now) {
        assert_eq!(packet.segment_size, 0);
        sizes.push(packet.payload.len());
        net.server.on_packet(packet, net.now);
    }
    assert_eq!(sizes, [1448, 1448, 1448, 656]);
    let accepted = net.server.accept(80).unwrap();
    assert_eq!(net.server.connection(accepted).unwrap().readable(), 5000);
}

#[test]
fn an_endpoint_may_move_to_another_thread() {
    fn check<T: Send>() {}
    check::<Endpoint>();
}

#[test]
fn a_connection_can_have_choices_of_its_own() {
    let mut net = Net::new(5);
    let config = Config {
        timestamps: false,
        ..Config::default()
    };
    let (local, remote) = (SocketAddr::new(CLIENT, 0), SocketAddr::new(SERVER, 80));
    let id = net
        .client
        .connect_with(config, local, remote, net.now)
        .unwrap();
    net.run_for(5);
    assert_eq!(net.client.connection(id).unwrap().mss(), 1460);
}

#[test]
fn ipv6_works_with_smaller_segments() {
    let mut net = Net::new(5);
    let (a, b) = (
        "[fd00::1]:0".parse().unwrap(),
        "[fd00::2]:80".parse().unwrap(),
    );
    let id = net.client.connect(a, b, net.now).unwrap();
    net.run_for(5);
    assert_eq!(net.client.connection(id).unwrap().mss(), 1440 - 12);
    assert!(net.server.accept(80).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Arbitrary segments, near and far from the window, violate no invariant and do not make the
    /// endpoint keep more than its backlog.
    #[test]
    fn strangers_cannot_break_it(
        segments in prop::collection::vec((0u8..4, any::<u8>(), 0u32..4, -70_000i32..70_000, -70_000i32..70_000, 0usize..200, any::<u16>()), 1..120),
    ) {
        let mut net = Net::new(3);
        let id = net.connect(5000);
        net.run_for(5);
        let accepted = net.server.accept(80).unwrap();
        net.write(id, &[9; 3000]);
        let (una, nxt, rcv_nxt) = net.server.connection(accepted).unwrap().sequence();
        for (port, flags, wait, seq, ack, len, window) in segments {
            let port = if port == 0 { 6000 + u16::from(flags) } else { 5000 };
            let path = FourTuple { local: SocketAddr::new(CLIENT, port), remote: SocketAddr::new(SERVER, 80) };
            let segment = Segment {
                seq: SeqNum::new(rcv_nxt.value().wrapping_add_signed(seq)),
                ack: SeqNum::new(nxt.max(una).value().wrapping_add_signed(ack)),
                flags: Flags::from_bits(flags),
                window,
                payload: Piece::from(vec![1; len]).into(),
                options: wire::Options { timestamps: Some(wire::Timestamps { value: u32::MAX / 2, echo: 1 }), ..wire::Options::default() },
                ..Segment::default()
            };
            net.server.on_packet(Packet::emit(&path, segment, Checksum::Complete), net.now);
            net.run_for(u64::from(wait) * 30);
        }
        prop_assert!(net.server.connections() <= 8);
    }
}
