//! Tests of the io_uring stack against ordinary sockets, over 127.0.0.1: ends of connections, and
//! exhausted buffers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use tcpcost_knobs::{ReceiveWith, SendWith};
use tcpcost_stack::{
    Content, FileSizes, Ready, RingConn, RingSink, RingSource, RingStack, SocketOptions, Stack,
    uring_refusal,
};

/// A test that hangs fails after a minute.
const LIMIT: Duration = Duration::from_secs(60);
const PERIOD: usize = 251;

/// Makes a stack with the fewest possible buffers for reads of `read_bytes`, and with socket
/// buffers of `socket_bytes` if given.
fn stack(read_bytes: usize, socket_bytes: Option<usize>) -> Option<RingStack> {
    if let Some(reason) = uring_refusal() {
        tcpcost_testbed::skip(&reason);
        return None;
    }
    let options = SocketOptions {
        send_buffer_bytes: socket_bytes,
        receive_buffer_bytes: socket_bytes,
        ..SocketOptions::default()
    };
    Some(RingStack::new(&options, 1, read_bytes).unwrap())
}

fn byte(at: u64) -> u8 {
    (at % PERIOD as u64) as u8
}

/// Makes a source with `bytes` bytes of the pattern.
fn source(stack: &mut RingStack, bytes: usize) -> RingSource {
    let mut fill = |at: u64, into: &mut [u8]| {
        into.iter_mut()
            .zip(at..)
            .for_each(|(to, at)| *to = byte(at));
    };
    let mut content = Content {
        bytes: bytes as u64,
        files: FileSizes::new(bytes as u64, false),
        call_bytes: bytes,
        fill: &mut fill,
    };
    stack.source(SendWith::Send, &mut content).unwrap()
}

/// Polls until `done` returns a value.
fn until<T>(stack: &mut RingStack, mut done: impl FnMut(&mut RingStack) -> Option<T>) -> T {
    until_told(stack, |stack, _| done(stack))
}

/// Polls until `done` returns a value; `done` also gets the reported readiness.
fn until_told<T>(
    stack: &mut RingStack,
    mut done: impl FnMut(&mut RingStack, &[Ready]) -> Option<T>,
) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        let count = stack.poll(Some(Duration::from_millis(10))).unwrap();
        let told: Vec<Ready> = (0..count).map(|index| stack.ready(index)).collect();
        if let Some(value) = done(stack, &told) {
            return value;
        }
        assert!(Instant::now() < deadline, "nothing comes");
    }
}

/// Connects the stack to an ordinary socket.
fn connected(stack: &mut RingStack, token: u32) -> (RingConn, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let conn = stack
        .connect(listener.local_addr().unwrap(), token)
        .unwrap();
    until_told(stack, |_, told| {
        let mut told = told.iter();
        told.any(|ready| ready.token == token && ready.writable)
            .then_some(())
    });
    stack.connected(conn).unwrap();
    (conn, listener.accept().unwrap().0)
}

/// Sends all bytes, as there is room.
fn send_all(stack: &mut RingStack, conn: RingConn, source: &mut RingSource, bytes: usize) {
    let mut sent = 0;
    until(stack, |stack| {
        match stack.send(conn, source, sent as u64, bytes - sent, false) {
            Ok(moved) => sent += moved.bytes,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ResourceBusy),
        }
        (sent == bytes).then_some(())
    });
}

/// Receives until the end of the stream.
fn receive_all(stack: &mut RingStack, conn: RingConn, sink: &mut RingSink) -> Vec<u8> {
    let mut all = Vec::new();
    until(stack, |stack| {
        loop {
            match stack.receive(conn, sink) {
                Ok(moved) if moved.bytes == 0 => return Some(()),
                Ok(moved) => all.extend_from_slice(stack.received(sink, moved.bytes).unwrap()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("{error}"),
            }
        }
    });
    all
}

fn is_pattern(bytes: &[u8]) -> bool {
    bytes.iter().zip(0..).all(|(&found, at)| found == byte(at))
}

#[test]
fn what_is_sent_before_a_close_arrives_whole_and_then_the_end() {
    let Some(mut stack) = stack(4096, Some(4608)) else {
        return;
    };
    let (conn, mut peer) = connected(&mut stack, 1);
    // Many more bytes than both buffers take: the kernel continues the send while the connection
    // closes.
    let bytes = 3_000_000;
    let mut source = source(&mut stack, bytes);
    assert_eq!(
        stack
            .send(conn, &mut source, 0, bytes, false)
            .unwrap()
            .bytes,
        bytes
    );
    stack.close(conn);
    assert!(stack.fd(conn).is_none());
    let peer = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    until(&mut stack, |_| peer.is_finished().then_some(()));
    let all = peer.join().unwrap();
    assert_eq!(all.len(), bytes);
    assert!(is_pattern(&all));
}

#[test]
fn a_half_that_is_closed_leaves_the_other_open() {
    let Some(mut stack) = stack(1000, Some(4608)) else {
        return;
    };
    let (conn, mut peer) = connected(&mut stack, 1);
    peer.write_all(b"last words").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let mut sink = stack.sink(ReceiveWith::Read, 3).unwrap();
    assert_eq!(receive_all(&mut stack, conn, &mut sink), b"last words");
    let bytes = 300_000;
    let mut source = source(&mut stack, bytes);
    let peer = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all
    });
    send_all(&mut stack, conn, &mut source, bytes);
    // The FIN follows the bytes in flight.
    stack.finish(conn);
    until(&mut stack, |_| peer.is_finished().then_some(()));
    let all = peer.join().unwrap();
    assert_eq!(all.len(), bytes);
    assert!(is_pattern(&all));
    stack.close(conn);
}

#[test]
fn a_reset_is_told_to_who_receives_and_to_who_sends() {
    for receives in [true, false] {
        let Some(mut stack) = stack(4096, Some(4608)) else {
            return;
        };
        let (conn, peer) = connected(&mut stack, 7);
        let mut source = source(&mut stack, 1 << 20);
        if !receives {
            stack.send(conn, &mut source, 0, 1 << 20, false).unwrap();
            stack.flush().unwrap();
        }
        set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let mut sink = stack.sink(ReceiveWith::Read, 100).unwrap();
        let error = until(&mut stack, |stack| {
            let result = match receives {
                true => stack.receive(conn, &mut sink),
                false => stack.send(conn, &mut source, 0, 10, false),
            };
            let busy = [ErrorKind::WouldBlock, ErrorKind::ResourceBusy];
            result.err().filter(|error| !busy.contains(&error.kind()))
        });
        let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(kinds.contains(&error.kind()), "{error}");
        stack.close(conn);
    }
}

#[test]
fn an_abort_is_a_reset_whatever_is_in_flight() {
    let Some(mut stack) = stack(4096, Some(4608)) else {
        return;
    };
    let (conn, mut peer) = connected(&mut stack, 1);
    let mut source = source(&mut stack, 1 << 20);
    stack.send(conn, &mut source, 0, 1 << 20, false).unwrap();
    stack.flush().unwrap();
    stack.abort(conn);
    let peer = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap_err()
    });
    until(&mut stack, |_| peer.is_finished().then_some(()));
    assert_eq!(peer.join().unwrap().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_refused_connect_says_so() {
    let Some(mut stack) = stack(4096, None) else {
        return;
    };
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let conn = stack.connect(nobody, 3).unwrap();
    until_told(&mut stack, |_, told| {
        told.iter().any(|ready| ready.error).then_some(())
    });
    let error = stack.connected(conn).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    stack.close(conn);
}

/// Sixteen buffers, and eighty connections that all have bytes: connections that find no buffer are
/// read all the same, each byte once.
#[test]
fn connections_that_find_no_buffer_lose_nothing() {
    let Some(mut stack) = stack(512, None) else {
        return;
    };
    let listener = stack
        .listen("127.0.0.1:0".parse().unwrap(), 128, 1 << 31)
        .unwrap();
    let address: SocketAddr = stack.local_addr(listener).unwrap();
    let (count, bytes) = (80, 20_000);
    let message: Vec<u8> = (0..bytes).map(byte).collect();
    let peers: Vec<_> = (0..count)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut conns = Vec::new();
    until(&mut stack, |stack| {
        while let Ok((conn, _)) = stack.accept(listener, conns.len() as u32) {
            conns.push(conn);
        }
        (conns.len() == count).then_some(())
    });
    for peer in &peers {
        (&*peer).write_all(&message).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
    }
    // Nothing is read while the bytes come, so that some connections hold all buffers.
    for _ in 0..20 {
        stack.poll(Some(Duration::ZERO)).unwrap();
    }
    let mut sink = stack.sink(ReceiveWith::Read, 300).unwrap();
    // The last first: it was not among the first to receive.
    for &conn in conns.iter().rev() {
        assert_eq!(receive_all(&mut stack, conn, &mut sink), message);
    }
    for conn in conns {
        stack.close(conn);
    }
    stack.close_listener(listener);
    stack.poll(Some(Duration::ZERO)).unwrap();
}

#[test]
fn what_a_ring_cannot_do_is_refused_by_name() {
    let Some(mut stack) = stack(512, None) else {
        return;
    };
    let error = stack
        .sink(ReceiveWith::Splice, 100)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("receive_with: "), "{error}");
    let (conn, _peer) = connected(&mut stack, 1);
    assert!(stack.cork(conn, true).is_err());
    assert!(stack.blocking(conn).is_err());
}
