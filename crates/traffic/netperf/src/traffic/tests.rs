use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::net::Shutdown;

use super::*;
use crate::latency::Latency;
use crate::net::timers;

/// Both ends of a connection.
fn pair() -> (Arc<OwnedFd>, Arc<OwnedFd>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (Arc::new(client.into()), Arc::new(server.into()))
}

/// Runs a sender and a receiver of one stream.
fn stream(buffer: usize, into: usize, until: Until) -> (Counted, Counted) {
    let (client, server) = pair();
    thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            receive(
                &Live::default(),
                server.as_fd(),
                &mut vec![0; into],
                Until::Time,
                None,
            )
            .unwrap()
        });
        let counted = send(
            &Live::default(),
            client.as_fd(),
            &filler(buffer),
            until,
            None,
        )
        .unwrap();
        rustix::net::shutdown(&*client, Shutdown::Write).unwrap();
        (counted, receiving.join().unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_stream_of_so_many_bytes_has_so_many(bytes in 1_u64..300_000, buffer in 1_usize..70_000, into in 1_usize..70_000) {
        let (sent, received) = stream(buffer, into, Until::Units(bytes));
        prop_assert_eq!(sent.bytes_sent, bytes);
        prop_assert_eq!(received.bytes_received, bytes);
        prop_assert!(sent.send_calls >= bytes.div_ceil(buffer as u64));
    }

    #[test]
    fn each_request_has_its_response(count in 1_u64..50, size in 1_usize..5000, answer in 1_usize..5000, more in 0_u64..4) {
        let (client, server) = pair();
        let (asked, answered) = thread::scope(|scope| {
            let responding = scope.spawn(move || {
                respond(server.as_fd(), &mut vec![0; size], &filler(answer), Until::Time).unwrap()
            });
            let mut latency = Latency::default();
            let live = Live::default();
            let asked = request(&live, client.as_fd(), &filler(size), &mut vec![0; answer], more, Until::Units(count), Some(&mut latency));
            rustix::net::shutdown(&*client, Shutdown::Both).unwrap();
            (asked.unwrap(), responding.join().unwrap())
        });
        prop_assert_eq!(asked.transactions, count);
        prop_assert_eq!(answered.transactions, count);
        prop_assert_eq!(asked.bytes_sent, count * size as u64);
        prop_assert_eq!(asked.bytes_received, count * answer as u64);
    }
}

/// Two sockets of UDP on loopback and their addresses.
fn datagram_pair() -> [(OwnedFd, std::net::SocketAddr); 2] {
    [(); 2].map(|()| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        (socket.into(), address)
    })
}

#[test]
fn each_datagram_is_counted_and_an_empty_one_is_the_end() {
    let [(client, from), (server, to)] = datagram_pair();
    let live = Live::default();
    let sent = send_datagrams(
        &live,
        client.as_fd(),
        Some(to),
        &[7; 100],
        Until::Units(250),
        None,
    );
    assert_eq!(sent.as_ref().unwrap().bytes_sent, 250);
    assert_eq!(live.bytes(), 250);
    // A stranger neither counts nor ends the test.
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[1; 9], to).unwrap();
    stranger.send_to(&[], to).unwrap();
    end_datagrams(client.as_fd(), Some(to));
    let known = |other: std::net::SocketAddr| other == from;
    assert_eq!(next_from(server.as_fd(), known).unwrap(), Some(from));
    let received = receive_datagrams(server.as_fd(), known, &mut [0; 1000], None, false).unwrap();
    assert_eq!((received.receive_calls, received.bytes_received), (3, 250));
}

#[test]
fn a_lost_datagram_does_not_end_a_test_with_a_timeout() {
    let [(client, from), (server, to)] = datagram_pair();
    let timeout = rustix::net::sockopt::Timeout::Recv;
    let time = Some(Duration::from_millis(20));
    rustix::net::sockopt::set_socket_timeout(&client, timeout, time).unwrap();
    let counted = thread::scope(|scope| {
        scope.spawn(|| {
            // The first request is lost.
            rustix::net::recv(&server, &mut [0; 9], rustix::net::RecvFlags::empty()).unwrap();
            let known = |other: std::net::SocketAddr| other == from;
            receive_datagrams(server.as_fd(), known, &mut [0; 9], Some(&[2; 5]), false).unwrap();
        });
        let mut latency = Latency::default();
        let live = Live::default();
        let (until, response) = (Until::Units(10), &mut [0; 5]);
        let done = ask_datagrams(
            &live,
            client.as_fd(),
            Some(to),
            &[1; 3],
            response,
            0,
            until,
            Some(&mut latency),
        );
        end_datagrams(client.as_fd(), Some(to));
        assert_eq!(latency.buckets().total(), 10);
        done.unwrap()
    });
    assert_eq!((counted.transactions, counted.bytes_received), (10, 50));
    assert!(counted.send_calls > 10, "{counted:?}");
}

#[test]
fn the_end_of_the_time_ends_a_wait_for_a_datagram() {
    let [(client, _), (_server, to)] = datagram_pair();
    let client = Arc::new(client);
    let live = Arc::<Live>::default();
    live.watch(&client);
    let ending = Arc::clone(&live);
    let _timer = timers::at(Instant::now() + Duration::from_millis(20), move || {
        ending.end(Some(Shutdown::Read));
        None
    });
    let until = Until::Time;
    let fd = client.as_fd();
    let counted = ask_datagrams(&live, fd, Some(to), &[1], &mut [0], 0, until, None).unwrap();
    assert_eq!((counted.send_calls, counted.transactions), (1, 0));
    // The end can still be announced.
    rustix::net::sendto(fd, &[], rustix::net::SendFlags::empty(), &to).unwrap();
}

#[test]
fn the_end_of_the_time_ends_a_call_that_waits() {
    // The other end does not read, so the sender waits; and it does not send, so the receiver waits.
    for how in [Shutdown::Write, Shutdown::Both] {
        let (client, _server) = pair();
        let live = Arc::<Live>::default();
        live.watch(&client);
        let ending = Arc::clone(&live);
        let _timer = timers::at(Instant::now() + Duration::from_millis(20), move || {
            ending.end(Some(how));
            None
        });
        let counted = match how {
            Shutdown::Write => send(&live, client.as_fd(), &filler(65_536), Until::Time, None),
            _ => request(&live, client.as_fd(), &[1], &mut [0], 0, Until::Time, None),
        };
        assert!(counted.unwrap().bytes_sent > 0);
        assert!(live.is_over());
    }
}

#[test]
fn a_connection_each_ends_with_one_that_asks_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (asked, answered) = thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let live = Live::default();
            let known = |from: std::net::SocketAddr| from.ip().is_loopback();
            accept_each(
                &live,
                listener.as_fd(),
                known,
                &mut [0; 3],
                &[7; 5],
                Until::Time,
                |_| (),
            )
            .unwrap()
        });
        let live = Live::default();
        let connect = || {
            let socket = crate::net::socket::data_socket(
                "127.0.0.1:0".parse().unwrap(),
                &Default::default(),
            );
            connect(&live, socket?, to)
        };
        let mut closed = 0;
        let until = Until::Units(10);
        let closing = |_: std::os::fd::BorrowedFd<'_>| closed += 1;
        let asked = connect_each(&live, connect, &[1; 3], &mut [0; 5], until, None, closing);
        assert_eq!(closed, 10);
        drop(std::net::TcpStream::connect(to).unwrap());
        (asked.unwrap(), accepting.join().unwrap())
    });
    assert_eq!((asked.transactions, answered.transactions), (10, 10));
    assert_eq!(answered.bytes_received, 30);
}

#[test]
fn a_stranger_is_not_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let stranger = std::net::TcpStream::connect(to).unwrap();
    let known = std::net::TcpStream::connect(to).unwrap();
    let from = known.local_addr().unwrap();
    let take = || accept_one(listener.as_fd(), |address| address == from).unwrap();
    assert!(take().is_none());
    let taken = take().unwrap();
    let taken = std::net::TcpStream::from(taken);
    assert_eq!(taken.peer_addr().unwrap(), from);
    // The connection from another address was closed.
    assert_eq!(std::io::Read::read(&mut &stranger, &mut [0]).unwrap(), 0);
}

#[test]
fn so_many_units_are_never_exceeded() {
    assert_eq!(Until::of(10), Until::Time);
    assert_eq!(Until::of(-10), Until::Units(10));
    assert_eq!(Until::of(i32::MIN), Until::Units(1 << 31));
    assert_eq!(Until::Units(10).bound(7, 100), 3);
    assert_eq!(Until::Units(10).bound(12, 100), 0);
    assert_eq!(Until::Time.bound(7, 100), 100);
}
