//! What the fuzz targets do with their bytes: also run by `cargo test`, over the corpus and over random bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use tcpcost_netperf::protocol::{MESSAGE_BYTES, Message, classic, exact, omni};

/// Any bytes as a message, read as each that there is.
pub fn message(data: &[u8]) {
    let mut bytes = [0; MESSAGE_BYTES];
    let length = data.len().min(MESSAGE_BYTES);
    bytes[..length].copy_from_slice(&data[..length]);
    let message = Message::from_bytes(&bytes);
    assert_eq!(message.to_bytes(), bytes);
    let request = omni::Request::of(&message);
    let again = omni::Request::of(&request.message(-1));
    // What is no UTF-8 is replaced, and may then be too long; numbers are as they were.
    assert_eq!(again.direction, request.direction);
    assert_eq!(again.test_length, request.test_length);
    assert_eq!(again.netserver_ip, request.netserver_ip);
    let _ = omni::Response::of(&message).message();
    let _ = omni::Results::of(&message).message();
    let _ = omni::address_of(&request.netserver_ip, true);
    let _ = classic::request_of(&message);
    let _ = exact::of(&message);
}

/// Any bytes as what a client says to a netserver: it answers or ends, and what it answers are whole messages. It never
/// waits for a client that has gone.
pub fn session(data: &[u8]) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut client =
        TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let (served, _) = listener.accept().expect("one connects");
    let server = std::thread::spawn(move || tcpcost_netperf::answer(served));
    // It may end before all is said.
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
