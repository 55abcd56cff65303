//! Bodies of the fuzz targets. `cargo test` also runs them over the corpus and over random bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use tcpcost_netperf::protocol::{MESSAGE_BYTES, Message, classic, exact, omni};

/// Reads any bytes as a message of each kind.
pub fn message(data: &[u8]) {
    let mut bytes = [0; MESSAGE_BYTES];
    let length = data.len().min(MESSAGE_BYTES);
    bytes[..length].copy_from_slice(&data[..length]);
    let message = Message::from_bytes(&bytes);
    assert_eq!(message.to_bytes(), bytes);
    let request = omni::Request::of(&message);
    let again = omni::Request::of(&request.message(-1));
    // Text that is no UTF-8 is replaced and may become too long, but numbers stay the same.
    assert_eq!(again.direction, request.direction);
    assert_eq!(again.test_length, request.test_length);
    assert_eq!(again.netserver_ip, request.netserver_ip);
    let _ = omni::Response::of(&message).message();
    let _ = omni::Results::of(&message).message();
    let _ = omni::address_of(&request.netserver_ip, true);
    let _ = classic::request_of(&message);
    let _ = exact::of(&message);
}

/// Sends any bytes to a netserver as a client. It answers with whole messages or ends, and never waits for a
/// client that has gone.
pub fn session(data: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut client =
        TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (served, _) = listener.accept().expect("one connects");
    let server = std::thread::spawn(move || tcpcost_netperf::answer(served));
    // The server may end before all bytes are sent.
    let _ = client
        .write_all(data)
        .and_then(|()| client.shutdown(Shutdown::Write));
    let mut answers = Vec::new();
    let whole = client.read_to_end(&mut answers).is_ok();
    assert!(
        !whole || answers.len() % MESSAGE_BYTES == 0,
        "{} bytes",
        answers.len()
    );
    server.join().expect("it does not panic");
}
