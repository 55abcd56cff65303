use super::*;
use std::collections::BTreeMap as Map;
use tcpcost_study::{
    Bed, CountOwner, Counts, Environment, Knobs, Outcome, Reading, SCHEMA_VERSION, Shared, Topology,
};

const S: u64 = 1_000_000_000;

fn reading(meter: MeterName, whose: CountOwner, counts: &[(Quantity, u64)]) -> Reading {
    Reading {
        meter,
        whose,
        duration_ns: 2 * S,
        counts: counts.iter().copied().collect(),
    }
}

/// One CPU: user 0.2 s, nice 0.1, system 0.4, irq 0.1, softirq 0.2, guest 0.1 (1.1 s by ticks),
/// idle 0.5, iowait 0.3, steal 0.1: of 2 s it is not idle for 1.2 s.
fn proc(cpu: usize) -> Reading {
    let tenths = [
        (Quantity::CpuUserNs, 2),
        (Quantity::CpuNiceNs, 1),
        (Quantity::CpuSystemNs, 4),
        (Quantity::CpuIrqNs, 1),
        (Quantity::CpuSoftirqNs, 2),
        (Quantity::CpuGuestNs, 1),
        (Quantity::CpuIdleNs, 5),
        (Quantity::CpuIowaitNs, 3),
        (Quantity::CpuStealNs, 1),
    ];
    reading(
        MeterName::Proc,
        CountOwner::Cpu(cpu),
        &tenths.map(|(of, n)| (of, n * S / 10)),
    )
}

/// A port whose receive work is steered to the CPUs of `mask`.
fn steered_to(mask: &str) -> Shared<Map<String, Shared<Environment>>> {
    port(Environment {
        rps_cpus: Some(mask.into()),
        ..Environment::default()
    })
}

fn port(port: Environment) -> Shared<Map<String, Shared<Environment>>> {
    Map::from([("port".to_string(), port.into())]).into()
}

/// A stream of 1 MiB in 2 s, the client on CPU 0 and the server on 1.
fn stream(bed: &str) -> Record {
    let end = |cpu: usize, readings: Vec<Reading>| HostRecord {
        cpus: vec![cpu],
        threads: 1,
        ports: steered_to("1"),
        readings,
        machine: "a".into(),
        ..HostRecord::default()
    };
    let rusage = |user, system| {
        let counts = [
            (Quantity::TaskUserNs, user),
            (Quantity::TaskSystemNs, system),
            (Quantity::VoluntarySwitches, 30),
            (Quantity::InvoluntarySwitches, 2),
        ];
        reading(MeterName::Rusage, CountOwner::Threads, &counts)
    };
    let netstat = |segments, packets, octets| {
        let counts = [
            (Quantity::DelayedAcksSent, segments / 10),
            (Quantity::BacklogCoalesced, 4),
            (Quantity::SegmentsSent, segments),
            (Quantity::SegmentsRetransmitted, 0),
            (Quantity::IpPacketsSent, packets),
            (Quantity::IpOctetsSent, octets),
        ];
        reading(MeterName::Netstat, CountOwner::Namespace, &counts)
    };
    let tcp_info = |all, data, (received, data_received): (u64, u64), retransmitted, bytes| {
        let counts = [
            (Quantity::ConnSegmentsReceived, received),
            (Quantity::ConnDataSegmentsReceived, data_received),
            (Quantity::ConnSegmentsSent, all),
            (Quantity::ConnDataSegmentsSent, data),
            (Quantity::ConnSegmentsRetransmitted, retransmitted),
            (Quantity::ConnBytesReceived, bytes),
        ];
        reading(MeterName::TcpInfo, CountOwner::Connections, &counts)
    };
    let sent = [
        (Quantity::PayloadBytesSent, 1 << 20),
        (Quantity::SendCalls, 16),
        (Quantity::ZerocopyCompletions, 16),
        (Quantity::ZerocopyCopied, 4),
    ];
    let received = [
        (Quantity::PayloadBytesReceived, 1 << 20),
        (Quantity::ReceiveCalls, 32),
    ];
    let tsc = reading(
        MeterName::Tsc,
        CountOwner::Host,
        &[(Quantity::TscCycles, 5 * S)],
    );
    let client = vec![
        proc(0),
        rusage(S / 10, S / 2),
        netstat(800, 20, 1_048_576),
        tcp_info(801, 800, (32, 0), 8, 0),
        reading(MeterName::Workload, CountOwner::Workload, &sent),
        tsc.clone(),
    ];
    let mut with_payload = tcp_info(40, 0, (800, 800), 0, (1 << 20) + 1024);
    let bytes = 1 << 20;
    with_payload
        .counts
        .insert(Quantity::PayloadBytesReceived, bytes);
    let server = vec![
        proc(1),
        rusage(S / 10, S),
        netstat(40, 40, 2080),
        with_payload,
        reading(MeterName::Workload, CountOwner::Workload, &received),
        tsc,
    ];
    let mut knobs = Knobs::default();
    if bed == "tap" {
        knobs.set("client.stack", "user").unwrap();
    }
    Record {
        schema_version: SCHEMA_VERSION,
        study: "s".into(),
        cell: "c".into(),
        topology: Topology::of(Bed::from_word(bed).unwrap(), &knobs)
            .unwrap()
            .into(),
        knobs: knobs.into(),
        repetition: 0,
        attempt: 0,
        seed: 1,
        started: String::new(),
        bed: bed.into(),
        captured: false,
        interval_ns: 2 * S,
        took_ns: None,
        work: None,
        outcome: Outcome::Measured,
        warnings: vec![],
        cpu_distances: Vec::new(),
        machines: Shared::default(),
        hosts: Map::from([
            (HostName::CLIENT, end(0, client).into()),
            (HostName::SERVER, end(1, server).into()),
        ]),
    }
}

fn check(values: &Values, expected: &[(&str, Option<f64>)]) {
    for (name, value) in expected {
        let found = values.get(&name.parse().unwrap()).copied();
        let near = match (found, value) {
            (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1e-3),
            (a, b) => a.is_none() && b.is_none(),
        };
        assert!(near, "{name}: {found:?}, expected {value:?}");
    }
}

#[test]
fn a_stream_between_namespaces_gives_every_end_its_own() {
    let kib = 1024.0;
    check(
        &derive(&stream("netns")),
        &[
            ("goodput_bits_per_s", Some(4_194_304.0)),
            ("cpu_us_per_kib", Some(2.4e6 / kib)),
            ("client_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("server_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("task_us_per_kib", Some(1.7e6 / kib)),
            ("client_task_us_per_kib", Some(0.6e6 / kib)),
            ("tsc_cycles_per_kib", Some(2.4e6 * 2500.0 / kib)),
            ("client_user_ratio", Some(0.15)),
            ("system_ratio", Some(0.2)),
            ("irq_ratio", Some(0.05)),
            ("softirq_ratio", Some(0.1)),
            ("idle_ratio", Some(0.4)),
            ("steal_ratio", Some(0.05)),
            // Tasks took 0.8 s of a CPU, the client's threads 0.6 s, the server's 1.1 s. The difference must
            // not fall below 0.
            ("client_others_ratio", Some(0.1)),
            ("server_others_ratio", Some(0.0)),
            ("segments_per_skb", Some(840.0 / 60.0)),
            ("client_segments_per_skb", Some(40.0)),
            ("server_octets_per_datagram", Some(52.0)),
            // The server sent 40 ACKs, of which 32 arrived: the ACK filter held the rest.
            ("client_data_segments_per_pure_ack_received", Some(25.0)),
            ("data_segments_per_pure_ack_received", Some(25.0)),
            ("client_acks_per_kib", Some(32.0 / kib)),
            ("server_acks_per_kib", Some(0.0)),
            ("server_delayed_acks_per_s", Some(2.0)),
            ("delayed_acks_per_s", Some(42.0)),
            ("backlog_coalesced_per_mib", Some(8.0)),
            ("server_backlog_coalesced_per_mib", Some(4.0)),
            ("acks_filtered_ratio", None),
            ("retransmit_ratio", Some(0.01)),
            // The server sent no data segment, so there is no ratio.
            ("server_retransmit_ratio", None),
            ("context_switches_per_mib", Some(64.0)),
            ("server_context_switches_per_mib", Some(32.0)),
            ("bytes_per_send_call", Some(65536.0)),
            ("server_bytes_per_receive_call", Some(32768.0)),
            ("server_bytes_per_send_call", None),
            ("zerocopy_copied_ratio", Some(0.25)),
            ("payload_disagreement_ratio", Some(1.0 / 1024.0)),
            ("segment_disagreement_ratio", Some(1.0 / 841.0)),
            ("server_segment_disagreement_ratio", Some(0.0)),
            ("cpu_us_per_transaction", None),
            ("transactions_per_s", None),
            ("response_us_p50", None),
        ],
    );
}

#[test]
fn on_loopback_cpu_and_namespace_are_told_of_both_ends_alone() {
    check(
        &derive(&stream("loopback")),
        &[
            ("cpu_us_per_kib", Some(2.4e6 / 1024.0)),
            ("client_cpu_us_per_kib", None),
            ("server_softirq_ratio", None),
            ("client_task_us_per_kib", Some(0.6e6 / 1024.0)),
            // One namespace that both ends read counts once.
            ("segments_per_skb", Some(40.0)),
            ("client_segments_per_skb", None),
            ("client_data_segments_per_pure_ack_received", Some(25.0)),
            ("delayed_acks_per_s", Some(40.0)),
            ("backlog_coalesced_per_mib", Some(4.0)),
        ],
    );
}

/// Reading of one CPU by the meter `exact`, in ms: the trial's tasks 600, other tasks 50, NET_RX 300,
/// scheduler's softirq 30, interrupts 20.
fn exact(cpu: usize) -> Reading {
    let mut counts: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
    counts.extend([
        (Quantity::ExactTaskOwnNs, 600 * MS),
        (Quantity::ExactTaskOthersNs, 50 * MS),
        (Quantity::ExactSoftirqNetRxNs, 300 * MS),
        (Quantity::ExactSoftirqSchedNs, 30 * MS),
        (Quantity::ExactHardirqNs, 20 * MS),
        (Quantity::ExactIdleNs, 1000 * MS),
    ]);
    Reading {
        counts: counts.into(),
        ..reading(MeterName::Exact, CountOwner::Cpu(cpu), &[])
    }
}

/// CPU time of a host's process by owner, ms.
fn owned(task: u64, softirq: u64, hardirq: u64) -> Reading {
    let counts = [
        (Quantity::HolderTaskNs, task * MS),
        (Quantity::HolderSoftirqNs, softirq * MS),
        (Quantity::HolderHardirqNs, hardirq * MS),
    ];
    reading(MeterName::Exact, CountOwner::Process, &counts)
}

const MS: u64 = S / 1000;

#[test]
fn owners_and_what_has_none_are_the_cost_of_all_hosts() {
    let mut record = stream("loopback");
    for (host, cpu, by_owner) in [
        (HostName::CLIENT, 0, owned(550, 150, 5)),
        (HostName::SERVER, 1, owned(640, 440, 10)),
    ] {
        let found = record.hosts.get_mut(&host).unwrap();
        found.readings.extend([exact(cpu), by_owner]);
    }
    let kib = 1024.0;
    check(
        &derive(&record),
        &[
            ("exact_cpu_us_per_kib", Some(1900e3 / kib)),
            ("owned_cpu_us_per_kib", Some(1795e3 / kib)),
            ("client_owned_cpu_us_per_kib", Some(705e3 / kib)),
            ("server_owned_cpu_us_per_kib", Some(1090e3 / kib)),
            ("unowned_cpu_us_per_kib", Some(105e3 / kib)),
            // CPU time by CPU and CPU time by owner are different methods with different names.
            ("client_exact_cpu_us_per_kib", None),
            ("client_exact_idle_ratio", None),
            ("owned_cpu_us_per_transaction", None),
        ],
    );
    let server = record.hosts.get_mut(&HostName::SERVER).unwrap();
    server
        .readings
        .retain(|one| one.whose != CountOwner::Process);
    check(
        &derive(&record),
        &[
            ("exact_cpu_us_per_kib", Some(1900e3 / kib)),
            ("client_owned_cpu_us_per_kib", Some(705e3 / kib)),
            ("server_owned_cpu_us_per_kib", None),
            ("owned_cpu_us_per_kib", None),
            ("unowned_cpu_us_per_kib", None),
        ],
    );
}

#[test]
fn our_own_tcp_counts_as_a_namespace_does_and_an_ack_filter_at_its_end() {
    let mut record = stream("tap");
    let client = record.hosts.get_mut(&HostName::CLIENT).unwrap();
    client
        .readings
        .retain(|reading| reading.meter != MeterName::Netstat);
    let counts = [
        (Quantity::IpPacketsSent, 30),
        (Quantity::IpOctetsSent, 42_000),
    ];
    client
        .readings
        .push(reading(MeterName::Tcp, CountOwner::Namespace, &counts));
    let of_connections = client
        .readings
        .iter_mut()
        .find(|reading| reading.meter == MeterName::TcpInfo)
        .unwrap();
    of_connections.counts.insert(Quantity::DelayedAcksSent, 6);
    let server = record.hosts.get_mut(&HostName::SERVER).unwrap();
    let counts = [
        (Quantity::AckFilterPassedAcks, 10),
        (Quantity::AckFilterHeldAcks, 30),
        (Quantity::AckFilterFlushedAcks, 2),
    ];
    server.readings.push(reading(
        MeterName::AckFilter,
        CountOwner::Namespace,
        &counts,
    ));
    check(
        &derive(&record),
        &[
            ("client_octets_per_datagram", Some(1400.0)),
            ("octets_per_datagram", Some(44_080.0 / 70.0)),
            ("client_delayed_acks_per_s", Some(3.0)),
            ("delayed_acks_per_s", Some(5.0)),
            ("backlog_coalesced_per_mib", Some(4.0)),
            ("client_backlog_coalesced_per_mib", None),
            ("server_acks_filtered_ratio", Some(0.7)),
            ("acks_filtered_ratio", Some(0.7)),
            // Segments on the wire are counted only at the kernel's end.
            ("segments_per_skb", None),
        ],
    );
}

#[test]
fn without_steering_cpu_is_told_of_both_ends_alone() {
    let mut record = stream("netns");
    let server = record.hosts.get_mut(&HostName::SERVER).unwrap();
    server.ports = steered_to("0");
    check(
        &derive(&record),
        &[
            ("cpu_us_per_kib", Some(2.4e6 / 1024.0)),
            ("client_cpu_us_per_kib", None),
            ("client_segments_per_skb", Some(40.0)),
        ],
    );
}

#[test]
fn a_cpu_that_both_ends_share_counts_once() {
    let mut record = stream("netns");
    let server = record.hosts.get_mut(&HostName::SERVER).unwrap();
    server.cpus = vec![0];
    server.readings[0] = proc(0);
    check(
        &derive(&record),
        &[
            ("cpu_us_per_kib", Some(1.2e6 / 1024.0)),
            ("idle_ratio", Some(0.4)),
            ("client_cpu_us_per_kib", None),
            ("client_segments_per_skb", Some(40.0)),
        ],
    );
}

#[test]
fn sums_of_cpus_serve_where_single_ones_are_missing() {
    let mut record = stream("netns");
    for (end, cpu) in [(HostName::CLIENT, 0), (HostName::SERVER, 1)] {
        record.hosts.get_mut(&end).unwrap().readings[0].whose = CountOwner::Cpus(vec![cpu]);
    }
    check(
        &derive(&record),
        &[("cpu_us_per_kib", Some(2.4e6 / 1024.0))],
    );
    record.hosts.get_mut(&HostName::CLIENT).unwrap().readings[0].whose =
        CountOwner::Cpus(vec![0, 7]);
    check(
        &derive(&record),
        &[
            ("cpu_us_per_kib", None),
            ("server_cpu_us_per_kib", Some(1.2e6 / 1024.0)),
        ],
    );
}

#[test]
fn what_lacks_an_input_is_absent() {
    let without = |meter: MeterName| {
        let mut record = stream("netns");
        for end in record.hosts.values_mut() {
            end.readings.retain(|reading| reading.meter != meter);
        }
        derive(&record)
    };
    check(
        &without(MeterName::Tsc),
        &[("tsc_cycles_per_kib", None), ("user_ratio", Some(0.15))],
    );
    check(
        &without(MeterName::Rusage),
        &[("others_ratio", None), ("task_us_per_kib", None)],
    );
    check(
        &without(MeterName::Workload),
        &[("cpu_us_per_kib", None), ("user_ratio", Some(0.15))],
    );
    check(&without(MeterName::Netstat), &[("segments_per_skb", None)]);
    let mut failed = stream("netns");
    failed.outcome = Outcome::Failed {
        reason: "no".into(),
    };
    assert!(derive(&failed).is_empty());
}

#[test]
fn others_within_a_tick_of_each_cpu_are_none() {
    let mut record = stream("netns");
    let client = record.hosts.get_mut(&HostName::CLIENT).unwrap();
    client.readings[1]
        .counts
        .insert(Quantity::TaskSystemNs, 690_000_000);
    check(&derive(&record), &[("client_others_ratio", Some(0.0))]);
}

#[test]
fn exact_time_is_told_without_the_tasks_of_others_and_other_methods_are_held_against_it() {
    let mut record = stream("netns");
    for (cpu, end) in record.hosts.values_mut().enumerate() {
        // 2 s: 0.5 own tasks, 0.2 of others, 0.3 NET_RX, 0.1 hard interrupts, the rest idle.
        let mut counts: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        counts.extend([
            (Quantity::ExactTaskOwnNs, S / 2),
            (Quantity::ExactTaskOthersNs, S / 5),
            (Quantity::ExactSoftirqNetRxNs, 3 * S / 10),
            (Quantity::ExactHardirqNs, S / 10),
            (Quantity::ExactIdleNs, 9 * S / 10),
        ]);
        let all: Vec<(Quantity, u64)> = counts.into_iter().collect();
        end.readings
            .push(reading(MeterName::Exact, CountOwner::Cpu(cpu), &all));
    }
    check(
        &derive(&record),
        &[
            ("exact_cpu_us_per_kib", Some(1.8e6 / 1024.0)),
            ("client_exact_cpu_us_per_kib", Some(0.9e6 / 1024.0)),
            ("exact_own_tasks_ratio", Some(0.25)),
            ("exact_others_ratio", Some(0.1)),
            ("server_exact_net_rx_ratio", Some(0.15)),
            ("exact_deferred_ratio", Some(0.0)),
            ("exact_idle_ratio", Some(0.45)),
            // Both include the tasks of others: 1.1 s of 1.1 s.
            ("proc_to_exact_factor", Some(1.0)),
            ("client_rusage_to_exact_factor", Some(0.6 / 0.9)),
            ("exact_cpu_us_per_transaction", None),
        ],
    );
    let server = record.hosts.get_mut(&HostName::SERVER).unwrap();
    server.ports = port(Environment::default());
    check(&derive(&record), &[("client_exact_cpu_us_per_kib", None)]);
}

#[test]
fn super_segments_tails_acks_and_drains_are_the_senders_own() {
    use Quantity as Q;
    let mut record = stream("netns");
    let counts = |data: u64, acks: u64| {
        [
            (Q::DataSkbsSent, 10 * data),
            (Q::DataSkbBytesSent, 400_000 * data),
            (Q::DataSkbSquaredBytesSent, 20_000_000_000 * data),
            (Q::DataWireSegmentsSent, 280 * data),
            (Q::TailSkbsSent, 2 * data),
            (Q::DataBurstsSent, 4 * data),
            (Q::PureAcksReceived, 8 * acks),
            (Q::AckBurstsReceived, 4 * acks),
            (Q::DrainedSystemCallSkbs, 3 * data),
            (Q::DrainedNetRxSkbs, 7 * data),
            (Q::DrainedTaskletSkbs, 0),
            (Q::DrainedTimerSkbs, 0),
        ]
    };
    for (end, counts) in [
        (HostName::CLIENT, counts(1, 1)),
        (HostName::SERVER, counts(0, 0)),
    ] {
        let reading = reading(MeterName::Segments, CountOwner::Namespace, &counts);
        record.hosts.get_mut(&end).unwrap().readings.push(reading);
    }
    check(
        &derive(&record),
        &[
            ("client_skb_bytes_mean", Some(40_000.0)),
            ("client_skb_bytes_weighted_mean", Some(50_000.0)),
            ("client_wire_segments_per_data_skb", Some(28.0)),
            ("client_tail_ratio", Some(0.2)),
            ("client_payload_bytes_per_pure_ack", Some(50_000.0)),
            ("client_data_burst_segments", Some(70.0)),
            ("client_ack_burst_received", Some(2.0)),
            ("client_drained_by_system_call_ratio", Some(0.3)),
            ("drained_by_net_rx_ratio", Some(0.7)),
            ("client_drained_by_timer_ratio", Some(0.0)),
            // The server sent no data, so there is no ratio.
            ("server_tail_ratio", None),
        ],
    );
}

/// A star of two clients and a server, on one machine or on three.
fn star(machines: [&str; 3], cpus: [usize; 3]) -> Record {
    let pair = stream("netns");
    let mut record = pair.clone();
    record.knobs.set("topology", "star").unwrap();
    record.knobs.set("clients", "2").unwrap();
    record.topology = Topology::of(Bed::Netns, &record.knobs).unwrap().into();
    let client = &pair.hosts[&HostName::CLIENT];
    let of = |from: &HostRecord, machine: &str, cpu: usize| {
        let mut host = from.clone();
        host.machine = machine.into();
        host.cpus = vec![cpu];
        host.readings[0].whose = CountOwner::Cpu(cpu);
        Box::new(host)
    };
    let froms = [client, client, &pair.hosts[&HostName::SERVER]];
    let hosts = froms.iter().zip(machines).zip(cpus);
    let hosts = hosts.map(|((from, machine), cpu)| of(from, machine, cpu));
    record.hosts = record.topology.names().zip(hosts).collect();
    record
}

#[test]
fn cpu_0_of_two_machines_is_two_cpus_and_of_two_hosts_of_one_machine_it_is_one() {
    let kib = 1024.0;
    // Each of three CPUs is busy for 1.2 s. Only the server counts what arrives.
    let three = derive(&star(["a", "b", "c"], [0, 0, 0]));
    check(
        &three,
        &[
            ("cpu_us_per_kib", Some(3.6e6 / kib)),
            ("clients_cpu_us_per_kib", Some(2.4e6 / kib)),
            ("client1_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("server_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("clients_bytes_per_send_call", Some(65536.0)),
            ("client2_octets_per_datagram", Some(1_048_576.0 / 20.0)),
        ],
    );
    // The clients share CPU 0 of one machine, so it counts once, and only for both together.
    let one = derive(&star(["a", "a", "a"], [0, 0, 1]));
    check(
        &one,
        &[
            ("cpu_us_per_kib", Some(2.4e6 / kib)),
            ("clients_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("client1_cpu_us_per_kib", None),
            ("server_cpu_us_per_kib", Some(1.2e6 / kib)),
        ],
    );
}

#[test]
fn a_host_that_forwards_has_cpu_and_packets_and_no_part_in_the_work() {
    let pair = stream("netns");
    let mut record = pair.clone();
    record.knobs.set("topology", "chain").unwrap();
    record.topology = Topology::of(Bed::Netns, &record.knobs).unwrap().into();
    let mut relay = pair.hosts[&HostName::CLIENT].clone();
    relay
        .readings
        .retain(|reading| [MeterName::Proc, MeterName::Netstat].contains(&reading.meter));
    relay.cpus = vec![2];
    relay.readings[0].whose = CountOwner::Cpu(2);
    record.hosts.insert(HostName::RELAY, relay);
    let kib = 1024.0;
    check(
        &derive(&record),
        &[
            ("cpu_us_per_kib", Some(3.6e6 / kib)),
            ("relay_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("client_cpu_us_per_kib", Some(1.2e6 / kib)),
            ("task_us_per_kib", Some(1.7e6 / kib)),
            ("relay_task_us_per_kib", None),
            ("relay_octets_per_datagram", Some(1_048_576.0 / 20.0)),
            ("goodput_bits_per_s", Some(4_194_304.0)),
        ],
    );
    // Without its record there are no figures of all hosts.
    record.hosts.remove(&HostName::RELAY);
    check(
        &derive(&record),
        &[("cpu_us_per_kib", None), ("goodput_bits_per_s", None)],
    );
}
