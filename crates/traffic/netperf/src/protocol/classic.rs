//! Messages of TCP_STREAM, TCP_MAERTS, TCP_RR and TCP_CRR as netperf sent them before omni tests.
//! TCP_SENDFILE is still sent this way (netperf's `nettest_bsd.h`, structs such as
//! `tcp_stream_request_struct`).
//!
//! A request is converted into an equivalent omni [`Request`], so that netserver has only one implementation.

use super::omni::{RECEIVES, Request, Response, Results, SENDS, flag};
use super::{LENGTH_MAX_S, Message, Reader, Writer, kind};

/// Converts a message into the equivalent omni request. `None` if the message is no classic test.
pub fn request_of(message: &Message) -> Option<Request> {
    let mut from = Reader::new(&message.body);
    let mut request = Request::default();
    let (is_transactions, is_connect) = match message.kind {
        kind::TCP_STREAM | kind::TCP_MAERTS => (false, false),
        kind::TCP_RR => (true, false),
        kind::TCP_CRR => (true, true),
        _ => return None,
    };
    match is_transactions {
        false => {
            (request.send_buf_size, request.recv_buf_size) = (from.i32(), from.i32());
            let size = match from.i32() {
                0 => -1,
                size => size,
            };
            match message.kind {
                kind::TCP_MAERTS => (request.send_size, request.direction) = (size, SENDS),
                _ => (request.receive_size, request.direction) = (size, RECEIVES),
            }
            from.skip(2);
        }
        true => {
            (request.recv_buf_size, request.send_buf_size) = (from.i32(), from.i32());
            from.skip(4);
            (request.request_size, request.response_size) = (from.i32(), from.i32());
            request.direction = SENDS | RECEIVES;
        }
    }
    let mut set = |from: &mut Reader<'_>, flag| match from.i32() {
        0 | -1 => {}
        _ => request.flags |= flag,
    };
    set(&mut from, flag::NO_DELAY);
    set(&mut from, flag::MEASURE_CPU);
    if is_connect {
        request.flags |= flag::CONNECT_TEST;
    }
    from.skip(1);
    request.test_length = from.i32();
    // A number of bytes looks like seconds here. A stream to netserver ends with the stream, so the time is
    // limited.
    if message.kind == kind::TCP_STREAM {
        request.test_length = request.test_length.min(LENGTH_MAX_S);
    }
    from.skip(2);
    if !is_transactions {
        from.skip(2);
    }
    (request.data_port, request.ipfamily) = (from.u32(), from.u32());
    Some(request)
}

/// First answer to a classic request of this kind: the set-up of netserver.
pub fn response(of: i32, response: &Response) -> Message {
    let mut message = Message::new(of + 1, 0);
    let has = |flag| i32::from(response.flags & flag != 0);
    let to = Writer::new(&mut message.body).i32(response.recv_buf_size);
    let to = match of {
        kind::TCP_STREAM => to.i32(response.receive_size),
        kind::TCP_MAERTS => to.i32(response.send_size),
        _ => to,
    };
    to.i32(has(flag::NO_DELAY))
        .i32(has(flag::MEASURE_CPU))
        .u32(0) // test_length
        .i32(response.send_buf_size)
        .u32(response.data_port)
        .f32(0.0) // cpu_rate
        .u32(0) // so_rcvavoid
        .u32(0); // so_sndavoid
    message
}

/// Second answer to a classic request of this kind: netserver's results. It has the kind of the first answer.
pub fn results(of: i32, results: &Results) -> Message {
    let mut message = Message::new(of + 1, 0);
    let to = Writer::new(&mut message.body);
    let to = match of {
        kind::TCP_STREAM => to
            .f64(results.bytes_received as f64)
            .u32(results.recv_calls),
        kind::TCP_MAERTS => to.f64(results.bytes_sent as f64).u32(results.send_calls),
        _ => to
            .u32(u32::try_from(results.bytes_received).unwrap_or(u32::MAX))
            .u32(results.recv_calls)
            .u32(results.trans_received),
    };
    to.f32(results.elapsed_time)
        .f32(results.cpu_util)
        .f32(-1.0) // serv_dem: netperf reckons it
        .u32(results.cpu_method)
        .u32(results.num_cpus)
        .i32(results.recv_buf_size)
        .i32(results.send_buf_size);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_asks_for_what_its_name_says() {
        let of = |kind| request_of(&Message::new(kind, -1)).unwrap();
        assert_eq!(of(kind::TCP_STREAM).direction, RECEIVES);
        assert_eq!(of(kind::TCP_MAERTS).direction, SENDS);
        assert_eq!(of(kind::TCP_RR).direction, SENDS | RECEIVES);
        assert_eq!(of(kind::TCP_RR).flags & flag::CONNECT_TEST, 0);
        assert_ne!(of(kind::TCP_CRR).flags & flag::CONNECT_TEST, 0);
        assert_eq!(request_of(&Message::new(16, -1)), None);
    }

    #[test]
    fn the_fields_are_where_netperf_has_them() {
        let mut stream = Message::new(kind::TCP_STREAM, -1);
        for word in 0..16_u8 {
            stream.body[usize::from(word) * 4 + 3] = word + 1;
        }
        let request = request_of(&stream).unwrap();
        assert_eq!((request.send_buf_size, request.recv_buf_size), (1, 2));
        assert_eq!(request.receive_size, 3);
        assert_eq!(request.test_length, 9);
        assert_eq!((request.data_port, request.ipfamily), (14, 15));
        let transactions = Message {
            kind: kind::TCP_RR,
            ..stream
        };
        let request = request_of(&transactions).unwrap();
        assert_eq!((request.recv_buf_size, request.send_buf_size), (1, 2));
        assert_eq!((request.request_size, request.response_size), (7, 8));
        assert_eq!(request.test_length, 12);
        assert_eq!((request.data_port, request.ipfamily), (15, 16));
    }

    #[test]
    fn a_count_of_bytes_is_a_double_in_network_order() {
        let seen = Results {
            bytes_received: 1 << 40,
            recv_calls: 3,
            ..Results::default()
        };
        let message = results(kind::TCP_STREAM, &seen);
        assert_eq!(message.body[..8], (2_f64.powi(40)).to_be_bytes());
        assert_eq!(message.body[11], 3);
    }
}
