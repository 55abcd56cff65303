//! Tests of the end of a test: data in flight is not lost. The other end is as strict as the original.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Instant;

use tcpcost_netperf::netperf;
use tcpcost_netperf::protocol::exact::{self, Method, OwnCpu};
use tcpcost_netperf::protocol::omni::{Request, Response, Results};
use tcpcost_netperf::protocol::{Message, kind};
use tcpcost_signals::Interrupt;

/// A netserver for one test. It reports a reset of the data connection as an error, as the original does.
fn strict(
    data: impl FnOnce(&Request, &TcpListener) -> io::Result<Results> + Send + 'static,
) -> (String, JoinHandle<()>) {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = control.local_addr().unwrap().port().to_string();
    let thread = std::thread::spawn(move || {
        let (mut control, _) = control.accept().unwrap();
        let message = Message::receive(&mut control).unwrap().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let response = Response {
            data_port: listener.local_addr().unwrap().port().into(),
            ..Response::default()
        };
        let mut response = response.message();
        // Our netserver's addition to its answer. The client then announces the end by a last connection
        // without a request.
        let own = OwnCpu {
            cpu_ns: 0,
            method: Method::Share,
        };
        exact::put(&mut response, own);
        response.send(&mut control).unwrap();
        let answer = match data(&Request::of(&message), &listener) {
            Ok(results) => results.message(),
            Err(error) => Message::new(message.kind + 1, error.raw_os_error().unwrap_or(libc::EIO)),
        };
        // The client may have ended and not need the answer.
        let _ = answer.send(&mut control);
        let _ = control.read(&mut [0]);
    });
    (port, thread)
}

/// Answers the requests of one connection until its end.
fn respond(request: &Request, mut stream: &TcpStream, results: &mut Results) -> io::Result<()> {
    let mut asked = vec![0; request.request_size as usize];
    let answer = vec![7; request.response_size as usize];
    loop {
        match stream.read_exact(&mut asked) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            done => done?,
        }
        stream.write_all(&answer)?;
        results.trans_received += 1;
    }
}

fn run(port: &str, words: &str) -> Result<u8, String> {
    run_until(port, words, &Interrupt::default())
}

fn run_until(port: &str, words: &str, interrupt: &Interrupt) -> Result<u8, String> {
    let all = format!("-H 127.0.0.1 -p {port} -P 0 -v 0 {words}");
    let args: Vec<String> = all.split_whitespace().map(str::to_string).collect();
    netperf(&args, || Ok(interrupt.clone())).map_err(|failure| failure.to_string())
}

/// Line of netperf about a netserver that sends `answers` answers and then ends the control connection: by a
/// reset if it reads nothing.
fn line_of(answers: u32, reads: bool, words: &str) -> String {
    let control = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = control.local_addr().unwrap().port().to_string();
    let server = std::thread::spawn(move || {
        let (mut control, _) = control.accept().unwrap();
        if !reads {
            let _ = control.peek(&mut [0]);
            return;
        }
        let data = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..answers {
            Message::receive(&mut control).unwrap().unwrap();
            let response = Response {
                data_port: data.local_addr().unwrap().port().into(),
                ..Response::default()
            };
            response.message().send(&mut control).unwrap();
            let (mut stream, _) = data.accept().unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
        if answers == 0 {
            while let Ok(Some(message)) = Message::receive(&mut control) {
                if message.kind != kind::PASSPHRASE {
                    return;
                }
            }
        }
    });
    let line = run(&port, words).unwrap_err();
    server.join().unwrap();
    line
}

#[test]
fn a_passphrase_is_hinted_at_only_where_it_may_be_missing() {
    let line = line_of(0, true, "-l -1000");
    assert!(line.ends_with("want a passphrase (-Z)?"), "{line}");
    for reads in [true, false] {
        let line = line_of(0, reads, "-l -1000 -Z word");
        assert!(line.ends_with("want another passphrase (-Z)?"), "{line}");
    }
    let line = line_of(0, false, "-l -1000");
    // ECONNRESET, or ENOTCONN where the reset comes before the client asks for the addresses.
    assert!(
        (line.ends_with("(os error 104)") || line.ends_with("(os error 107)"))
            && !line.contains("-Z"),
        "{line}"
    );
    for words in ["-l -1000", "-l -1000 -Z word"] {
        let line = line_of(1, true, words);
        assert!(!line.contains("-Z"), "{line}");
    }
}

#[test]
fn responses_on_their_way_at_the_end_are_read() {
    // Some responses are only partly in flight: their requests are incomplete, or the socket buffers are
    // full.
    for words in [
        "-t TCP_RR -l 1 -- -b 32",
        "-t TCP_RR -l 1 -- -b 32 -r 1,100000",
        "-t OMNI -l 1 -- -d rr -b 8 -r 100000,1000",
        "-t TCP_RR -l 1",
    ] {
        let (port, server) = strict(|request, listener| {
            let (stream, _) = listener.accept()?;
            let mut results = Results::default();
            respond(request, &stream, &mut results)?;
            Ok(results)
        });
        assert_eq!(run(&port, words), Ok(0), "{words}");
        server.join().unwrap();
    }
}

#[test]
fn the_last_connection_of_many_is_not_reset() {
    let (port, server) = strict(|request, listener| {
        let mut results = Results::default();
        for stream in listener.incoming() {
            let mut asked = vec![0; request.request_size as usize];
            let mut stream = stream?;
            match stream.read_exact(&mut asked) {
                // The last connection has no request.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                done => done?,
            }
            stream.write_all(&vec![7; request.response_size as usize])?;
            results.trans_received += 1;
        }
        Ok(results)
    });
    assert_eq!(run(&port, "-t TCP_CRR -l 1 -- -r 10,1000000"), Ok(0));
    server.join().unwrap();
}

#[test]
fn an_interrupted_test_does_not_wait_for_a_netserver_that_is_silent() {
    type Traffic = fn(&mut TcpStream) -> io::Result<()>;
    let request: Traffic = |stream| {
        stream.read_exact(&mut [0; 1000])?;
        stream.write_all(&[7; 10])
    };
    let reads: Traffic = |stream| stream.read_exact(&mut [0; 1000]);
    // More bytes than the buffers of two sockets hold, so netperf must read.
    let writes: Traffic = |stream| stream.write_all(&vec![7; 64 << 20]);
    for (words, traffic) in [
        ("-t TCP_RR -l 1000 -- -r 1000,10", request),
        ("-t TCP_CRR -l 1000 -- -r 1000,10", request),
        ("-t TCP_STREAM -l 1000", reads),
        ("-t TCP_STREAM -l -1G -i 9,9", reads),
        ("-t TCP_MAERTS -l 1000", writes),
    ] {
        let interrupt = Interrupt::default();
        let asking = interrupt.clone();
        let (ended, has_ended) = channel::<()>();
        let (port, server) = strict(move |_, listener| {
            let (mut stream, _) = listener.accept()?;
            traffic(&mut stream)?;
            asking.raise();
            // Waits until netperf has ended.
            let _ = has_ended.recv();
            Err(io::ErrorKind::TimedOut.into())
        });
        let begin = Instant::now();
        assert_eq!(run_until(&port, words, &interrupt), Ok(0), "{words}");
        assert!(begin.elapsed().as_secs() < 60, "{words}");
        drop(ended);
        server.join().unwrap();
    }
}
