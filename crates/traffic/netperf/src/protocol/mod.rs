//! netperf's control protocol: messages of 656 bytes in both directions over one TCP connection, a request
//! and its answers.
//!
//! A message has 164 words of 32 bits in network order. The first is the kind of the message. The second is
//! the CPU for netserver in a request, and an errno in an answer. The other 162 words depend on the test.
//! Text in them is not swapped. The protocol has no version: a request for a test that the other side does
//! not know gets errno 998 (netperf's `netlib.h`, union `netperf_request_struct`, and `netserver.c`).

pub mod classic;
pub mod exact;
pub mod omni;

use std::io::{self, Read, Write};

use tcpcost_counts::Printable;

/// Number of words of a message that belong to the test (`MAXSPECDATA`).
pub const WORDS: usize = 162;

/// Number of bytes of a message.
pub const MESSAGE_BYTES: usize = (2 + WORDS) * 4;

/// Kinds of messages (`request_type`, `response_type`).
pub mod kind {
    /// Asks for more log output. It is answered and has no effect.
    pub const DEBUG_ON: i32 = 1;
    /// Asks for less log output. It is answered and has no effect.
    pub const DEBUG_OFF: i32 = 2;
    /// Answers both debug requests.
    pub const DEBUG_OK: i32 = 3;
    /// Asks for the speed of the CPU. Methods without calibration answer 0 and the number of CPUs.
    pub const CPU_CALIBRATE: i32 = 5;
    /// Passphrase that a netserver may require first (`-Z`).
    pub const PASSPHRASE: i32 = 6;
    /// Classic test, one way to netserver.
    pub const TCP_STREAM: i32 = 10;
    /// Classic test with request and response.
    pub const TCP_RR: i32 = 13;
    /// Classic test with connect, request, response, close.
    pub const TCP_CRR: i32 = 34;
    /// Classic test, one way from netserver.
    pub const TCP_MAERTS: i32 = 94;
    /// Any test since 2.5.
    pub const OMNI: i32 = 97;
    /// Asks for the machine's properties: "Deprecated" since 2.7.
    pub const SYSINFO: i32 = 600;
}

/// Limit on the seconds of a test at our netserver: a day. Longer tests are refused.
pub const LENGTH_MAX_S: i32 = 86_400;

/// Errno of netserver for a test that it does not know.
pub const UNKNOWN_TEST: i32 = 998;
/// Errno for a wrong passphrase.
pub const WRONG_PASSPHRASE: i32 = 403;
/// Value of `cpu_method` for /proc/stat (`PROC_STAT`).
pub const PROC_STAT: u32 = 8;

/// Message in either direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Kind of the message, one of [`kind`]. An answer's kind is its request's plus 1.
    pub kind: i32,
    /// In a request the CPU to run on, −1 for any. In an answer an errno, 0 for none.
    pub aside: i32,
    /// Words of the test, as on the wire.
    pub body: [u8; WORDS * 4],
}

impl Message {
    /// Makes a message with an empty body.
    pub fn new(kind: i32, aside: i32) -> Message {
        Message {
            kind,
            aside,
            body: [0; WORDS * 4],
        }
    }

    /// Reads a message from its bytes on the wire.
    pub fn from_bytes(bytes: &[u8; MESSAGE_BYTES]) -> Message {
        let mut message = Message::new(word(bytes, 0) as i32, word(bytes, 1) as i32);
        message.body.copy_from_slice(&bytes[8..]);
        message
    }

    /// Writes a message as bytes on the wire.
    pub fn to_bytes(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..4].copy_from_slice(&self.kind.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.aside.to_be_bytes());
        bytes[8..].copy_from_slice(&self.body);
        bytes
    }

    /// Sends the message with one call.
    ///
    /// # Errors
    /// The connection fails.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())
    }

    /// Receives a message. `None` if the other side has closed between two messages.
    ///
    /// # Errors
    /// The connection fails; [`io::ErrorKind::UnexpectedEof`] if it ends within a message.
    pub fn receive(from: &mut impl Read) -> io::Result<Option<Message>> {
        let mut bytes = [0; MESSAGE_BYTES];
        let mut have = 0;
        while have < MESSAGE_BYTES {
            match from.read(&mut bytes[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => have += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Message::from_bytes(&bytes)))
    }
}

/// Reads a word of a message, or of its body.
fn word(bytes: &[u8], index: usize) -> u32 {
    let word = bytes[index * 4..][..4].try_into();
    u32::from_be_bytes(word.expect("four bytes are four bytes"))
}

/// Writes fields of a body one after the other.
pub(crate) struct Writer<'a> {
    body: &'a mut [u8; WORDS * 4],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(body: &'a mut [u8; WORDS * 4]) -> Writer<'a> {
        Writer { body, at: 0 }
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Writer<'a> {
        self.body[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    pub fn i32(self, value: i32) -> Writer<'a> {
        self.bytes(&value.to_be_bytes())
    }

    pub fn u32(self, value: u32) -> Writer<'a> {
        self.bytes(&value.to_be_bytes())
    }

    pub fn f32(self, value: f32) -> Writer<'a> {
        self.bytes(&value.to_be_bytes())
    }

    pub fn f64(self, value: f64) -> Writer<'a> {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes text in `width` bytes, the last of which is 0.
    pub fn text(mut self, text: &str, width: usize) -> Writer<'a> {
        let fits = text.len().min(width - 1);
        self.body[self.at..][..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.at += width;
        self
    }
}

/// Reads fields of a body one after the other.
pub(crate) struct Reader<'a> {
    body: &'a [u8; WORDS * 4],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(body: &'a [u8; WORDS * 4]) -> Reader<'a> {
        Reader { body, at: 0 }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.body[self.at..][..N].try_into();
        self.at += N;
        bytes.expect("so many were asked for")
    }

    pub fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    pub fn f32(&mut self) -> f32 {
        f32::from_be_bytes(self.take())
    }

    pub fn skip(&mut self, words: usize) {
        self.at += 4 * words;
    }

    pub fn bytes(&mut self, width: usize) -> &'a [u8] {
        let bytes = &self.body[self.at..][..width];
        self.at += width;
        bytes
    }

    /// Reads text in `width` bytes, up to the first 0, as a printable line.
    pub fn text(&mut self, width: usize) -> Printable {
        let bytes = self.bytes(width);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(width);
        Printable::of_bytes(&bytes[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_656_bytes_in_network_order() {
        let mut message = Message::new(kind::OMNI, -1);
        message.body[0] = 7;
        let bytes = message.to_bytes();
        assert_eq!(bytes.len(), 656);
        assert_eq!(bytes[..9], [0, 0, 0, 97, 255, 255, 255, 255, 7]);
        assert_eq!(Message::from_bytes(&bytes), message);
    }

    #[test]
    fn an_end_between_messages_is_none_and_within_one_an_error() {
        assert!(Message::receive(&mut &[][..]).unwrap().is_none());
        let error = Message::receive(&mut &[0; 655][..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn what_is_read_of_any_bytes_is_written_again(bytes in proptest::collection::vec(any::<u8>(), MESSAGE_BYTES)) {
            let bytes: [u8; MESSAGE_BYTES] = bytes.try_into().unwrap();
            prop_assert_eq!(Message::from_bytes(&bytes).to_bytes(), bytes);
        }
    }
}
