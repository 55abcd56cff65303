//! One transfer counted by a capture, by the kernel, by eBPF and by our own TCP: the counts that
//! they share are equal. Needs root and eBPF; without them each test reports a skip.
#![cfg(feature = "bpf")]

mod common;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::Place;
use serde_json::Value;
use tcpcost_meter::Meter;
use tcpcost_meter::Scope;
use tcpcost_meter::bpf;
use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_study::{Counts, MeterName, Quantity as Q};
use tcpcost_testbed::{in_namespace, skip, unless_missed};

/// Loads the meter `segments` for this namespace. `None` if it is not available.
fn segments() -> Option<Box<dyn Meter + Send>> {
    match bpf::load(MeterName::Segments, &Scope::default()) {
        Ok(meter) => Some(meter),
        Err(error) if error.needs().is_some() => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn totals(meter: &mut dyn Meter) -> Counts {
    meter.snapshot().unwrap().totals[0].counts.clone()
}

/// Runs `tcpcost trace -i`, which prints a document every 10 ms.
struct Trace {
    child: Child,
    looks: Lines<BufReader<ChildStdout>>,
}

impl Trace {
    /// Starts a capture on this interface. `None` if it cannot capture.
    fn on(interface: &str) -> Option<Trace> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tcpcost"))
            .args([
                "trace",
                "-i",
                interface,
                "--interval",
                "10ms",
                "--format=json",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let looks = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut trace = Trace { child, looks };
        if trace.look().is_none() {
            let mut said = String::new();
            trace
                .child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            assert_eq!(trace.child.wait().unwrap().code(), Some(77), "{said}");
            skip(said.trim());
            return None;
        }
        Some(trace)
    }

    fn look(&mut self) -> Option<Value> {
        let line = self.looks.next()?.unwrap();
        Some(serde_json::from_str::<Value>(&line).unwrap()["captures"][0].clone())
    }

    /// Waits until both ends are closed and two documents in a row have the same counts. Returns
    /// the last document, and the growth of eBPF's counts until then.
    fn once_it_has_seen_all(mut self, meter: &mut dyn Meter, before: &Counts) -> (Value, Counts) {
        let mut last = None;
        for _ in 0..1000 {
            let look = self.look().unwrap();
            let now = totals(meter);
            let grown: Counts = now.iter().map(|(q, n)| (*q, n - before[q])).collect();
            let over = look["connections"][0]["ended"]["fin"] != Value::Null;
            let counts = Some((look["total"].clone(), grown.clone()));
            if over && last == counts {
                // SAFETY: the child is not yet waited for, so the id names it.
                unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
                assert_eq!(self.child.wait().unwrap().code(), Some(0));
                assert_eq!(look["dropped_by_capture"], 0);
                assert_eq!(look["connections"].as_array().map(Vec::len), Some(1));
                return (look, grown);
            }
            last = counts;
        }
        panic!("the connection never came to rest");
    }
}

/// Sets the MTU of this namespace's lo.
fn lo_mtu(mtu: i32) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: an all-zero ifreq is valid, the name fits, and the kernel only reads it.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_mtu = mtu;
        let set = libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFMTU as _, &request);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Quantities that both the kernel's hooks and a capture count.
const COUNTED: [Q; 4] = [
    Q::DataWireSegmentsSent,
    Q::PureAcksSent,
    Q::DataWireSegmentsReceived,
    Q::PureAcksReceived,
];

/// Compares eBPF's counts with those of a capture. `None` if eBPF missed segments.
fn agree(captured: &[(Q, u64)], ebpf: &Counts) -> Option<()> {
    for (quantity, seen) in captured {
        assert!(
            ebpf[quantity] <= *seen,
            "{quantity}: {ebpf:?}, {captured:?}"
        );
    }
    let is_whole = captured
        .iter()
        .all(|(quantity, seen)| ebpf[quantity] == *seen);
    if !is_whole {
        println!("{ebpf:?}, {captured:?}");
    }
    is_whole.then_some(())
}

/// Compares TCP_INFO of one end with what the capture shows for that end.
fn check_against_tcp_info(end: &Value, stream: &TcpStream) {
    let snapshot = TcpInfo::default().snapshot([stream.as_fd()]).unwrap();
    let mut compared = 0;
    for (quantity, counted) in &snapshot.totals[0].counts {
        let Some(seen) = end["quantities"][quantity.name()].as_u64() else {
            continue;
        };
        // The kernel counts SYN and FIN as acknowledged bytes, and FIN as a received byte.
        let extra = match quantity {
            Q::ConnBytesAcked => 2,
            Q::ConnBytesReceived => 1,
            _ => 0,
        };
        assert_eq!(seen + extra, *counted, "{quantity}");
        compared += 1;
    }
    assert!(compared >= 8, "{end}");
}

#[test]
fn on_loopback_a_capture_the_kernel_and_ebpf_agree() {
    unless_missed(|| in_namespace(on_loopback).unwrap_or(Some(())));
}

/// Returns `None` if eBPF missed segments.
fn on_loopback() -> Option<()> {
    let (Some(mut meter), Some(trace)) = (segments(), Trace::on("lo")) else {
        return Some(());
    };
    // The own MTU of lo fits two segments into the first window, and Linux cuts to half a window.
    lo_mtu(1500);
    let before = totals(&mut *meter);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = std::thread::spawn(move || {
        let (mut server, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        server.write_all(&received[..300_000]).unwrap();
    });
    for message in [1, 4096, 65_536, 3_000_000, 100] {
        client.write_all(&vec![7; message]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    server.join().unwrap();
    let (capture, ebpf) = trace.once_it_has_seen_all(&mut *meter, &before);
    check_against_tcp_info(&capture["connections"][0]["ends"][0], &client);
    // Both ends send in this namespace.
    let ends = capture["connections"][0]["ends"].as_array().unwrap();
    let mut captured: Vec<(Q, u64)> = COUNTED
        .iter()
        .map(|quantity| {
            let of = |end: &Value| end["quantities"][quantity.name()].as_u64().unwrap();
            (*quantity, ends.iter().map(of).sum())
        })
        .collect();
    let total = |name: &str| capture["total"][name].as_u64().unwrap();
    captured.push((Q::DataSkbBytesSent, total("payload_bytes")));
    captured.push((Q::DataSkbsSent, total("captured_data_packets")));
    agree(&captured, &ebpf)
}

#[test]
fn over_a_tap_both_captures_the_kernel_ebpf_and_our_tcp_agree() {
    unless_missed(|| in_namespace(over_a_tap).unwrap_or(Some(())));
}

/// Returns `None` if eBPF missed segments.
fn over_a_tap() -> Option<()> {
    if !std::path::Path::new("/dev/net/tun").exists() {
        skip("needs /dev/net/tun");
        return Some(());
    }
    let place = Place::new();
    let file = place.path("peer.pcapng").to_str().unwrap().to_string();
    let mut peer = place.start(&[
        "peer",
        "--tap",
        "tcp0",
        "--format=json",
        "--listen",
        "5000",
        "--service=sink",
        "--pcap",
        &file,
        "--local",
        "10.78.0.2/24",
        "--host-address",
        "10.78.0.1/24",
        "--set",
        "ack_every=4",
    ]);
    peer.wait_for("ready");
    let (Some(mut meter), Some(trace)) = (segments(), Trace::on("tcp0")) else {
        peer.signal(libc::SIGINT);
        peer.end();
        return Some(());
    };
    let before = totals(&mut *meter);
    let mut client = TcpStream::connect("10.78.0.2:5000").unwrap();
    for message in [1, 4096, 65_536, 3_000_000, 100] {
        client.write_all(&vec![7; message]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let (capture, ebpf) = trace.once_it_has_seen_all(&mut *meter, &before);
    peer.signal(libc::SIGINT);
    let ran = peer.end();
    let ours: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();

    let [kernels, others] = [0, 1].map(|end| capture["connections"][0]["ends"][end].clone());
    check_against_tcp_info(&kernels, &client);
    let of_kernel = |quantity: Q| kernels["quantities"][quantity.name()].as_u64().unwrap();
    let captured = COUNTED.map(|quantity| (quantity, of_kernel(quantity)));
    let quantities = &others["quantities"];
    for (ours_name, seen) in [
        ("segments_sent", &quantities["conn_segments_sent"]),
        ("segments_received", &quantities["conn_segments_received"]),
        ("payload_bytes_received", &quantities["conn_bytes_received"]),
        ("pure_acks_sent", &quantities["pure_acks_sent"]),
        (
            "super_segments_received",
            &kernels["sent"]["captured_packets"],
        ),
    ] {
        let counted = ours[ours_name].as_u64();
        assert_eq!(counted, seen.as_u64(), "{ours_name}: {ours}");
    }

    // The capture written by our own end must show the same as the capture of the other end.
    let ran = place.run(&["trace", &file, "--format=json"]);
    let own: Value = serde_json::from_str(&ran.stdout).unwrap();
    for end in [0, 1] {
        let own = &own["captures"][0]["connections"][0]["ends"][end];
        let live = &capture["connections"][0]["ends"][end];
        assert_eq!(own["quantities"], live["quantities"], "{end}");
        assert_eq!(own["packet_bytes"], live["packet_bytes"], "{end}");
    }
    agree(&captured, &ebpf)
}
