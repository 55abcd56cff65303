//! CPU time of one thread with the softirqs for its sockets ([`tcpcost_meter::bpf::Threads`]), by eBPF programs that all instances on
//! a host share, because each copy of the programs costs time at every softirq.
//!
//! A separate process loads the programs. The first instance starts this process, further instances connect to it, and it ends after
//! the last instance. So no instance depends on another instance, and netserver keeps no privilege. The socket is in the folder of the
//! journals, which only the user can enter. An abstract socket's name could be taken by any user, which would deny root the meter.

mod client;
mod process;

use std::io;
use std::path::PathBuf;

pub(crate) use client::{Named, connect};
pub(crate) use process::{is_asked, run};

/// A client's request. Each request gets one [`Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Checks that the process answers.
    Hello,
    /// Measures a thread of the client from now on, by its id.
    Name(u32),
    /// Reads the thread's CPU time since it was named, ns.
    Read(u32),
    /// Stops measuring a thread.
    Forget(u32),
}

/// CPU time in ns, 0 unless the request reads it; or the error, which goes to the client as text.
type Answer = io::Result<u64>;

impl Request {
    fn to_bytes(self) -> [u8; 5] {
        let (kind, tid) = match self {
            Request::Hello => (0, 0),
            Request::Name(tid) => (1, tid),
            Request::Read(tid) => (2, tid),
            Request::Forget(tid) => (3, tid),
        };
        let [a, b, c, d] = tid.to_le_bytes();
        [kind, a, b, c, d]
    }

    fn from_bytes(bytes: &[u8]) -> Option<Request> {
        let &[kind, ref tid @ ..] = <&[u8; 5]>::try_from(bytes).ok()?;
        let tid = u32::from_le_bytes(*tid);
        match kind {
            0 => Some(Request::Hello),
            1 => Some(Request::Name(tid)),
            2 => Some(Request::Read(tid)),
            3 => Some(Request::Forget(tid)),
            _ => None,
        }
    }
}

/// Limit on the bytes of an answer.
const ANSWER_MAX: usize = 512;

fn answer_to_bytes(answer: &Answer) -> Vec<u8> {
    let text = match answer {
        Ok(number) => format!("ok {number}"),
        Err(why) => format!("no {why}"),
    };
    let mut end = text.len().min(ANSWER_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

fn answer_from_bytes(bytes: &[u8]) -> Answer {
    let strange = || io::Error::other("an answer that makes no sense");
    let text = std::str::from_utf8(bytes).map_err(|_| strange())?;
    match text.split_once(' ') {
        Some(("ok", number)) => number.parse().map_err(|_| strange()),
        Some(("no", why)) => Err(io::Error::other(why)),
        _ => Err(strange()),
    }
}

/// Path of the process' file with this extension, in the journals' folder.
fn path(extension: &str) -> io::Result<PathBuf> {
    let folder = tcpcost_host::journal::folder().map_err(io::Error::other)?;
    Ok(folder.join(format!("netperf-meter.{extension}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_stay_what_they_are() {
        for request in [
            Request::Hello,
            Request::Name(1),
            Request::Read(1 << 22),
            Request::Forget(u32::MAX),
        ] {
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        assert_eq!(Request::from_bytes(&[9; 5]), None);
        assert_eq!(Request::from_bytes(&[1; 4]), None);
        let text = |answer: &Answer| answer.as_ref().map_err(ToString::to_string).copied();
        for answer in [Ok(0), Ok(u64::MAX), Err(io::Error::other("no room"))] {
            let read = answer_from_bytes(&answer_to_bytes(&answer));
            assert_eq!(text(&read), text(&answer));
        }
        let long = Err(io::Error::other("é".repeat(ANSWER_MAX)));
        assert!(answer_to_bytes(&long).len() <= ANSWER_MAX);
        assert!(answer_from_bytes(b"ok x").is_err() && answer_from_bytes(b"").is_err());
    }
}
