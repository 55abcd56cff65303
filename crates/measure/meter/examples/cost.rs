//! Prints the cost of a snapshot of each meter, µs: median of 200. The figures in the modules' documentation
//! are from `cargo run --release -p tcpcost-meter --example cost -- 9000`, with that many connections (two
//! descriptors each). The default is 400 connections.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Instant;

use tcpcost_counts::MeterName;
use tcpcost_meter::netstat::Netstat;
use tcpcost_meter::other_tasks::OtherTasks;
use tcpcost_meter::perf::Perf;
use tcpcost_meter::proc::Proc;
use tcpcost_meter::soak::{DIRTY_LINES_DEFAULT, Soakers};
use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_meter::{Meter, rusage, tsc};

fn median_us(name: MeterName, mut call: impl FnMut()) {
    let mut times: Vec<f64> = (0..200)
        .map(|_| {
            let started = Instant::now();
            call();
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:12} {:10.2} µs", times[times.len() / 2]);
}

fn main() {
    let mut meter = Proc::new(&[0]);
    median_us(MeterName::Proc, || {
        drop(meter.snapshot().expect("/proc/stat"))
    });
    let mut meter = Netstat::default();
    median_us(MeterName::Netstat, || {
        drop(meter.snapshot().expect("/proc/net"))
    });
    let mut meter = OtherTasks::new(&[0], &[]);
    median_us(MeterName::Others, || {
        drop(meter.snapshot().expect("/proc/PID"))
    });
    let processes = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    println!("             of {} processes", processes.count());
    median_us(MeterName::Rusage, || {
        drop(rusage::thread_counts().expect("getrusage"))
    });
    median_us(MeterName::Tsc, || {
        std::hint::black_box(tsc::now());
    });
    println!("             at {:?} Hz", tsc::rate_hz());
    match Perf::open(&[0]) {
        Ok(mut meter) => median_us(MeterName::Perf, || drop(meter.snapshot().expect("events"))),
        Err(why) => println!("perf: {why}"),
    }
    let mut meter = Soakers::start(&[0], DIRTY_LINES_DEFAULT).expect("a spinner on CPU 0");
    median_us(MeterName::Soak, || {
        drop(meter.snapshot().expect("a spinner"))
    });
    drop(meter);

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let address = listener.local_addr().expect("a bound address");
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let count = count.unwrap_or(400);
    let pairs: Vec<(TcpStream, TcpStream)> = (0..count)
        .map(|_| {
            let client = TcpStream::connect(address).expect("a connection");
            (client, listener.accept().expect("a connection").0)
        })
        .collect();
    let mut meter = TcpInfo::default();
    median_us(MeterName::TcpInfo, || {
        let connections = pairs.iter().map(|(client, _)| client.as_fd());
        drop(meter.snapshot(connections).expect("TCP_INFO"));
    });
    println!("             of {count} connections");
}
