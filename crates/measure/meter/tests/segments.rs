//! Compares the meter `segments` with the kernel's own counters. Needs root, else it is skipped.
#![cfg(feature = "bpf")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use tcpcost_counts::{ByConnection, Counts, MeterName, Quantity, Reading};
use tcpcost_meter::Meter;
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::{self, Idle, connection_key};
use tcpcost_meter::netstat::Netstat;
use tcpcost_meter::tcp_info::{TcpInfo, key};
use tcpcost_testbed::{unless_missed, until};

/// Runs `work` in a new network namespace, with the meter loaded there.
fn in_namespace(work: impl FnOnce(Box<dyn Meter + Send>) + Send) {
    tcpcost_testbed::in_namespace(|| match bpf::load(MeterName::Segments, &Scope::default()) {
        Ok(meter) => work(meter),
        Err(error) if error.needs().is_some() => {
            tcpcost_testbed::skip(&error.to_string());
        }
        Err(error) => panic!("{error}"),
    });
}

/// Growth by eBPF and by /proc/net, read at instants when nothing is sent.
fn growth(meter: &mut dyn Meter, work: impl FnOnce()) -> (Counts, Counts) {
    let mut netstat = Netstat::default();
    let mut both = || loop {
        let earlier = meter.snapshot().unwrap();
        let kernel = netstat.snapshot().unwrap();
        let later = meter.snapshot().unwrap();
        if earlier.totals == later.totals {
            return (later, kernel);
        }
    };
    let before = both();
    work();
    let after = both();
    let counts = |readings: Vec<Reading>| readings.into_iter().next().unwrap().counts.into();
    (
        counts(after.0.since(&before.0).unwrap()),
        counts(after.1.since(&before.1).unwrap()),
    )
}

fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Sends messages of `length` bytes one way. The other end reads each one before the next is sent.
fn send((from, to): &mut (TcpStream, TcpStream), messages: usize, length: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..messages {
                from.write_all(&vec![7; length]).unwrap();
                from.read_exact(&mut [0]).unwrap();
            }
        });
        let mut buffer = vec![0; length];
        for _ in 0..messages {
            to.read_exact(&mut buffer).unwrap();
            to.write_all(&[1]).unwrap();
        }
    });
}

#[test]
fn segments_and_bytes_are_those_of_the_kernels_counters() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        in_namespace(move |mut meter| {
            let mut pair = pair(address);
            let (ours, kernel) = growth(&mut *meter, || {
                send(&mut pair, 300, 65_536);
                send(&mut pair, 300, 1);
            });
            use Quantity as Q;
            // The connections exist before and after, so there is no SYN, FIN or RST.
            assert_eq!(
                ours[&Q::DataWireSegmentsSent] + ours[&Q::PureAcksSent],
                kernel[&Q::SegmentsSent] + kernel[&Q::SegmentsRetransmitted],
                "{address}: {ours:?} {kernel:?}"
            );
            assert_eq!(
                ours[&Q::DataSkbsSent] + ours[&Q::PureAcksSent],
                kernel[&Q::IpPacketsSent]
            );
            // If the machine stalls for milliseconds, a tail loss probe may send a message twice.
            let once = 300 * (65_536 + 1 + 1 + 1);
            let again = kernel[&Q::SegmentsRetransmitted] * 65_536;
            assert!(
                (once..=once + again).contains(&ours[&Q::DataSkbBytesSent]),
                "{ours:?}"
            );
            // All packets sent on loopback are received.
            assert_eq!(ours[&Q::DataSkbBytesReceived], ours[&Q::DataSkbBytesSent]);
            assert_eq!(ours[&Q::DataSkbsReceived], ours[&Q::DataSkbsSent]);
            assert_eq!(ours[&Q::PureAcksReceived], ours[&Q::PureAcksSent]);
            let skbs = ours[&Q::DeviceSkbsSent];
            assert_eq!(skbs, kernel[&Q::IpPacketsSent]);
            // The payload of 64 KiB is in pages: at least one fragment besides the headers, and at most
            // MAX_SKB_FRAGS.
            let pieces = ours[&Q::DeviceFragmentsSent];
            assert!((skbs + 300..=18 * skbs).contains(&pieces), "{ours:?}");
        });
    }
}

#[test]
fn sizes_and_drainers_each_account_for_every_skb() {
    in_namespace(|mut meter| {
        let mut pair = pair("127.0.0.1:0");
        let (counts, _) = growth(&mut *meter, || send(&mut pair, 200, 65_536));
        let sum = |start: &str, end: &str| -> u64 {
            let of = |quantity: &Quantity| {
                quantity.name().starts_with(start) && quantity.name().ends_with(end)
            };
            counts
                .iter()
                .filter(|(quantity, _)| of(quantity))
                .map(|(_, count)| count)
                .sum()
        };
        let (skbs, bytes) = (
            counts[&Quantity::DataSkbsSent],
            counts[&Quantity::DataSkbBytesSent],
        );
        assert_eq!(sum("skbs_sent_", "_bytes"), skbs);
        assert_eq!(sum("drained_by_", "_skbs"), skbs);
        assert_eq!(sum("drained_by_", "_bytes"), bytes);
        // The one-byte answers leave from a system call, and are the only packets this small.
        assert!(counts[&Quantity::DrainedSystemCallSkbs] > 0);
        assert!(counts[&Quantity::SkbsSentBelow128] >= 200);
        let squares = counts[&Quantity::DataSkbSquaredBytesSent];
        assert!(squares >= bytes && squares <= bytes * 65_536, "{squares}");
        // The answers have one segment each.
        let several = counts[&Quantity::LargeSkbsSent];
        assert!(several + 200 <= skbs, "{several} of {skbs}");
    });
}

/// The MSS of lo is below 64 KiB, so a write of this size is a full segment and a rest.
#[test]
fn the_rest_of_a_write_behind_full_segments_is_a_tail() {
    in_namespace(|mut meter| {
        let mut pair = pair("127.0.0.1:0");
        // Continues until the congestion window has doubled for the first time.
        send(&mut pair, 50, 65_536);
        let (large, _) = growth(&mut *meter, || send(&mut pair, 100, 65_536));
        assert!(large[&Quantity::TailSkbsSent] > 0, "{large:?}");
        let (small, _) = growth(&mut *meter, || send(&mut pair, 100, 1000));
        assert_eq!(small[&Quantity::TailSkbsSent], 0);
    });
}

#[test]
fn what_happens_in_another_namespace_is_not_counted() {
    in_namespace(|mut meter| {
        let (counts, _) = growth(&mut *meter, || {
            in_namespace(|_| send(&mut pair("127.0.0.1:0"), 10, 1000))
        });
        assert!(counts.values().all(|&count| count == 0), "{counts:?}");
    });
}

#[test]
fn connections_are_told_apart_and_add_up() {
    in_namespace(|_| {
        let scope = Scope {
            connections: Some(1024),
            ..Scope::default()
        };
        let mut meter = bpf::load(MeterName::Segments, &scope).unwrap();
        let mut pairs = ["127.0.0.1:0", "[::1]:0"].map(pair);
        let before = meter.snapshot().unwrap();
        send(&mut pairs[0], 100, 65_536);
        send(&mut pairs[1], 50, 1000);
        let after = meter.snapshot().unwrap();
        let all = after.since(&before).unwrap().remove(0).counts;
        let by_connection = meter.by_connection();
        let mut sums = Counts::new();
        for (index, (from, to)) in pairs.iter().enumerate() {
            let (from, to) = (from.local_addr().unwrap(), to.local_addr().unwrap());
            let [sender, receiver] = [(from, to), (to, from)]
                .map(|(local, remote)| &by_connection[&connection_key(local, remote)]);
            for counts in [sender, receiver] {
                for (&quantity, count) in counts {
                    *sums.entry(quantity).or_insert(0) += count;
                }
            }
            let bytes = [100 * 65_536, 50 * 1000][index];
            // A tail loss probe may send some messages twice.
            assert!(sender[&Quantity::DataSkbBytesSent] >= bytes, "{sender:?}");
            assert_eq!(
                sender[&Quantity::DataSkbBytesSent],
                receiver[&Quantity::DataSkbBytesReceived]
            );
            // Each message is a burst for its receiver, and each answer is one for the sender.
            let bursts = receiver[&Quantity::DataBurstsReceived];
            assert!((1..=[300, 50][index]).contains(&bursts), "{receiver:?}");
        }
        for (quantity, sum) in sums {
            // The ACKs of the two handshakes come before the first snapshot.
            let most = all[&quantity] + 8;
            assert!(
                (all[&quantity]..=most).contains(&sum),
                "{quantity}: {sum} {all:?}"
            );
        }
    });
}

/// Compares with the kernel's counters of each connection (tcpi_segs_out, tcpi_segs_in), at both ends.
#[test]
fn segments_of_a_connection_are_those_of_its_tcp_info() {
    in_namespace(|_| {
        let scope = Scope {
            connections: Some(64),
            ..Scope::default()
        };
        let mut meter = bpf::load(MeterName::Segments, &scope).unwrap();
        let mut pairs = ["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"].map(pair);
        let ends = |pairs: &[(TcpStream, TcpStream)]| -> Vec<TcpStream> {
            let both = pairs.iter().flat_map(|(from, to)| [from, to]);
            both.map(|end| end.try_clone().unwrap()).collect()
        };
        let ends = ends(&pairs);
        let keys: Vec<u64> = ends.iter().filter_map(|end| key(end.as_fd())).collect();
        // Reads both at an instant when nothing is sent.
        let mut both = || loop {
            let earlier = meter.by_connection();
            let kernel = ends.iter().map(|end| {
                let snapshot = TcpInfo::default().snapshot([end.as_fd()]).unwrap();
                snapshot.totals[0].counts.clone()
            });
            let kernel: Vec<Counts> = kernel.collect();
            let later = meter.by_connection();
            if earlier == later {
                return (later, kernel);
            }
        };
        let before = both();
        for (pair, length) in pairs.iter_mut().zip([65_536, 100, 5000]) {
            send(pair, 50, length);
        }
        let after = both();
        use Quantity as Q;
        for (index, key) in keys.iter().enumerate() {
            let seen = |of| after.0[key][&of] - before.0[key][&of];
            let kernel = |of| after.1[index][&of] - before.1[index][&of];
            assert_eq!(
                seen(Q::DataWireSegmentsSent) + seen(Q::PureAcksSent),
                kernel(Q::ConnSegmentsSent)
            );
            assert_eq!(
                seen(Q::DataWireSegmentsReceived) + seen(Q::PureAcksReceived),
                kernel(Q::ConnSegmentsReceived)
            );
            assert_eq!(
                seen(Q::DataWireSegmentsSent),
                kernel(Q::ConnDataSegmentsSent)
            );
        }
        let spread = ByConnection::between(&before.0, &after.0, keys, 1).unwrap();
        assert_eq!(spread.connections, 6);
        let bytes = spread.quantities[&Q::DataSkbBytesReceived];
        // The sending ends receive 50 answers of a byte each. A tail loss probe may send a message twice.
        assert_eq!(bytes.min, 50);
        assert!(bytes.max >= 50 * 65_536, "{bytes:?}");
    });
}

#[test]
fn segments_are_not_counted_in_a_rest_of_either_kind() {
    in_namespace(|_| {
        let mut meter = bpf::load(MeterName::Segments, &Scope::default()).unwrap();
        let mut pair = pair("127.0.0.1:0");
        let mut grown = |meter: &mut dyn Meter| {
            let before = meter.snapshot().unwrap();
            send(&mut pair, 20, 1000);
            let readings = meter.snapshot().unwrap().since(&before).unwrap();
            readings[0].counts[&Quantity::DataSkbBytesSent]
        };
        for rest in [Idle::Attached, Idle::Detached, Idle::Attached] {
            meter.pause(rest);
            match rest {
                Idle::Attached => assert_eq!(grown(&mut *meter), 0),
                // The kernel may detach the programs a moment later.
                Idle::Detached => until("detached programs count nothing", || {
                    (grown(&mut *meter) == 0).then_some(())
                }),
            }
            meter.resume().unwrap();
            assert!(grown(&mut *meter) >= 20 * 1001, "{rest:?}");
        }
    });
}

/// Several hosts share one copy. Each counts only its own traffic, and a namespace beyond the limit gets its
/// own copy.
#[test]
fn many_namespaces_share_one_copy_and_each_counts_its_own() {
    in_namespace(|first| {
        drop(first);
        let load = |loaded: Option<String>| {
            let scope = Scope {
                namespaces: 5,
                loaded: loaded
                    .map(|handle| (MeterName::Segments, handle))
                    .into_iter()
                    .collect(),
                ..Scope::default()
            };
            bpf::load(MeterName::Segments, &scope)
        };
        let mut owner = load(None).unwrap();
        let handle = owner.handle();
        // Each namespace lives as long as its thread, and threads end with the scope.
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let counted = |messages: usize, loaded: Option<String>| {
            let mut meter = load(loaded).unwrap();
            let own = meter.handle();
            let (ebpf, _) = growth(&mut *meter, || {
                send(&mut pair("127.0.0.1:0"), messages, 100);
            });
            (ebpf[&Quantity::DataSkbsSent], own)
        };
        std::thread::scope(|scope| {
            let (counted, wait) = (&counted, &wait);
            let others: Vec<_> = (1..=5)
                .map(|messages| {
                    let (told, tell) = std::sync::mpsc::channel();
                    let loaded = handle.clone();
                    scope.spawn(move || {
                        tcpcost_testbed::in_namespace(|| {
                            told.send(counted(messages, loaded)).unwrap();
                            let _ = wait.lock().map(|wait| wait.recv());
                        });
                    });
                    // The hosts load one after the other, as in a trial.
                    tell.recv().expect("the thread says what it counted")
                })
                .collect();
            let skbs: Vec<u64> = others.iter().map(|(skbs, _)| *skbs).collect();
            // Each message has an answer.
            assert_eq!(skbs, [2, 4, 6, 8, 10]);
            let shared = others.iter().map(|(_, own)| own.is_none());
            // The owner has the first of five places, so the last thread finds no room and loads its own
            // copy.
            assert!(shared.eq([true, true, true, true, false]));
            drop(done);
        });
        let (ebpf, _) = growth(&mut *owner, || send(&mut pair("127.0.0.1:0"), 7, 100));
        assert_eq!(ebpf[&Quantity::DataSkbsSent], 14);
    });
}

/// Unread data stays in the buffer, so the window closes, and such ACKs only acknowledge. Reading then opens
/// it.
#[test]
fn acks_that_move_the_window_are_those_of_reads() {
    in_namespace(|mut meter| {
        let (advancing, only) = (
            Quantity::WindowAdvancingAcksSent,
            Quantity::OnlyAcknowledgingAcksSent,
        );
        let (filling, reading) = unless_missed(|| {
            let [filling, reading] = filled_and_read(&mut *meter);
            let all = |of| filling[&of] + reading[&of];
            let has_all = all(Quantity::PureAcksSent) == all(Quantity::PureAcksReceived);
            has_all.then_some((filling, reading))
        });
        assert!(filling[&only] > 0, "{filling:?}");
        assert!(reading[&advancing] > 0, "{reading:?}");
        for counts in [filling, reading] {
            assert!(counts[&Quantity::DuplicateAcksSent] <= counts[&only]);
            let both = counts[&advancing] + counts[&only];
            assert!(both <= counts[&Quantity::PureAcksSent], "{counts:?}");
        }
    });
}

/// Growth while a new connection's buffer is filled, and while it is read.
fn filled_and_read(meter: &mut dyn Meter) -> [Counts; 2] {
    let (mut from, mut to) = pair("127.0.0.1:0");
    from.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let (filling, _) = growth(meter, || {
        // The buffer is full when 20 writes in a row are refused.
        let mut refusals = 0;
        while refusals < 20 {
            match from.write(&[7; 16_384]) {
                Ok(bytes) => (sent, refusals) = (sent + bytes, 0),
                Err(_) => {
                    refusals += 1;
                    std::thread::park_timeout(std::time::Duration::from_millis(5));
                }
            }
        }
    });
    let (reading, _) = growth(meter, || {
        to.read_exact(&mut vec![0; sent]).unwrap();
    });
    [filling, reading]
}

#[test]
fn ends_that_give_way_in_the_table_of_connections_are_told_with_their_count() {
    in_namespace(|first| {
        drop(first);
        let scope = Scope {
            connections: Some(64),
            ..Scope::default()
        };
        let mut meter = bpf::load(MeterName::Segments, &scope).unwrap();
        send(&mut pair("127.0.0.1:0"), 1, 1);
        assert_eq!(meter.by_connection().len(), 2);
        assert_eq!(meter.overflow(), None);
        // The kernel keeps some entries of each CPU in addition to the 64.
        let cpus = std::thread::available_parallelism().unwrap().get();
        let connections = 2 * (64 + 256 * cpus);
        for _ in 0..connections {
            send(&mut pair("127.0.0.1:0"), 1, 1);
        }
        let kept = meter.by_connection().len();
        let told = meter.overflow().unwrap();
        let count: usize = told.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(count + kept >= 2 * connections, "{told} {kept}");
        assert!(kept < 2 * connections, "{kept}");
        assert_eq!(meter.overflow(), None, "each is told once");
    });
}
