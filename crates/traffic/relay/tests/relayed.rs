//! No relayed byte is lost, doubled or reordered, in any mode, whatever the ends do: sizes, chunks,
//! half-closes, resets, small windows, slow readers, too few pipes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use rustix::net::sockopt;
use tcpcost_host::link;
use tcpcost_knobs::RelayNeeds;
use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_relay::{
    Address, Config, Direction, Ending, Ends, ProxyVersion, Relay, RelayMode, StartError, Totals,
    bind, proxy_header,
};
use tcpcost_stack::{SocketOptions, UserStack};
use tcpcost_testbed::{in_namespace, until};

/// Behaviour of one end of a connection.
#[derive(Debug, Clone)]
struct End {
    /// Bytes to send.
    bytes: usize,
    write: usize,
    read: usize,
    /// SO_RCVBUF.
    window: Option<usize>,
    /// Bytes received after which the end resets the connection.
    reset_after: Option<usize>,
    /// True if the end sends only after it has read all that comes.
    listens_first: bool,
}

/// Observations of one end.
#[derive(Debug)]
struct Seen {
    received: usize,
    /// True if the stream ended cleanly.
    finished: bool,
    /// True if the kernel accepted all bytes to send.
    sent_all: bool,
}

/// Returns the byte at a position of a stream. A shifted, doubled or missing piece shows at once.
fn byte(seed: u64, at: usize) -> u8 {
    let block = (at as u64 / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ seed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    (block >> (at % 8 * 7)) as u8
}

fn write_all(mut stream: &TcpStream, end: &End, seed: u64, stop: &AtomicBool) -> bool {
    let mut at = 0;
    while at < end.bytes {
        let next = (at + end.write).min(end.bytes);
        let chunk: Vec<u8> = (at..next).map(|at| byte(seed, at)).collect();
        if stop.load(Ordering::Relaxed) || stream.write_all(&chunk).is_err() {
            return false;
        }
        at = next;
    }
    stream.shutdown(Shutdown::Write).is_ok()
}

/// Reads until the end; panics at an unexpected byte.
fn read_all(mut stream: &TcpStream, end: &End, seed: u64) -> (usize, bool) {
    let mut buffer = vec![0; end.read];
    let mut at = 0;
    loop {
        if end.reset_after.is_some_and(|most| at >= most) {
            // The caller closes the socket soon, which sends the reset.
            sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
            return (at, false);
        }
        match stream.read(&mut buffer) {
            Ok(0) => return (at, true),
            Ok(bytes) => {
                for (index, got) in buffer[..bytes].iter().enumerate() {
                    assert_eq!(*got, byte(seed, at + index), "at {}", at + index);
                }
                at += bytes;
            }
            Err(error) => {
                let hangs = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
                assert!(!hangs.contains(&error.kind()), "it hangs after {at} bytes");
                return (at, false);
            }
        }
    }
}

fn play(stream: TcpStream, end: &End, own: u64, other: u64) -> Seen {
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    stream.set_write_timeout(Some(LONGEST)).unwrap();
    let stop = AtomicBool::new(false);
    let ((received, finished), sent_all) = if end.listens_first {
        let read = read_all(&stream, end, other);
        (read, read.1 && write_all(&stream, end, own, &stop))
    } else {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_all(&stream, end, own, &stop));
            let read = read_all(&stream, end, other);
            stop.store(end.reset_after.is_some() && !read.1, Ordering::Relaxed);
            (read, writer.join().unwrap())
        })
    };
    Seen {
        received,
        finished,
        sent_all,
    }
}

fn dial(to: SocketAddr, window: Option<usize>) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    if let Some(bytes) = window {
        sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
    }
    connect(&socket, &to).unwrap();
    socket.into()
}

fn start(config: Config) -> (Relay, SocketAddr) {
    try_start(config).expect("a mode that is always there")
}

/// Modes that relay the kernel's sockets.
fn kernel_modes() -> impl Iterator<Item = RelayMode> {
    let is_kernels = |needs| matches!(needs, RelayNeeds::Sockets | RelayNeeds::IoUring);
    let all = RelayMode::ALL.iter().copied();
    all.filter(move |mode| is_kernels(mode.row().needs))
}

/// Modes that relay by our own TCP.
fn user_modes() -> impl Iterator<Item = RelayMode> {
    let all = RelayMode::ALL.iter().copied();
    all.filter(|mode| mode.is_user())
}

/// Addresses of the kernel's ends and, if it relays, of our own TCP: on a TAP in a namespace of
/// the test.
const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));

fn each_mode(work: impl Fn(RelayMode) + Sync) {
    kernel_modes().for_each(&work);
    for mode in user_modes() {
        in_namespace(|| work(mode));
    }
}

/// Runs the test with one mode for the loop that all kernel modes share, and with those of our own
/// TCP.
fn each_loop(work: impl Fn(RelayMode) + Sync) {
    work(RelayMode::Auto);
    for mode in user_modes() {
        in_namespace(|| work(mode));
    }
}

/// Makes a server that a relay of this mode can reach.
fn server_for(mode: RelayMode) -> TcpListener {
    let address = match mode.is_user() {
        true => Ipv4Addr::UNSPECIFIED, // The TAP is made later, with the relay.
        false => Ipv4Addr::LOCALHOST,
    };
    TcpListener::bind((address, 0)).unwrap()
}

fn start_user(config: Config) -> Result<(Relay, SocketAddr), StartError> {
    let mut tap = Tap::open("relay%d", Layer::Ethernet, Offloads::ALL).unwrap();
    tap.answer_for(OURS);
    link::add_address(tap.name(), KERNEL, 24).unwrap();
    link::set_up(tap.name()).unwrap();
    let options = SocketOptions {
        send_buffer_bytes: config.send_buffer,
        receive_buffer_bytes: config.receive_buffer,
        nodelay: config.nodelay,
        ..SocketOptions::default()
    };
    let stack = UserStack::new(tap, &[OURS], &tcpcost_tcp::Config::default(), &options).unwrap();
    let stack = stack.with_networks(&[(OURS, 24)]);
    let listen = vec![SocketAddr::new(OURS, 0)];
    let (relay, local) = Relay::start_user(vec![(stack, listen)], config)?;
    Ok((relay, local[0][0]))
}

/// Address by which a relay of this mode reaches the server.
fn address_of(server: &TcpListener, mode: RelayMode) -> Address {
    let mut address = server.local_addr().unwrap();
    if mode.is_user() {
        address.set_ip(KERNEL);
    }
    Address::Tcp(address)
}

fn nobody(mode: RelayMode) -> Address {
    address_of(&server_for(mode), mode)
}

fn to(server: &TcpListener, mode: RelayMode) -> Config {
    Config {
        mode,
        connections_max: 64,
        ..Config::new(address_of(server, mode))
    }
}

/// Runs all connections at once through one relay. Returns the observations of each end, and the
/// totals at the end.
fn relayed(
    mode: RelayMode,
    config: impl FnOnce(&TcpListener) -> Config,
    pairs: &[(End, End)],
) -> Option<(Vec<[Seen; 2]>, Totals)> {
    let server = server_for(mode);
    let (relay, address) = try_start(config(&server)).ok()?;
    let seen = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (seed, (client, server_end)) in (0..).zip(pairs) {
            // One after the other, so that the two ends of a connection are known.
            let dialled = dial(address, client.window);
            let (taken, _) = server.accept().unwrap();
            if let Some(bytes) = server_end.window {
                sockopt::set_socket_recv_buffer_size(&taken, bytes).unwrap();
            }
            threads.push([
                scope.spawn(move || play(dialled, client, 2 * seed, 2 * seed + 1)),
                scope.spawn(move || play(taken, server_end, 2 * seed + 1, 2 * seed)),
            ]);
        }
        let joined = threads.into_iter();
        joined
            .map(|both| both.map(|thread| thread.join().unwrap()))
            .collect()
    });
    until("the last connection ends", || {
        (relay.counters().totals().open == 0).then_some(())
    });
    relay.stopper().drain();
    Some((seen, relay.wait().unwrap()))
}

fn check(mode: RelayMode, pipes: usize, held: usize, pairs: &[(End, End)]) {
    let config = |server: &TcpListener| Config {
        pipes_max: pipes,
        held_bytes: held,
        pipe_bytes: 64 << 10,
        ..to(server, mode)
    };
    let Some((seen, totals)) = relayed(mode, config, pairs) else {
        return;
    };
    let mut received = [0; 2];
    let mut is_whole = true;
    for ([client, server], (client_end, server_end)) in seen.iter().zip(pairs) {
        received[0] += server.received as u64;
        received[1] += client.received as u64;
        for (own, other) in [(client, server_end), (server, client_end)] {
            assert!(own.received <= other.bytes, "{own:?} {other:?}");
            // The kernel reports a reset once: if the writer saw it, the reader sees an end.
            if own.finished && own.sent_all {
                assert_eq!(own.received, other.bytes, "a part was taken for the whole");
            }
        }
        let resets = |end: &End, other: &End| end.reset_after.is_some_and(|at| at <= other.bytes);
        if resets(client_end, server_end) || resets(server_end, client_end) {
            is_whole = false;
        } else {
            let all = [client, server].map(|seen| seen.finished && seen.sent_all);
            assert_eq!(all, [true; 2], "{seen:?} {pairs:?}");
        }
    }
    assert_eq!(totals.accepted, pairs.len() as u64);
    assert_eq!(
        totals.ended.iter().sum::<u64>(),
        totals.accepted,
        "{totals:?}"
    );
    for (bytes, received) in totals.bytes.iter().zip(received) {
        assert!(bytes.relayed() >= received, "{totals:?} {received}");
        if is_whole {
            assert_eq!((bytes.relayed(), bytes.abandoned), (received, 0));
        }
    }
    if is_whole {
        assert_eq!(
            totals.ended_by(Ending::Finished),
            totals.accepted,
            "{totals:?}"
        );
    }
}

const LONGEST: Duration = Duration::from_secs(60);

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(1), 2..5000_usize, 60_000..400_000_usize]
}

fn end() -> impl Strategy<Value = End> {
    let chunk = || prop_oneof![1..100_usize, 100..10_000_usize, Just(1 << 16)];
    let window = prop_oneof![2 => Just(None), 1 => (1..8000_usize).prop_map(Some)];
    let reset = prop_oneof![4 => Just(None), 1 => (0..200_000_usize).prop_map(Some)];
    (size(), chunk(), chunk(), window, reset).prop_map(
        |(bytes, write, read, window, reset_after)| {
            End {
                // Writing one byte a call takes long.
                bytes: bytes.min(write.min(read) * 500),
                write,
                read,
                window,
                reset_after,
                listens_first: false,
            }
        },
    )
}

fn pair() -> impl Strategy<Value = (End, End)> {
    (end(), end(), 0..4_u8).prop_map(|(mut client, mut server, first)| {
        client.listens_first = first == 1;
        server.listens_first = first == 2;
        // With a window smaller than a segment the persist timer sets the pace.
        let most = |window: Option<usize>| window.map_or(usize::MAX, |_| 12_000);
        client.bytes = client.bytes.min(most(server.window));
        server.bytes = server.bytes.min(most(client.window));
        (client, server)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_reordered(
        pairs in prop::collection::vec(pair(), 1..6),
        pipes in 0..3_usize,
        holds in any::<bool>(),
    ) {
        each_mode(|mode| {
            check(mode, pipes, if holds { 16 << 20 } else { 0 }, &pairs);
        });
    }
}

/// Connects and reads. An immediate reset may arrive before connect returns.
fn read_from(address: SocketAddr) -> io::Result<usize> {
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(LONGEST))?;
    client.read(&mut [0])
}

fn plain(bytes: usize) -> End {
    End {
        bytes,
        write: 1 << 16,
        read: 1 << 16,
        window: None,
        reset_after: None,
        listens_first: false,
    }
}

#[test]
fn an_end_is_carried_through_and_the_other_way_goes_on() {
    let asks = plain(100_000);
    let answers = End {
        listens_first: true,
        ..plain(300_000)
    };
    each_mode(|mode| {
        check(mode, 4, 1 << 20, &[(asks.clone(), answers.clone())]);
        check(mode, 4, 1 << 20, &[(answers.clone(), asks.clone())]);
    });
}

#[test]
fn each_mode_moves_bytes_as_it_is_called() {
    each_mode(|mode| {
        let pairs = [(plain(4 << 20), plain(4 << 20))];
        let Some((_, totals)) = relayed(mode, |server| to(server, mode), &pairs) else {
            return;
        };
        for bytes in totals.bytes {
            assert_eq!(bytes.relayed(), 4 << 20, "{mode:?}");
            match mode {
                RelayMode::Copy | RelayMode::IoUring | RelayMode::UserCopy => {
                    assert_eq!(bytes.copied, 4 << 20, "{mode:?}")
                }
                RelayMode::Splice => assert_eq!(bytes.spliced, 4 << 20),
                RelayMode::User => assert_eq!(bytes.redirected + bytes.copied, 4 << 20),
                RelayMode::Auto => assert!(bytes.abandoned == 0),
                RelayMode::Sockmap => unreachable!("it is refused"),
            }
        }
    });
}

#[test]
fn without_a_pipe_it_goes_on_by_copy() {
    let pairs = [(plain(100_000), plain(100_000))];
    let none = |server: &TcpListener| Config {
        pipes_max: 0,
        ..to(server, RelayMode::Splice)
    };
    let (_, totals) = relayed(RelayMode::Splice, none, &pairs).unwrap();
    assert!(totals.pipe_shortages > 0);
    assert_eq!(totals.bytes.map(|bytes| bytes.copied), [100_000; 2]);
}

#[test]
fn a_reset_reaches_the_other_side_after_what_was_said_before() {
    each_mode(|mode| {
        let server = server_for(mode);
        let Ok((relay, address)) = try_start(to(&server, mode)) else {
            return;
        };
        for breaks_off in [Direction::ToServer, Direction::ToClient] {
            let client = dial(address, None);
            let (served, _) = server.accept().unwrap();
            let (mut from, mut to) = match breaks_off {
                Direction::ToServer => (client, served),
                Direction::ToClient => (served, client),
            };
            to.set_read_timeout(Some(LONGEST)).unwrap();
            from.write_all(b"last words").unwrap();
            // Received by the kernel, so that the reset cannot overtake the bytes.
            let mut words = [0; 10];
            to.read_exact(&mut words).unwrap();
            assert_eq!(&words, b"last words");
            sockopt::set_socket_linger(&from, Some(Duration::ZERO)).unwrap();
            drop(from);
            let error = to.read(&mut words).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{mode:?}");
        }
        until("both are over", || {
            (relay.counters().totals().open == 0).then_some(())
        });
        let totals = relay.counters().totals();
        assert_eq!(
            totals.ended_by(Ending::ClientReset),
            1,
            "{mode:?} {totals:?}"
        );
        assert_eq!(
            totals.ended_by(Ending::ServerReset),
            1,
            "{mode:?} {totals:?}"
        );
    });
}

/// The urgent mark is not relayed, and the byte stays in its place in the stream.
#[test]
fn urgent_data_is_relayed_in_line_whatever_is_behind_it() {
    use rustix::net::{SendFlags, send};
    const BEFORE: usize = 4_000_000;
    const ALL: usize = 5_000_001;
    let stream: Vec<u8> = (0..ALL).map(|at| byte(3, at)).collect();
    each_mode(|mode| {
        // All at once, and with a receiver that reads before the bytes after the mark are sent.
        for waits in [false, true] {
            let server = server_for(mode);
            let Ok((relay, address)) = try_start(to(&server, mode)) else {
                return;
            };
            let client = dial(address, None);
            let (mut served, _) = server.accept().unwrap();
            client.set_write_timeout(Some(LONGEST)).unwrap();
            served.set_read_timeout(Some(LONGEST)).unwrap();
            let (mut client, stream) = (&client, &stream);
            let (read, heard) = std::sync::mpsc::channel();
            let received = std::thread::scope(|scope| {
                scope.spawn(move || {
                    client.write_all(&stream[..BEFORE]).unwrap();
                    let urgent = &stream[BEFORE..=BEFORE];
                    assert_eq!(send(client, urgent, SendFlags::OOB), Ok(1));
                    if waits {
                        heard.recv().unwrap();
                    }
                    client.write_all(&stream[BEFORE + 1..]).unwrap();
                    client.shutdown(Shutdown::Write).unwrap();
                });
                let mut received = vec![0; BEFORE + 1];
                // The byte itself comes without a wait.
                served.read_exact(&mut received).unwrap();
                let _ = read.send(()); // No thread waits in the other case.
                served.read_to_end(&mut received).unwrap();
                received
            });
            assert_eq!(received.len(), ALL, "{mode:?}");
            assert!(&received == stream, "{mode:?}: other bytes");
            served.shutdown(Shutdown::Write).unwrap();
            until("it is over", || {
                (relay.counters().totals().open == 0).then_some(())
            });
            let totals = relay.counters().totals();
            let bytes = totals.bytes[0];
            assert_eq!((bytes.relayed(), bytes.abandoned), (ALL as u64, 0));
            assert_eq!(totals.ended_by(Ending::Finished), 1, "{mode:?} {totals:?}");
        }
    });
}

#[test]
fn an_answer_that_was_sent_before_the_server_closed_is_delivered() {
    // A server that answers before it has read all of a request, and closes: the unread bytes make
    // the close a reset.
    each_mode(|mode| {
        let server = server_for(mode);
        let Ok((relay, address)) = try_start(to(&server, mode)) else {
            return;
        };
        let mut client = dial(address, None);
        client.set_read_timeout(Some(LONGEST)).unwrap();
        client.write_all(&[1; 1000]).unwrap();
        let (mut served, _) = server.accept().unwrap();
        served.read_exact(&mut [0; 10]).unwrap();
        served.write_all(b"no").unwrap();
        drop(served);
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"no", "{mode:?}");
        drop(relay);
    });
}

#[test]
fn a_slow_reader_slows_its_sender() {
    each_mode(|mode| {
        let server = server_for(mode);
        let config = Config {
            send_buffer: Some(64 << 10),
            receive_buffer: Some(64 << 10),
            ..to(&server, mode)
        };
        let Ok((relay, address)) = try_start(config) else {
            return;
        };
        let client = dial(address, None);
        let (mut served, _) = server.accept().unwrap();
        sockopt::set_socket_recv_buffer_size(&served, 64 << 10).unwrap();
        client.set_nonblocking(true).unwrap();
        let (mut sent, mut refusals) = (0, 0);
        // No server reads. A relay that buffers without a limit would accept all bytes.
        while refusals < 40 {
            match (&client).write(&[7; 1 << 16]) {
                Ok(bytes) => (sent, refusals) = (sent + bytes, 0),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{mode:?}");
                    refusals += 1;
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
            assert!(sent < ENOUGH, "{mode:?} took {sent} bytes that nobody read");
        }
        client.shutdown(Shutdown::Write).unwrap();
        let mut received = 0;
        let mut buffer = vec![0; 1 << 16];
        served.set_read_timeout(Some(LONGEST)).unwrap();
        loop {
            match served.read(&mut buffer).unwrap() {
                0 => break,
                bytes => received += bytes,
            }
        }
        assert_eq!(received, sent, "{mode:?}");
        drop(relay);
    });
}

/// More bytes than four queues of the kernel and a relay hold.
const ENOUGH: usize = 64 << 20;

/// Starts a relay. `Err` if the mode is not available.
fn try_start(config: Config) -> Result<(Relay, SocketAddr), ()> {
    let started = match config.mode.is_user() {
        true => start_user(config),
        false => {
            let local = ["127.0.0.1:0".parse().unwrap()];
            let listeners = bind(&local, 1, &config).unwrap();
            let address = listeners[0][0].local_addr().unwrap();
            Relay::start(listeners, config).map(|relay| (relay, address))
        }
    };
    match started {
        Ok(started) => Ok(started),
        Err(StartError::Unavailable { mode, why, .. }) => {
            tcpcost_testbed::skip(&format!("mode {}: {why}", mode.word()));
            Err(())
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn at_the_limit_accepting_stops_and_whoever_waits_is_taken_later() {
    each_loop(|mode| {
        let server = server_for(mode);
        let config = Config {
            connections_max: 2,
            ..to(&server, mode)
        };
        let (relay, address) = start(config);
        let mut clients: Vec<_> = (0..4).map(|_| dial(address, None)).collect();
        let first: Vec<_> = (0..2).map(|_| server.accept().unwrap().0).collect();
        until("accepting pauses", || {
            (relay.counters().totals().accept_pauses > 0).then_some(())
        });
        assert_eq!(relay.counters().totals().open, 2);
        for mut client in &clients {
            client.write_all(b"x").unwrap();
        }
        drop(first);
        clients.drain(..2);
        for _ in 0..2 {
            let (mut served, _) = server.accept().unwrap();
            served.set_read_timeout(Some(LONGEST)).unwrap();
            let mut byte = [0];
            served.read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        }
    });
}

#[test]
fn an_upstream_that_refuses_is_left_out() {
    each_loop(|mode| {
        let server = server_for(mode);
        let mut config = to(&server, mode);
        config.to.insert(0, nobody(mode));
        let (relay, address) = start(config);
        for _ in 0..6 {
            let mut client = dial(address, None);
            client.write_all(b"x").unwrap();
            let (mut served, _) = server.accept().unwrap();
            served.read_exact(&mut [0]).unwrap();
        }
        assert_eq!(relay.counters().totals().connect_failures, 1);
    });
}

/// Makes a server that accepts no connection until its queue is emptied: SYNs are dropped there.
/// The stream that fills the queue is returned, too.
fn silent_server(mode: RelayMode) -> (TcpListener, TcpStream) {
    let server = server_for(mode);
    rustix::net::listen(&server, 0).unwrap();
    let port = server.local_addr().unwrap().port();
    let filler = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    (server, filler)
}

#[test]
fn a_client_that_leaves_while_its_upstream_connects_frees_its_place() {
    each_mode(|mode| {
        let (server, _filler) = silent_server(mode);
        let config = Config {
            connections_max: 1,
            connect_timeout: 10 * LONGEST,
            ..to(&server, mode)
        };
        let Ok((relay, address)) = try_start(config) else {
            return;
        };
        // A client that ends without having sent anything, and one that resets after it sent
        // something.
        for (said, count) in [(&b""[..], 1), (&b"GET /"[..], 2)] {
            let mut client = dial(address, None);
            client.write_all(said).unwrap();
            until("it is taken", || {
                (relay.counters().totals().accepted == count).then_some(())
            });
            if !said.is_empty() {
                sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            }
            drop(client);
        }
        until("both are over", || {
            (relay.counters().totals().open == 0).then_some(())
        });
        let totals = relay.counters().totals();
        assert_eq!(totals.ended_by(Ending::ClientReset), 2, "{mode:?}");
        assert_eq!(totals.connect_failures, 0, "the upstream refused nothing");
    });
}

#[test]
fn what_a_client_said_before_its_end_waits_for_the_upstream() {
    each_loop(|mode| {
        let (server, _filler) = silent_server(mode);
        let (relay, address) = start(Config {
            connect_timeout: 10 * LONGEST,
            ..to(&server, mode)
        });
        let mut client = dial(address, None);
        client.write_all(b"request").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        until("it is taken", || {
            (relay.counters().totals().accepted == 1).then_some(())
        });
        // The queue has room again, and the next SYN is accepted.
        drop(server.accept().unwrap());
        let (mut served, _) = server.accept().unwrap();
        served.set_read_timeout(Some(LONGEST)).unwrap();
        let mut request = Vec::new();
        served.read_to_end(&mut request).unwrap();
        assert_eq!(request, b"request");
        served.write_all(b"answer").unwrap();
        drop(served);
        client.set_read_timeout(Some(LONGEST)).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"answer");
    });
}

#[test]
fn without_an_upstream_the_client_is_reset() {
    each_loop(|mode| {
        let (relay, address) = start(Config {
            mode,
            connections_max: 8,
            ..Config::new(nobody(mode))
        });
        let error = read_from(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        until("it is counted", || {
            let totals = relay.counters().totals();
            (totals.ended_by(Ending::NoUpstream) == 1).then_some(())
        });
    });
}

#[test]
fn who_is_not_allowed_is_reset() {
    each_loop(|mode| {
        let server = server_for(mode);
        let (relay, address) = start(Config {
            allow: vec!["192.0.2.0/24".parse().unwrap()],
            ..to(&server, mode)
        });
        assert!(read_from(address).is_err());
        until("it is counted", || {
            let totals = relay.counters().totals();
            (totals.ended_by(Ending::Denied) == 1 && totals.open == 0).then_some(())
        });
    });
}

#[test]
fn what_is_idle_ends_by_time() {
    each_loop(|mode| {
        let server = server_for(mode);
        let (relay, address) = start(Config {
            idle_timeout: Some(Duration::from_millis(50)),
            ..to(&server, mode)
        });
        let _client = dial(address, None);
        let _served = server.accept().unwrap();
        until("it is idle", || {
            (relay.counters().totals().ended_by(Ending::Idle) == 1).then_some(())
        });
    });
}

#[test]
fn who_sends_no_proxy_header_is_reset_in_time() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (relay, address) = start(Config {
        connect_timeout: Duration::from_millis(50),
        proxy_in: true,
        ..to(&server, RelayMode::Copy)
    });
    let mut client = dial(address, None);
    client.write_all(b"PROXY ").unwrap();
    until("it sends no header", || {
        (relay.counters().totals().ended_by(Ending::BadHeader) == 1).then_some(())
    });
}

#[test]
fn a_proxy_header_goes_in_and_out_and_not_a_byte_behind_it_is_lost() {
    let ends = Ends {
        source: "192.0.2.7:1234".parse().unwrap(),
        destination: "198.51.100.1:443".parse().unwrap(),
    };
    for mode in kernel_modes() {
        for (taken, given) in [
            (ProxyVersion::V1, ProxyVersion::V2),
            (ProxyVersion::V2, ProxyVersion::V1),
        ] {
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let config = Config {
                proxy_in: true,
                proxy_out: Some(given),
                ..to(&server, mode)
            };
            let Ok((relay, address)) = try_start(config) else {
                continue;
            };
            let mut client = dial(address, None);
            let header = proxy_header(taken, Some(ends));
            // In two pieces, the second with data.
            client.write_all(&header[..9]).unwrap();
            client
                .write_all(&[&header[9..], &b"data"[..]].concat())
                .unwrap();
            let (mut served, _) = server.accept().unwrap();
            served.set_read_timeout(Some(LONGEST)).unwrap();
            let expected = [&proxy_header(given, Some(ends))[..], &b"data"[..]].concat();
            let mut seen = vec![0; expected.len()];
            served.read_exact(&mut seen).unwrap();
            assert_eq!(seen, expected, "{mode:?}");
            let connections = relay.counters().connections();
            assert_eq!(connections[0].source, Some(ends.source));
            let mut wrong = dial(address, None);
            wrong.set_read_timeout(Some(LONGEST)).unwrap();
            wrong.write_all(b"GET / HTTP/1.1\r\n").unwrap();
            assert!(wrong.read(&mut [0]).is_err());
        }
    }
}

#[test]
fn a_proxy_header_may_have_64_kib_also_where_the_receive_queue_is_smaller() {
    let ends = Ends {
        source: "192.0.2.7:1234".parse().unwrap(),
        destination: "198.51.100.1:443".parse().unwrap(),
    };
    let mut header = proxy_header(ProxyVersion::V2, Some(ends));
    // The largest value of the 16-bit field.
    header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    header.resize(16 + usize::from(u16::MAX), 7);
    for mode in kernel_modes() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config {
            proxy_in: true,
            receive_buffer: Some(4096),
            ..to(&server, mode)
        };
        let Ok((relay, address)) = try_start(config) else {
            continue;
        };
        let mut client = dial(address, None);
        client.set_write_timeout(Some(LONGEST)).unwrap();
        client.write_all(&header).unwrap();
        client.write_all(b"data").unwrap();
        let (mut served, _) = server.accept().unwrap();
        served.set_read_timeout(Some(LONGEST)).unwrap();
        let mut seen = [0; 4];
        served.read_exact(&mut seen).unwrap();
        assert_eq!(&seen, b"data", "{mode:?}");
        let connections = relay.counters().connections();
        assert_eq!(connections[0].source, Some(ends.source));
    }
}

#[test]
fn a_drained_relay_takes_no_more_and_lets_the_others_finish() {
    each_loop(|mode| {
        let server = server_for(mode);
        let (relay, address) = start(to(&server, mode));
        let mut client = dial(address, None);
        let (mut served, _) = server.accept().unwrap();
        relay.stopper().drain();
        until("it listens no more", || {
            TcpStream::connect(address).is_err().then_some(())
        });
        client.write_all(b"still").unwrap();
        let mut said = [0; 5];
        served.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"still");
        // Connections that were accepted meanwhile are with the server, too.
        drop((client, served, server));
        let totals = relay.wait().unwrap();
        assert!(totals.ended_by(Ending::Finished) >= 1, "{totals:?}");
    });
}

#[test]
fn unix_sockets_are_relayed_too_and_their_files_go() {
    use std::os::unix::net::{UnixListener, UnixStream};
    let place = tempfile::tempdir().unwrap();
    let [front, back] = ["front", "back"].map(|name| place.path().join(name));
    for mode in kernel_modes() {
        let server = UnixListener::bind(&back).unwrap();
        let config = Config {
            mode,
            connections_max: 8,
            ..Config::new(Address::Unix(back.clone()))
        };
        let listeners = bind(&[Address::Unix(front.clone())], 2, &config).unwrap();
        let relay = match Relay::start(listeners, config) {
            Err(StartError::Unavailable { .. }) => {
                std::fs::remove_file(&back).unwrap();
                continue;
            }
            started => started.unwrap(),
        };
        let mut client = UnixStream::connect(&front).unwrap();
        let (mut served, _) = server.accept().unwrap();
        let sent: Vec<u8> = (0..1_000_000).map(|at| byte(1, at)).collect();
        let received = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                client.write_all(&sent).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            served.read_to_end(&mut received).unwrap();
            sender.join().unwrap();
            received
        });
        assert!(received == sent, "{mode:?}: other bytes");
        relay.stopper().end();
        relay.wait().unwrap();
        assert!(!front.exists());
        std::fs::remove_file(&back).unwrap();
    }
}

#[test]
fn only_a_socket_that_nobody_listens_on_is_replaced() {
    use std::os::unix::net::UnixListener;
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let listens = |path: &std::path::Path| {
        let config = Config::new(Address::Unix(at("back")));
        bind(&[Address::Unix(path.to_path_buf())], 1, &config).map_err(|(_, error)| error)
    };
    std::fs::write(at("file"), "precious").unwrap();
    drop(UnixListener::bind(at("abandoned")).unwrap());
    std::os::unix::fs::symlink(at("abandoned"), at("link")).unwrap();
    let _used = UnixListener::bind(at("used")).unwrap();
    for (name, kind) in [
        ("file", std::io::ErrorKind::AlreadyExists),
        ("link", std::io::ErrorKind::AlreadyExists),
        ("used", std::io::ErrorKind::AddrInUse),
    ] {
        assert_eq!(listens(&at(name)).unwrap_err().kind(), kind, "{name}");
        assert!(at(name).symlink_metadata().is_ok(), "{name}");
    }
    assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
    // A file that replaced our socket stays when our socket is removed.
    let ours = listens(&at("abandoned")).unwrap();
    std::fs::remove_file(at("abandoned")).unwrap();
    let _other = UnixListener::bind(at("abandoned")).unwrap();
    drop(ours);
    assert!(at("abandoned").exists());
}

#[test]
fn a_listener_knows_who_would_come_back_to_it() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("front");
    std::os::unix::fs::symlink(&path, place.path().join("link")).unwrap();
    let unix = |name: &str| format!("unix:{}", place.path().join(name).display());
    let name = format!("unix:@{}", path.display());
    let own = ["10.0.0.1", "127.0.0.9", "127.0.0.1", "2001:db8::1", "::1"];
    let own = own.map(|ip| ip.parse::<IpAddr>().unwrap());
    // PORT is the port that the listener got.
    for (listen, to, takes) in [
        ("127.0.0.1:0", "127.0.0.1:PORT", true),
        ("127.0.0.1:0", "[::ffff:127.0.0.1]:PORT", true),
        ("127.0.0.1:0", "0.0.0.0:PORT", true),
        ("127.0.0.1:0", "127.0.0.1:1", false),
        ("127.0.0.1:0", "127.0.0.2:PORT", false),
        ("0.0.0.0:0", "127.0.0.9:PORT", true),
        ("0.0.0.0:0", "10.0.0.1:PORT", true),
        ("0.0.0.0:0", "10.0.0.2:PORT", false),
        ("0.0.0.0:0", "[2001:db8::1]:PORT", false),
        ("[::]:0", "127.0.0.1:PORT", true),
        ("[::]:0", "[2001:db8::1]:PORT", true),
        ("[::]:0", "[2001:db8::2]:PORT", false),
        ("[::]:0", "[::]:PORT", true),
        (&unix("front"), &unix("front"), true),
        (&unix("front"), &unix("link"), true),
        (&unix("front"), &unix("back"), false),
        (&name, &name, true),
        (&name, &unix("front"), false),
    ] {
        let local: Address = listen.parse().unwrap();
        let config = Config::new(local.clone());
        let bound = bind(&[local], 1, &config).unwrap();
        let port = bound[0][0].local_addr().map_or(0, |local| local.port());
        let to: Address = to.replace("PORT", &port.to_string()).parse().unwrap();
        let is_own = |ip: IpAddr| own.contains(&ip);
        assert_eq!(bound[0][0].takes(&to, is_own), takes, "{listen} {to}");
    }
}

#[test]
fn sockmap_is_refused_with_the_reason_and_the_mode_that_works() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = to(&server, RelayMode::Sockmap);
    let listeners = bind(&["127.0.0.1:0".parse().unwrap()], 1, &config).unwrap();
    let error = Relay::start(listeners, config).unwrap_err().to_string();
    assert!(error.contains("no back-pressure"), "{error}");
    assert!(error.ends_with("--mode auto works here"), "{error}");
}
