//! Requests to the kernel's rtnetlink, one at a time, blocking.
//!
//! No async runtime is needed: a request is one datagram and its answer follows at once, so a
//! socket of netlink-sys and the messages of netlink-packet-route suffice. The socket belongs to
//! the network namespace of the thread that opens it.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::error::SystemError;

/// Sends one request and returns the answers.
///
/// `flags` are added to NLM_F_REQUEST and NLM_F_ACK; NLM_F_DUMP requests a list.
pub(super) fn ask(
    tried: &str,
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<Vec<RouteNetlinkMessage>, SystemError> {
    let failed = |error: io::Error| SystemError::new(tried, error);
    let strange = |why: String| SystemError::strange(tried, why);

    let mut socket = Socket::new(NETLINK_ROUTE).map_err(failed)?;
    socket.bind_auto().map_err(failed)?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(failed)?;
    let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
    let mut request = NetlinkMessage::new(
        NetlinkHeader::default(),
        NetlinkPayload::InnerMessage(message),
    );
    request.header.flags = NLM_F_REQUEST | flags | if is_dump { 0 } else { NLM_F_ACK };
    request.header.sequence_number = 1;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0).map_err(failed)?;

    let mut answers = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full().map_err(failed)?;
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| strange(error.to_string()))?;
            // Messages are aligned to four bytes; the padding of the last may be missing.
            let length = message.header.length.next_multiple_of(4) as usize;
            rest = rest.get(length..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                NetlinkPayload::Done(_) => return Ok(answers),
                // Code 0 is the acknowledgement that ends a request other than a dump.
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(answers),
                    Some(_) => return Err(failed(error.to_io())),
                },
                NetlinkPayload::Overrun(_) => return Err(strange("overrun".into())),
                _ => {}
            }
        }
    }
}
