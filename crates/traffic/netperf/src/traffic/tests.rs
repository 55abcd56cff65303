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
