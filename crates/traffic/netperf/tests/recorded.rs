//! Recorded sessions of the original, netperf 2.7.1 with its own netserver. The bytes of its netperf are
//! understood and answered, and the bytes of its netserver are understood, without either program.
//!
//! Each has 100 kB, 50 or 20 transactions; the command lines are in the comments.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use tcpcost_netperf::protocol::omni::{RECEIVES, Request, Response, Results, SENDS, flag};
use tcpcost_netperf::protocol::{MESSAGE_BYTES, Message, classic, exact, kind};

fn recorded(name: &str) -> Vec<Message> {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() % MESSAGE_BYTES, 0);
    let messages = bytes.chunks_exact(MESSAGE_BYTES);
    messages
        .map(|bytes| Message::from_bytes(bytes.try_into().unwrap()))
        .collect()
}

fn request(name: &str) -> (Message, Request) {
    let message = recorded(&format!("{name}.request")).remove(0);
    assert_eq!(message.kind, kind::OMNI);
    let request = Request::of(&message);
    (message, request)
}

/// Set-up and results in netserver's recorded answers.
fn answers(name: &str) -> (Response, Results) {
    let [first, last] = &recorded(&format!("{name}.answers"))[..] else {
        panic!("two answers");
    };
    assert_eq!((first.aside, last.aside), (0, 0));
    assert!(
        exact::of(last).is_none(),
        "the original tells no CPU of one test"
    );
    (Response::of(first), Results::of(last))
}

/// Recorded with `netperf -t TCP_STREAM -l -100000 -c -C -- -m 1000 -S 64K -k …`
#[test]
fn a_stream_to_netserver() {
    let (message, request) = request("stream");
    assert_eq!(message.aside, -1);
    assert_eq!(request.direction, RECEIVES);
    assert_eq!(request.test_length, -100_000);
    assert_eq!(
        (request.send_buf_size, request.recv_buf_size),
        (65_536, 65_536)
    );
    assert_ne!(request.flags & flag::MEASURE_CPU, 0);
    assert_eq!(
        (request.ipfamily, request.socket_type, request.protocol),
        (4, 1, 6)
    );
    let (set_up, seen) = answers("stream");
    assert_eq!(set_up.recv_buf_size, 131_072);
    assert!(set_up.data_port > 1024);
    assert_eq!(seen.bytes_received, 100_000);
    assert_eq!(seen.num_cpus, 2);
    assert!((0.0..=100.0).contains(&seen.cpu_util), "{}", seen.cpu_util);
}

/// Recorded with `netperf -t TCP_MAERTS -l -100000 -- -m ,2000 -k …`
#[test]
fn a_stream_from_netserver() {
    let (_, request) = request("maerts");
    assert_eq!((request.direction, request.send_size), (SENDS, 2000));
    let (set_up, seen) = answers("maerts");
    assert_eq!(set_up.send_size, 2000);
    assert_eq!((seen.bytes_sent, seen.send_calls), (100_000, 50));
}

/// Recorded with `netperf -t TCP_RR -l -50 -T ,0 -Y 0x20,0x28 -- -r 100,200 -D -K reno -k …`
#[test]
fn requests_and_responses() {
    let (message, request) = request("rr");
    assert_eq!(message.aside, 0, "the CPU to run on");
    assert_eq!((request.request_size, request.response_size), (100, 200));
    assert_eq!((request.test_length, request.socket_tos), (-50, 0x28));
    assert_ne!(request.flags & flag::NO_DELAY, 0);
    assert_eq!(request.cong_control, "reno");
    let (_, seen) = answers("rr");
    assert_eq!((seen.bytes_received, seen.bytes_sent), (5000, 10_000));
    assert_eq!(seen.trans_received, 50);
    assert_eq!(seen.cong_control, "reno");
}

/// Recorded with `netperf -t TCP_CRR -l -20 -- -r 3,5 -k …`
#[test]
fn a_connection_for_each_request() {
    let (_, request) = request("crr");
    assert_ne!(request.flags & flag::CONNECT_TEST, 0);
    let (_, seen) = answers("crr");
    assert_eq!(
        (seen.bytes_received, seen.bytes_sent, seen.trans_received),
        (60, 100, 20)
    );
}

/// Recorded with `netperf -t TCP_SENDFILE -l 1 -- -m 4K`, which is sent as before omni tests.
#[test]
fn a_file_to_netserver() {
    let message = recorded("sendfile.request").remove(0);
    assert_eq!(message.kind, kind::TCP_STREAM);
    let request = classic::request_of(&message).unwrap();
    assert_eq!((request.direction, request.test_length), (RECEIVES, 1));
    assert_eq!(request.ipfamily, 4);
}

/// Answers of our netserver to a recorded request. `client` runs the test at the port in the first answer.
fn answered(name: &str, client: impl FnOnce(std::net::SocketAddr)) -> Vec<Message> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (served, _) = listener.accept().unwrap();
    let server = std::thread::spawn(move || tcpcost_netperf::answer(served));
    recorded(&format!("{name}.request"))[0]
        .send(&mut control)
        .unwrap();
    let first = Message::receive(&mut control).unwrap().unwrap();
    assert_eq!(
        first.aside,
        0,
        "{}",
        std::io::Error::from_raw_os_error(first.aside)
    );
    let port = match first.kind == kind::OMNI + 1 {
        true => Response::of(&first).data_port,
        // The port is the seventh word.
        false => u32::from_be_bytes(first.body[24..28].try_into().unwrap()),
    };
    let mut data = control.peer_addr().unwrap();
    data.set_port(u16::try_from(port).unwrap());
    client(data);
    let last = Message::receive(&mut control).unwrap().unwrap();
    control.shutdown(Shutdown::Write).unwrap();
    assert!(Message::receive(&mut control).unwrap().is_none());
    server.join().unwrap();
    vec![first, last]
}

#[test]
fn recorded_requests_are_answered_as_the_original_answers() {
    let stream = answered("stream", |to| {
        let mut data = TcpStream::connect(to).unwrap();
        data.write_all(&[7; 100_000]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert_eq!(data.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!(
        Response::of(&stream[0]).recv_buf_size,
        answers("stream").0.recv_buf_size
    );
    let seen = Results::of(&stream[1]);
    assert_eq!(seen.bytes_received, 100_000);
    assert!(exact::of(&stream[1]).is_some(), "it was asked for the CPU");

    let maerts = answered("maerts", |to| {
        let mut data = TcpStream::connect(to).unwrap();
        let mut all = Vec::new();
        data.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 100_000);
    });
    assert_eq!(
        Results::of(&maerts[1]).send_calls,
        answers("maerts").1.send_calls
    );

    let rr = answered("rr", |to| {
        let mut data = TcpStream::connect(to).unwrap();
        for _ in 0..50 {
            data.write_all(&[1; 100]).unwrap();
            data.read_exact(&mut [0; 200]).unwrap();
        }
    });
    let (ours, theirs) = (Results::of(&rr[1]), answers("rr").1);
    assert_eq!(
        (ours.bytes_sent, ours.trans_received),
        (theirs.bytes_sent, theirs.trans_received)
    );
    assert_eq!(ours.cong_control, theirs.cong_control);

    let crr = answered("crr", |to| {
        for _ in 0..20 {
            let mut data = TcpStream::connect(to).unwrap();
            data.write_all(&[1; 3]).unwrap();
            let mut answer = Vec::new();
            data.read_to_end(&mut answer).unwrap();
            assert_eq!(answer.len(), 5);
        }
    });
    assert_eq!(Results::of(&crr[1]).trans_received, 20);

    let file = answered("sendfile", |to| {
        let mut data = TcpStream::connect(to).unwrap();
        data.write_all(&[7; 5000]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert_eq!(data.read(&mut [0]).unwrap(), 0);
    });
    // The original swaps the bytes of its second answer's kind twice; netperf ignores it.
    let kind = recorded("sendfile.answers")[1].kind;
    assert_eq!(file[1].kind, kind.swap_bytes());
    assert_eq!(file[1].body[..8], 5000_f64.to_be_bytes());
}

#[test]
fn requests_beyond_the_last_one_are_read() {
    // With -b and a number of transactions, the original sends more requests than it needs answers.
    let rr = answered("rr", |to| {
        let mut data = TcpStream::connect(to).unwrap();
        data.write_all(&[1; 5000]).unwrap();
        data.read_exact(&mut [0; 10_000]).unwrap();
        for _ in 0..10 {
            data.write_all(&[1; 100]).unwrap();
        }
        assert_eq!(data.read(&mut [0]).unwrap(), 0);
    });
    assert_eq!(Results::of(&rr[1]).trans_received, 50);
}

#[test]
fn data_from_somebody_else_is_not_taken() {
    let stream = answered("stream", |to| {
        // Another loopback address: the control connection is from 127.0.0.1.
        let from = "127.0.0.2:0".parse().unwrap();
        let stranger = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        let address: std::net::SocketAddr = from;
        rustix::net::bind(&stranger, &address).unwrap();
        rustix::net::connect(&stranger, &to).unwrap();
        let mut data = TcpStream::connect(to).unwrap();
        data.write_all(&[7; 9]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert_eq!(data.read(&mut [0]).unwrap(), 0);
        // The connection is closed without a byte, or reset.
        assert!(!matches!(TcpStream::from(stranger).read(&mut [0]), Ok(1..)));
    });
    assert_eq!(Results::of(&stream[1]).bytes_received, 9);
}

/// Request of a test of UDP, and the answers of our netserver. `client` runs the test.
fn answered_datagrams(
    request: Request,
    client: impl FnOnce(std::net::UdpSocket),
) -> (Response, Results) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut control = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (served, _) = listener.accept().unwrap();
    let server = std::thread::spawn(move || tcpcost_netperf::answer(served));
    request.message(-1).send(&mut control).unwrap();
    let first = Message::receive(&mut control).unwrap().unwrap();
    assert_eq!(first.aside, 0);
    let first = Response::of(&first);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ("127.0.0.1", u16::try_from(first.data_port).unwrap());
    socket.connect(to).unwrap();
    client(socket.try_clone().unwrap());
    // Announces the end, as netperf does. The first one ends the test, and the others are refused.
    (0..3).for_each(|_| drop(socket.send(&[])));
    let last = Message::receive(&mut control).unwrap().unwrap();
    assert_eq!(last.aside, 0);
    control.shutdown(Shutdown::Write).unwrap();
    server.join().unwrap();
    (first, Results::of(&last))
}

#[test]
fn datagrams_are_received_and_answered() {
    let udp = Request {
        socket_type: 2,
        protocol: 17,
        ..Request::default()
    };
    let stream = udp.clone();
    let (set_up, seen) = answered_datagrams(stream, |socket| {
        (0..5).for_each(|_| assert_eq!(socket.send(&[1; 700]).unwrap(), 700));
    });
    assert_eq!(set_up.receive_size, set_up.recv_buf_size);
    assert_eq!((seen.bytes_received, seen.recv_calls), (3500, 5));
    assert_eq!((seen.transport_retrans, seen.cpu_util), (-1, -1.0));
    let transactions = |flags| Request {
        direction: SENDS | RECEIVES,
        request_size: 30,
        response_size: 40,
        flags,
        ..udp.clone()
    };
    for flags in [0, flag::CONNECTED, flag::MEASURE_CPU] {
        let (_, seen) = answered_datagrams(transactions(flags), |socket| {
            for _ in 0..7 {
                socket.send(&[1; 30]).unwrap();
                assert_eq!(socket.recv(&mut [0; 99]).unwrap(), 40);
            }
        });
        assert_eq!((seen.trans_received, seen.bytes_sent), (7, 280));
    }
}
