//! Tests of refused connections, failures, and the texts of errors.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::{TOKEN, client, limit, run_while, server, settings};
use tcpcost_counts::Quantity as Q;
use tcpcost_stack::{KernelStack, Stack, StackError};
use tcpcost_testbed::until;
use tcpcost_workload::{Worker, WorkloadError, socket_options};

/// Connects as a client does: sends a hello and reads the answer.
fn greeted(target: SocketAddr, index: u32) -> TcpStream {
    let mut stream = TcpStream::connect(target).unwrap();
    let mut hello = TOKEN.to_vec();
    hello.extend_from_slice(&index.to_be_bytes());
    stream.write_all(&hello).unwrap();
    let mut answer = vec![0; hello.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, hello);
    stream
}

/// True if the stream is closed or reset: either way no bytes come.
fn is_shut(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(1..))
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let settings = settings(&[("flows", "3")]);
    // The kernel drops SYNs to a listener whose queue is full, as a firewall does.
    let mut stack = KernelStack::new(&socket_options(&settings)).unwrap();
    let listener = stack.listen(([127, 0, 0, 1], 0).into(), 0, 0).unwrap();
    let target = stack.local_addr(listener).unwrap();
    let mut full = Vec::new();
    until("a full queue", || {
        let connected = TcpStream::connect_timeout(&target, Duration::from_millis(50));
        connected
            .map(|stream| full.push(stream))
            .is_err()
            .then_some(())
    });
    let mut client = client(&settings, &[target]);
    let error = client
        .set_up(Instant::now() + Duration::from_millis(50))
        .unwrap_err();
    let expected = format!("0 of 3 connections came up: connect: {target}: no answer");
    assert_eq!(error.to_string(), expected);
    drop(full);
}

#[test]
fn a_stranger_is_refused_and_the_trial_goes_on() {
    let settings = settings(&[("flows", "1")]);
    let mut server = server(&settings, 1);
    let target = server.ports()[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stranger = TcpStream::connect(target).unwrap();
            stranger.write_all(&[0; 20]).unwrap();
            assert!(is_shut(&mut stranger));
            // The token with one bit changed.
            let mut other_token = TcpStream::connect(target).unwrap();
            let mut hello = TOKEN.to_vec();
            *hello.last_mut().unwrap() ^= 1;
            hello.extend_from_slice(&0u32.to_be_bytes());
            other_token.write_all(&hello).unwrap();
            assert!(is_shut(&mut other_token));
            // Indices may exceed the flows of this server: a client numbers its connections to all
            // servers.
            greeted(target, 7)
        });
        server.set_up(limit()).unwrap();
    });
    assert_eq!(server.strangers(), 2);
    assert_eq!(server.conns().count(), 1);
    assert!(
        TcpStream::connect(target).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn a_crr_request_without_the_token_is_refused() {
    let settings = settings(&[("workload", "crr"), ("request_size", "20B"), ("flows", "1")]);
    let mut server = server(&settings, 1);
    let target = server.ports()[0];
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || {
            greeted(target, 0);
            let mut stranger = TcpStream::connect(target).unwrap();
            stranger.write_all(&[1; 20]).unwrap();
            assert!(is_shut(&mut stranger));
            let mut friend = TcpStream::connect(target).unwrap();
            friend.write_all(&TOKEN).unwrap();
            friend.write_all(&[1; 4]).unwrap();
            assert_eq!(friend.read(&mut [0; 64]).unwrap(), 1);
            assert!(is_shut(&mut friend), "the server closes first");
        });
        server.set_up(limit()).unwrap();
        run_while(&mut server, |_| !peer.is_finished()).unwrap();
    });
    assert_eq!(server.strangers(), 1);
}

#[test]
fn a_changed_byte_is_named_by_connection_and_offset() {
    let settings = settings(&[("flows", "1"), ("check", "on"), ("receive_with", "read")]);
    let mut server = server(&settings, 1);
    let target = server.ports()[0];
    // Bytes that a correct client sends, recorded from one.
    let mut bytes = vec![0; 5000];
    std::thread::scope(|scope| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut right = client(&settings, &[listener.local_addr().unwrap()]);
        scope.spawn(move || {
            right.set_up(limit()).unwrap();
            run_while(&mut right, |totals| totals[&Q::PayloadBytesSent] < 5000).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        let mut hello = [0; 20];
        stream.read_exact(&mut hello).unwrap();
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut bytes).unwrap();
        // Reads on, so that the client is not reset before it has sent enough.
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    });
    let (right, at) = (bytes[4321], 4321);
    bytes[at] ^= 0x40;
    let error = std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            let mut stream = greeted(target, 0);
            stream.write_all(&bytes).unwrap();
            stream
        });
        server.set_up(limit()).unwrap();
        let _open = peer.join().unwrap();
        run_while(&mut server, |_| true).unwrap_err()
    });
    match error {
        WorkloadError::Mismatch {
            connection,
            offset,
            expected,
            found,
        } => assert_eq!(
            (connection, offset, expected, found),
            (0, at as u64, right, right ^ 0x40)
        ),
        other => panic!("{other}"),
    }
}

#[test]
fn a_peer_that_closes_in_the_middle_is_an_error() {
    let settings = settings(&[("flows", "1")]);
    let mut server = server(&settings, 1);
    let target = server.ports()[0];
    let error = std::thread::scope(|scope| {
        let peer = scope.spawn(move || greeted(target, 0).write_all(&[0; 100]).unwrap());
        server.set_up(limit()).unwrap();
        peer.join().unwrap();
        run_while(&mut server, |_| true).unwrap_err()
    });
    assert_eq!(
        error.to_string(),
        "connection 0: the peer closed it after 100 bytes"
    );
}

#[test]
fn a_set_up_that_fails_says_how_far_it_came() {
    let settings = settings(&[("flows", "3")]);
    let mut nobody_comes = server(&settings, 1);
    let error = nobody_comes.set_up(Instant::now()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0 of 3 connections came up: time was over"
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut two_of_three = client(&settings, &[listener.local_addr().unwrap()]);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // All three have sent their hello, so the client sees the answers before the close.
            let mut streams = [(); 3].map(|()| listener.accept().unwrap().0);
            let mut hellos = [[0; 20]; 3];
            for (stream, hello) in streams.iter_mut().zip(&mut hellos) {
                stream.read_exact(hello).unwrap();
            }
            let [mut first, mut second, third] = streams;
            first.write_all(&hellos[0]).unwrap();
            second.write_all(&hellos[1]).unwrap();
            drop(third);
        });
        two_of_three.set_up(limit()).unwrap_err()
    });
    assert_eq!(
        error.to_string(),
        "2 of 3 connections came up: read hello: the server closed the connection without a hello \
         (another trial's server?)"
    );

    let unused = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let error = client(&settings, &[unused]).set_up(limit()).unwrap_err();
    let refused = format!("0 of 3 connections came up: connect: {unused}: Connection refused");
    assert!(error.to_string().starts_with(&refused), "{error}");
}

#[test]
fn another_trials_server_is_no_server() {
    let settings = settings(&[("flows", "1")]);
    let mut server = server(&settings, 1);
    let target = server.ports()[0];
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let stack = KernelStack::new(&tcpcost_workload::socket_options(&settings)).unwrap();
            let mut client =
                Worker::connect(stack, &settings, [1; 16], &[target], 0..1, 1).unwrap();
            let error = client.set_up(limit()).unwrap_err();
            assert!(
                matches!(error.first, Some(StackError::Call { .. })),
                "{error}"
            );
            greeted(target, 0)
        });
        server.set_up(limit()).unwrap();
        other.join().unwrap();
    });
    assert_eq!(server.strangers(), 1);
}
