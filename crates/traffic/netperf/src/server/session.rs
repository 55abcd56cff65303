//! Session of a control connection, from its first message to its last.

use std::net::TcpStream;
use std::sync::Arc;

use super::Server;
use super::connections::Place;
use super::control::{Control, Ends};
use super::limits::{FIRST_MESSAGE, NEXT_MESSAGE};
use super::test;
use crate::protocol::{Message, UNKNOWN_TEST, WRONG_PASSPHRASE, classic, kind, omni};

/// Answers the messages of a session.
pub fn session(server: &Server, stream: Arc<TcpStream>, place: &Place) {
    let Some(ends) = Ends::of(&stream) else {
        return;
    };
    let mut control = Control::new(stream);
    let mut is_welcome = server.passphrase.is_none();
    let mut patience = FIRST_MESSAGE;
    while let Some(message) = control.receive(patience) {
        patience = NEXT_MESSAGE;
        place.heard();
        if !is_welcome {
            is_welcome = knows(&message, server.passphrase.as_deref().unwrap_or(""));
            if !is_welcome {
                control.send(&Message::new(kind::PASSPHRASE, WRONG_PASSPHRASE));
                return;
            }
            continue;
        }
        let goes_on = match message.kind {
            kind::DEBUG_ON | kind::DEBUG_OFF => control.send(&Message::new(kind::DEBUG_OK, 0)),
            kind::PASSPHRASE => true,
            kind::SYSINFO => control.send(&system()),
            kind::CPU_CALIBRATE => control.send(&calibration()),
            kind::OMNI => test::run(
                server,
                place,
                &mut control,
                &ends,
                &message,
                &omni::Request::of(&message),
            ),
            _ => match classic::request_of(&message) {
                Some(request) => test::run(server, place, &mut control, &ends, &message, &request),
                None => control.send(&Message::new(message.kind, UNKNOWN_TEST)),
            },
        };
        if !goes_on {
            return;
        }
    }
}

/// True if the message is the passphrase. All bytes are compared in any case, so that the time reveals
/// nothing.
fn knows(message: &Message, passphrase: &str) -> bool {
    let mut wanted = [0_u8; crate::protocol::WORDS * 4];
    let fits = passphrase.len().min(wanted.len() - 1);
    wanted[..fits].copy_from_slice(&passphrase.as_bytes()[..fits]);
    let end = message
        .body
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(message.body.len());
    let mut said = [0_u8; crate::protocol::WORDS * 4];
    said[..end].copy_from_slice(&message.body[..end]);
    let differ = wanted
        .iter()
        .zip(&said)
        .fold(0, |differ, (one, other)| differ | (one ^ other));
    message.kind == kind::PASSPHRASE && differ == 0
}

/// Answer to SYSINFO. netperf no longer reports the machine's properties, but scripts know the word.
fn system() -> Message {
    let mut message = Message::new(kind::SYSINFO + 1, 0);
    let text = b",Deprecated,Deprecated,Deprecated,Deprecated";
    message.body[..text.len()].copy_from_slice(text);
    message
}

/// Answer to CPU_CALIBRATE. /proc/stat needs no rate, so it is 0, followed by the number of CPUs.
fn calibration() -> Message {
    let mut message = Message::new(kind::CPU_CALIBRATE, 0);
    let cpus = u32::try_from(tcpcost_host::cpus::online().len()).unwrap_or(u32::MAX);
    message.body[4..8].copy_from_slice(&cpus.to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Message {
        let mut message = Message::new(kind::PASSPHRASE, -1);
        message.body[..text.len()].copy_from_slice(text.as_bytes());
        message
    }

    #[test]
    fn only_the_whole_passphrase_is_it() {
        assert!(knows(&said("open sesame"), "open sesame"));
        assert!(!knows(&said("open"), "open sesame"));
        assert!(!knows(&said("open sesame!"), "open sesame"));
        assert!(!knows(&said(""), "open sesame"));
        let other = Message {
            kind: kind::OMNI,
            ..said("open sesame")
        };
        assert!(!knows(&other, "open sesame"));
    }
}
