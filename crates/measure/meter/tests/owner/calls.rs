//! Sends and receives of the command.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use tcpcost_counts::Quantity as Q;

use super::Owners;

/// A file of two pages by sendfile is two sends at most; writes are none.
#[test]
fn what_sendfile_sends_is_by_reference() {
    const FILE: usize = 8192;
    let Some((_alone, owners)) = Owners::load() else {
        return;
    };
    let mut calls = match owners.follower.count_calls() {
        Ok(calls) => calls,
        Err(error) => return tcpcost_testbed::skip(&error.to_string()),
    };
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; FILE]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let before = calls.snapshot().unwrap();
    owners.as_command(|| {
        let mut from = 0;
        let sent = rustix::fs::sendfile(stream.as_fd(), file.as_fd(), Some(&mut from), FILE);
        assert_eq!(sent, Ok(FILE));
        stream.write_all(b"written").unwrap();
    });
    let after = calls.snapshot().unwrap();
    let counts = after.since(&before).unwrap().remove(0).counts;
    let Some(&by_reference) = counts.get(&Q::SocketReferenceSends) else {
        return tcpcost_testbed::skip(&calls.misses().unwrap());
    };
    assert!((1..=2).contains(&by_reference), "{counts:?}");
    assert_eq!(counts[&Q::SocketReferenceBytesSent], FILE as u64);
    assert_eq!(counts[&Q::SocketBytesSent], (FILE + 7) as u64, "{counts:?}");
    assert!(counts[&Q::SocketSends] > by_reference, "{counts:?}");
}
