//! Traffic for bench/relay: `load serve ADDR` is the server; the clients print their result as a
//! line of JSON.
//!
//! `load bulk|rr|crr|beside ADDR FLOWS SECONDS [BYTES]` prints `warm` after a warm-up, `start` at a
//! line of standard input, and `stop {…}` when the time is over. At another line it ends with
//! response times in µs. BYTES: size of a request, and of its answer. `beside`: flows of `bulk`,
//! and response times of four flows of `rr` next to them, whose threads run before all others at
//! both ends: a request then waits for the relay, not for two hundred threads of bulk.
//!
//! `load hold ADDR FLOWS` opens connections, prints `open`, sends a piece over each for every line
//! of standard input, prints `done`, and ends with its input.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tcpcost_meter::affinity::run_first;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let address = |at: usize| -> SocketAddr { args[at].parse().expect("an address") };
    let number = |at: usize| -> f64 { args[at].parse().expect("a number") };
    match args[0].as_str() {
        "serve" => serve(address(1)),
        "hold" => hold(address(1), number(2) as usize),
        kind => {
            let seconds = Duration::from_secs_f64(number(3));
            let bytes = args.get(4).map_or(PIECE, |_| number(4) as usize);
            measure(kind, address(1), number(2) as usize, seconds, bytes)
        }
    }
}

/// Serves connections. The first byte of each says what to do with it.
fn serve(local: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(local)?;
    // Nine thousand clients connect at once: with std's backlog of 128 the relay's connects would
    // time out.
    rustix::net::listen(&listener, 65_535)?;
    println!("ready");
    loop {
        let (stream, _) = listener.accept()?;
        // Small, because ten thousand threads exist at a time.
        let thread = thread::Builder::new().stack_size(32 << 10);
        thread.spawn(move || drop(serve_one(stream)))?;
    }
}

fn serve_one(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    match kind[0] {
        b'b' => {
            // The kernel drops the bytes: the relay is measured, not this server.
            let flags = rustix::net::RecvFlags::TRUNC;
            let mut buffer = vec![0_u8; 1 << 17];
            while rustix::net::recv(&stream, &mut buffer[..], flags)?.1 > 0 {}
            Ok(())
        }
        kind @ (b'r' | b'f') => {
            if kind == b'f' {
                run_first().map_err(io::Error::other)?;
            }
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes)?;
            let mut buffer = vec![0; u32::from_le_bytes(bytes) as usize];
            loop {
                stream.read_exact(&mut buffer)?;
                stream.write_all(&buffer)?;
            }
        }
        _ => stream.write_all(b"!"),
    }
}

fn measure(
    kind: &str,
    to: SocketAddr,
    flows: usize,
    span: Duration,
    bytes: usize,
) -> io::Result<()> {
    let (stop, counting) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let count = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    let (kind, besides) = match kind {
        "beside" => ("bulk", BESIDE),
        kind => (kind, 0),
    };
    for index in 0..flows + besides {
        let (stop, counting, count) =
            (Arc::clone(&stop), Arc::clone(&counting), Arc::clone(&count));
        let is_beside = index >= flows;
        let kind = if is_beside { "rr" } else { kind }.to_string();
        let thread = thread::Builder::new().stack_size(256 << 10);
        threads.push(thread.spawn(move || -> io::Result<Vec<u32>> {
            let mut latencies = Vec::new();
            match kind.as_str() {
                "bulk" => {
                    let mut stream = TcpStream::connect(to)?;
                    stream.write_all(b"b")?;
                    let buffer = vec![0; 1 << 17];
                    while !stop.load(Ordering::Relaxed) {
                        stream.write_all(&buffer)?;
                        count.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                    }
                }
                "rr" => {
                    if is_beside {
                        run_first().map_err(io::Error::other)?;
                    }
                    let mut stream = TcpStream::connect(to)?;
                    stream.set_nodelay(true)?;
                    let kind = if is_beside { b'f' } else { b'r' };
                    stream.write_all(&asks(kind, bytes))?;
                    let mut buffer = vec![0; bytes];
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        stream.write_all(&buffer)?;
                        stream.read_exact(&mut buffer)?;
                        count.fetch_add(1, Ordering::Relaxed);
                        if counting.load(Ordering::Relaxed) {
                            latencies.push(began.elapsed().as_micros() as u32);
                        }
                    }
                }
                _ => {
                    while !stop.load(Ordering::Relaxed) {
                        let mut stream = TcpStream::connect(to)?;
                        stream.write_all(b"c")?;
                        stream.read_exact(&mut [0])?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Ok(latencies)
        })?);
    }
    thread::sleep(Duration::from_millis(250));
    println!("warm");
    let _ = io::stdin().lock().lines().next();
    let (began, before) = (Instant::now(), count.load(Ordering::Relaxed));
    counting.store(true, Ordering::Relaxed);
    println!("start");
    thread::sleep(span);
    let done = count.load(Ordering::Relaxed) - before;
    let seconds = began.elapsed().as_secs_f64();
    counting.store(false, Ordering::Relaxed);
    let kib = 2.0 * bytes as f64 / 1024.0;
    println!("stop {{\"count\": {done}, \"seconds\": {seconds}, \"kib\": {kib}}}");
    // The caller reads its meter while the load continues.
    let _ = io::stdin().lock().lines().next();
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    for thread in threads {
        match thread.join().expect("a client panicked") {
            Ok(more) => latencies.extend(more),
            Err(error) => eprintln!("a client: {error}"),
        }
    }
    latencies.sort_unstable();
    let at = |share: f64| {
        latencies
            .get((latencies.len() as f64 * share) as usize)
            .copied()
    };
    let text = |value: Option<u32>| value.map_or("null".to_string(), |value| value.to_string());
    println!(
        "{{\"p50_us\": {}, \"p99_us\": {}}}",
        text(at(0.5)),
        text(at(0.99))
    );
    Ok(())
}

/// First bytes of a connection whose requests and answers have this size. Kind `f`: the server's thread runs first.
fn asks(kind: u8, bytes: usize) -> Vec<u8> {
    [&[kind][..], &(bytes as u32).to_le_bytes()].concat()
}

fn hold(to: SocketAddr, flows: usize) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..flows {
        let mut stream = TcpStream::connect(to)?;
        stream.write_all(&asks(b'r', PIECE))?;
        streams.push(stream);
    }
    println!("open");
    for line in io::stdin().lock().lines() {
        line?;
        let mut buffer = [7; PIECE];
        for stream in &mut streams {
            stream.write_all(&buffer)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut buffer)?;
        }
        println!("done");
    }
    Ok(())
}

/// Request flows next to bulk flows.
const BESIDE: usize = 4;
/// Size of a request and of its answer, bytes.
const PIECE: usize = 4096;
