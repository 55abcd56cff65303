//! Synthetic records that look like measured ones. The same study gives the same records on every machine.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use tcpcost_study::{
    Bed, Brackets, BufferSizes, BuffersFound, CallChain, CallChains, Capture, Cell, ClockOffset,
    ClockOffsets, CountOwner, Counts, Environment, HostName, HostRecord, Keyed, Machine, MeterName,
    Opening, Outcome, Quantity as Q, Reading, Record, SCHEMA_VERSION, Sequences, Shared, Study,
    TaskClass, Topology, Value, Warning, WarningCode, WorkloadKind,
};
use tcpcost_testbed::Random;

/// Chooses for a repetition of a cell its outcome and the number of marked tries.
pub type Fate = fn(&Cell, u32) -> (Outcome, u32);

pub fn all_measured(_: &Cell, _: u32) -> (Outcome, u32) {
    (Outcome::Measured, 0)
}

/// One record for each cell and repetition. A marked trial has a second try.
pub fn records(study: &Study, bed: &str, repetitions: u32, fate: Fate) -> Vec<Record> {
    let mut records = Vec::new();
    let mut seconds = 0;
    for repetition in 0..repetitions {
        for (index, cell) in study.cells.iter().enumerate() {
            if cell.captured.is_some() && repetition >= study.repetitions(cell) {
                continue;
            }
            let (outcome, marked) = fate(cell, repetition);
            for attempt in 0..=marked.min(1) {
                let noise =
                    u64::from(repetition) * 1000 + index as u64 + u64::from(attempt) * 1_000_000;
                let mut noise = Noise(Random::new(noise));
                let mut record = Record {
                    schema_version: SCHEMA_VERSION,
                    study: study.name.clone(),
                    cell: cell.name.clone(),
                    knobs: cell.knobs.clone().into(),
                    repetition,
                    attempt,
                    seed: study.measure.seed,
                    started: format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60),
                    bed: bed.to_string(),
                    captured: cell.captured.is_some(),
                    interval_ns: study.measure.duration.as_nanos() as u64,
                    took_ns: None,
                    work: None,
                    outcome: outcome.clone(),
                    warnings: Vec::new(),
                    cpu_distances: Vec::new(),
                    topology: Topology::of(Bed::from_word(bed).unwrap(), &cell.knobs)
                        .unwrap()
                        .into(),
                    machines: BTreeMap::from([(MACHINE.to_string(), machine(bed).into())]).into(),
                    hosts: BTreeMap::new(),
                };
                seconds += 2;
                if record.is_measured() {
                    record.hosts = hosts(&record, &mut noise);
                    if record.bed == "hosts" {
                        set_clocks(&mut record, &mut noise);
                    }
                    let meters = study.meters(cell);
                    if meters.contains(&MeterName::Profile) {
                        sample(&mut record, study.measure.profile_hz, &mut noise);
                    }
                }
                if record.captured {
                    capture(&mut record);
                }
                if attempt < marked {
                    record.warnings.push(Warning::new(
                        WarningCode::Others,
                        "other tasks used 12 % of CPU 0; stop them or pin them elsewhere",
                    ));
                }
                records.push(record);
            }
        }
    }
    records
}

/// Sets captures of requests and responses. The first repetition equals Jones' capture.
fn capture(record: &mut Record) {
    let acks = if record.repetition == 0 { 4 } else { 3 };
    let opening = Opening {
        client: Sequences {
            pure_acks: vec![(1..=acks).collect(), vec![5, 6], vec![7]],
            data_bursts: vec![vec![1]; 3],
        },
        server: Sequences {
            pure_acks: vec![Vec::new(); 3],
            data_bursts: vec![vec![3, 2, 3, 4], vec![7, 5], vec![8]],
        },
    };
    for (end, of) in &mut record.hosts {
        let snapshots = Brackets {
            first_begin_ns: 1_000,
            first_end_ns: 2_000,
            second_begin_ns: 100_002_000,
            second_end_ns: 100_003_000,
        };
        of.readings.push(Reading {
            meter: MeterName::Trace,
            whose: CountOwner::Connections,
            duration_ns: 100_000_000,
            counts: Keyed::from([
                (Q::DataWireSegmentsSent, 1200),
                (Q::PureAcksReceived, 100),
                (Q::DataBurstsSent, 200),
                (Q::AckBurstsReceived, 100),
                (Q::DataSkbsSent, 300),
                (Q::TailSkbsSent, 3),
                (Q::DelayedAckStalls, 1),
                (Q::DelayedAckStallNs, 40_000_000),
            ]),
        });
        of.capture = Some(Box::new(Capture {
            file: format!("captures/01-{}-{end}.pcapng", record.repetition),
            place: "tc-client, by libpcap".into(),
            snap_len: 128,
            packets: 4000,
            dropped: Some(0),
            snapshots,
            tcp_info: Some(snapshots),
            opening: Some(opening.clone()),
        }));
    }
}

/// Factors that make measured values differ.
pub struct Noise(Random);

impl Noise {
    /// Random factor around 1.
    fn factor(&mut self, spread: f64) -> f64 {
        1.0 + spread * (self.0.uniform() + self.0.uniform() - 1.0)
    }
}

/// Id of the machine, which all hosts share.
const MACHINE: &str = "boot-id";

fn machine(bed: &str) -> Machine {
    Machine {
        kernel: "6.18.0 #1 SMP PREEMPT_DYNAMIC".into(),
        machine: "x86_64".into(),
        cpu: "AMD EPYC".into(),
        cpus: 2,
        smt: Some(false),
        memory_bytes: 8 << 30,
        hypervisor: Some("kvm".into()),
        governor: None,
        clocksource: "tsc".into(),
        instructions_per_ns: None,
        tsc_hz: Some(2_500_000_000),
        cpu_accounting: "tick".into(),
        cmdline: "console=ttyS0".into(),
        sysctls: [("net.ipv4.tcp_mem".to_string(), "1 2 3".to_string())].into(),
        tcpcost: "0.1.0".into(),
        privileged: bed == "netns",
    }
}

/// Call chains: class of the task, user functions, kernel functions, share of a busy end's samples.
const CHAINS: [(TaskClass, &str, &str, f64); 10] = [
    (TaskClass::Own, "main run_until", "", 0.03),
    (
        TaskClass::Own,
        "main run_until",
        "entry_SYSCALL_64 ksys_write tcp_sendmsg _copy_from_iter",
        0.3,
    ),
    (
        TaskClass::Own,
        "main run_until",
        "entry_SYSCALL_64 ksys_write tcp_sendmsg _copy_from_iter asm_sysvec_reschedule_ipi",
        0.1,
    ),
    (
        TaskClass::Own,
        "main [unknown]",
        "entry_SYSCALL_64 ksys_write tcp_sendmsg tcp_write_xmit kmalloc",
        0.12,
    ),
    (
        TaskClass::Own,
        "main run_until",
        "entry_SYSCALL_64 ksys_write tcp_sendmsg tcp_write_xmit __ip_queue_xmit",
        0.1,
    ),
    (
        TaskClass::Own,
        "main run_until",
        "entry_SYSCALL_64 ksys_write tcp_sendmsg tcp_write_xmit __dev_queue_xmit handle_softirqs net_rx_action tcp_v4_rcv tcp_ack",
        0.15,
    ),
    (
        TaskClass::Idle,
        "",
        "do_idle asm_sysvec_call_function_single handle_softirqs net_rx_action tcp_v4_rcv",
        0.1,
    ),
    (
        TaskClass::Kernel,
        "",
        "ret_from_fork kthread handle_softirqs tcp_tsq_handler",
        0.04,
    ),
    (TaskClass::Idle, "", "do_idle default_idle", 0.2),
    (
        TaskClass::Others,
        "",
        "entry_SYSCALL_64 do_syscall_64 ext4_write",
        0.1,
    ),
];

/// Gives each end call chains. With more connections, TCP's share is larger.
fn sample(record: &mut Record, hz: u32, noise: &mut Noise) {
    let flows = record.knobs.count("flows").unwrap() as f64;
    for (end, found) in &mut record.hosts {
        let mut chains = CallChains {
            source: "cycles".into(),
            period: 3_000_000_000 / u64::from(hz),
            cpus: found.cpus.clone(),
            duration_ns: record.interval_ns,
            ..CallChains::default()
        };
        let mut place = |name: &str| {
            let known = chains.functions.iter().position(|known| known == name);
            known.unwrap_or_else(|| {
                chains.functions.push(name.into());
                chains.functions.len() - 1
            }) as u32
        };
        let mut kept = Vec::new();
        for (whose, user, kernel, share) in CHAINS {
            let more = if kernel.contains("tcp_write_xmit") {
                1.0 + flows / 1000.0
            } else {
                1.0
            };
            let samples = share * more * f64::from(hz) * noise.factor(0.2);
            kept.push(CallChain {
                task: match whose {
                    TaskClass::Own => format!("{end}-0"),
                    TaskClass::Kernel => "ksoftirqd/0".into(),
                    TaskClass::Others => "others".into(),
                    TaskClass::Idle => "swapper/0".into(),
                },
                whose,
                user: user.split_whitespace().map(&mut place).collect(),
                kernel: kernel.split_whitespace().map(&mut place).collect(),
                samples: samples as u64,
            });
        }
        chains.chains = kept;
        let most = CHAINS.len() - usize::from(*end == HostName::SERVER);
        found.profile = Some(chains.bound(most).into());
    }
}

/// Sets clocks of named hosts: some microseconds ahead, and tens of microseconds late.
fn set_clocks(record: &mut Record, noise: &mut Noise) {
    for found in record.hosts.values_mut() {
        let before = ClockOffset {
            offset_ns: (4_000.0 * noise.factor(1.0)) as i64,
            error_ns: (20_000.0 * noise.factor(0.3)) as u64,
        };
        found.clock = Some(ClockOffsets {
            before,
            after: before,
            late_ns: (60_000.0 * noise.factor(0.5)) as u64,
        });
    }
}

/// Rounds to ticks of /proc/stat.
fn ticks(seconds: f64) -> u64 {
    (seconds * 100.0).round() as u64 * 10_000_000
}

fn hosts(record: &Record, noise: &mut Noise) -> BTreeMap<HostName, Box<HostRecord>> {
    let knobs = &record.knobs;
    let kind = WorkloadKind::from_word(&knobs.word("workload").unwrap()).unwrap();
    let seconds = record.interval_ns as f64 / 1e9;
    let bytes = |name: &str| knobs.bytes(name).unwrap_or(65536) as f64;
    let flows = knobs.count("flows").unwrap() as f64;
    let send_with = knobs.word("send_with").unwrap();
    let acked = knobs
        .count("server.ack_segments")
        .map(|segments| segments as f64);
    let tso = knobs.word("segmentation").as_deref() != Some("per-mss");

    // A cost model: cost for each call, segment and copied byte, and an extra cost of many connections.
    let (unit_kib, units_per_s, client_us, server_us);
    if kind.has_transactions() {
        let (request, response) = (bytes("request_size"), bytes("response_size"));
        unit_kib = (request + response) / 1024.0;
        let us = 9.0 + unit_kib * 0.6;
        (client_us, server_us) = (us * noise.factor(0.08), us * 1.1 * noise.factor(0.08));
        units_per_s = match knobs.value("transaction_rate") {
            Some(Value::PerS(rate)) => rate as f64,
            _ => 0.97e6 / f64::max(client_us, server_us),
        };
    } else {
        unit_kib = bytes("write_size") / 1024.0;
        let copied = !matches!(send_with.as_str(), "sendfile" | "splice")
            || knobs.is_on("client.sg") == Some(false);
        // Cost of ACKs if the study sets their number: 2 µs for each, with segments of 1448 bytes.
        let acks_us = acked.map_or(0.0, |segments| 2.0 * 1024.0 / 1448.0 / segments);
        let crowd = 1.0 + (flows / 400.0).powf(0.7) + 0.8 / flows;
        let per_kib = (if tso { 0.09 } else { 0.9 }) * crowd + if copied { 0.16 } else { 0.0 };
        let spread = 0.05;
        client_us = (0.6 + (per_kib + acks_us) * unit_kib) * noise.factor(spread);
        server_us = (0.5 + (0.25 * crowd) * unit_kib) * noise.factor(spread);
        units_per_s = match knobs.value("rate") {
            Some(Value::BitsPerS(rate)) => rate as f64 / 8192.0 / unit_kib,
            _ => 0.98e6 / f64::max(client_us, server_us) * noise.factor(0.1),
        };
    }
    let units = units_per_s * seconds;
    let wake = if units_per_s * client_us < 0.9e6 {
        0.06
    } else {
        0.0
    };
    let busy = [
        units * client_us / 1e6 + wake * seconds,
        units * server_us / 1e6 + wake * seconds,
    ];
    // Each end has its own CPU.
    let apart = matches!(record.bed.as_str(), "netns" | "hosts");
    let mut ends = BTreeMap::new();
    let mut proc_of = Vec::new();
    for (cpu, busy) in busy.iter().enumerate() {
        let (user, softirq) = (busy * 0.06, busy * (0.2 + 0.15 * cpu as f64));
        let others = 0.008 * noise.0.uniform();
        let counts = Counts::from([
            (Q::CpuUserNs, ticks(user)),
            (Q::CpuNiceNs, 0),
            (Q::CpuSystemNs, ticks(busy - user - softirq + others)),
            (Q::CpuIrqNs, 0),
            (Q::CpuSoftirqNs, ticks(softirq)),
            (Q::CpuIdleNs, ticks((seconds - busy - others).max(0.0))),
            (Q::CpuIowaitNs, 0),
            (Q::CpuStealNs, 0),
            (Q::CpuGuestNs, 0),
        ]);
        proc_of.push((cpu, counts, (busy - softirq) * 1e9));
    }
    for end in HostName::PAIR {
        let this = usize::from(end == HostName::SERVER);
        let reading = |meter, whose: CountOwner, counts: Counts| Reading {
            meter,
            whose,
            duration_ns: record.interval_ns,
            counts: counts.into(),
        };
        let mut readings = Vec::new();
        for (cpu, counts, _) in &proc_of {
            if !apart && end == HostName::SERVER || apart && *cpu != this {
                continue;
            }
            readings.push(reading(
                MeterName::Proc,
                CountOwner::Cpu(*cpu),
                counts.clone(),
            ));
        }
        if !apart && end == HostName::SERVER {
            readings.push(reading(
                MeterName::Proc,
                CountOwner::Cpu(1),
                proc_of[1].1.clone(),
            ));
        }
        let task_ns = proc_of[this].2;
        readings.push(reading(
            MeterName::Rusage,
            CountOwner::Threads,
            Counts::from([
                (Q::TaskUserNs, (task_ns * 0.08) as u64),
                (Q::TaskSystemNs, (task_ns * 0.92) as u64),
                (
                    Q::VoluntarySwitches,
                    (units / 3.0 * noise.factor(0.2)) as u64,
                ),
                (Q::InvoluntarySwitches, (20.0 * noise.0.uniform()) as u64),
            ]),
        ));
        let tsc_hz = 2.5e9;
        readings.push(reading(
            MeterName::Tsc,
            CountOwner::Host,
            Counts::from([(Q::TscCycles, (tsc_hz * seconds) as u64)]),
        ));
        let total = (units * unit_kib * 1024.0) as u64;
        let (sent, received) = match (
            kind.has_transactions(),
            kind.sends(record.topology.side(end).unwrap()),
        ) {
            (true, _) => (total / 2, total / 2),
            (false, true) => (total, 0),
            (false, false) => (0, total),
        };
        let mut workload = Counts::new();
        if sent > 0 {
            workload.insert(Q::PayloadBytesSent, sent);
            workload.insert(Q::SendCalls, units as u64);
        }
        if received > 0 {
            workload.insert(Q::PayloadBytesReceived, received);
            workload.insert(Q::ReceiveCalls, units as u64);
        }
        if kind.has_transactions() && end == HostName::CLIENT {
            workload.insert(Q::Transactions, units as u64);
        }
        if send_with == "zerocopy" && sent > 0 {
            workload.insert(Q::ZerocopyCompletions, units as u64);
            workload.insert(Q::ZerocopyCopied, units as u64);
        }
        readings.push(reading(MeterName::Workload, CountOwner::Workload, workload));
        let segments = |bytes: u64| {
            if kind.has_transactions() {
                units as u64
            } else {
                bytes / 1448
            }
        };
        let (data_out, data_in) = (segments(sent), segments(received));
        let each = acked.map_or(40, |segments| segments as u64);
        let (acks_out, acks_in) = (data_in / each, data_out / each);
        let skbs = if tso { data_out / 40 } else { data_out };
        let segments_out = data_out + acks_out;
        let packets_out = if kind.has_transactions() {
            data_out
        } else {
            skbs
        } + acks_out;
        readings.push(reading(
            MeterName::Netstat,
            CountOwner::Namespace,
            Counts::from([
                (Q::IpPacketsSent, packets_out),
                (Q::IpOctetsSent, sent + 52 * packets_out),
                (Q::SegmentsSent, segments_out),
                (Q::SegmentsRetransmitted, 0),
            ]),
        ));
        readings.push(reading(
            MeterName::TcpInfo,
            CountOwner::Connections,
            Counts::from([
                (Q::ConnSegmentsSent, segments_out),
                (Q::ConnDataSegmentsSent, data_out),
                (Q::ConnSegmentsReceived, data_in + acks_in),
                (Q::ConnDataSegmentsReceived, data_in),
                (Q::ConnBytesReceived, received + received / 10_000),
                (Q::PayloadBytesReceived, received),
                (Q::ConnSegmentsRetransmitted, 0),
            ]),
        ));
        ends.insert(
            end,
            Box::new(HostRecord {
                machine: MACHINE.to_string(),
                cpus: vec![this],
                threads: 1,
                ports: port(Environment {
                    device: if record.bed == "netns" { "veth0" } else { "lo" }.into(),
                    mtu: if record.bed == "netns" { 1500 } else { 65536 },
                    segmentation: if tso { "tso" } else { "per-mss" }.into(),
                    offloads: BTreeMap::from([("tso".into(), true), ("gro".into(), false)]),
                    gso_max_segs: if tso { 65535 } else { 1 },
                    gso_max_size: 65536,
                    gro_max_size: Some(65536),
                    threaded_napi: Some(false),
                    queues: BTreeMap::new(),
                    qdisc: "noqueue".into(),
                    route: "10.0.0.0/24 dev veth0".into(),
                    rps_cpus: Some(format!("{}", 1 << this)),
                    carrier: None,
                    sysctls: BTreeMap::from([("net.ipv4.tcp_autocorking".into(), "1".into())]),
                    congestion_control: Some("reno".into()),
                    mss: Some(1448),
                    connection: BTreeMap::new(),
                    nic: None,
                }),
                readings,
                // A requested buffer is doubled, as the kernel does.
                buffers: knobs.bytes("send_buffer").map(|asked| {
                    let sizes = |grown: u64| BufferSizes {
                        send_bytes: 2 * asked,
                        receive_bytes: 131_072 * grown,
                    };
                    BuffersFound {
                        before: sizes(1),
                        after: sizes(48),
                    }
                }),
                series: None,
                response_time_hdr_by_group: BTreeMap::new(),
                operations: Vec::new(),
                response_time_hdr: (kind.has_transactions() && end == HostName::CLIENT)
                    .then(|| response_times(flows * 1e6 / units_per_s, units as u64, noise)),
                profile: None,
                by_connection: None,
                capture: None,
                clock: None,
                strangers: 0,
            }),
        );
    }
    ends
}

/// State of the only port.
fn port(environment: Environment) -> Shared<BTreeMap<String, Shared<Environment>>> {
    BTreeMap::from([(environment.device.clone(), environment.into())]).into()
}

fn response_times(mean_us: f64, count: u64, noise: &mut Noise) -> String {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for step in 0..200u64 {
        let quantile = (step as f64 + 0.5) / 200.0;
        let us = mean_us * (0.4 - 0.35 * (1.0 - quantile).ln()) * noise.factor(0.05);
        histogram
            .record_n((us * 1000.0) as u64, (count / 200).max(1))
            .unwrap();
    }
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(&histogram, &mut bytes)
        .unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Text of a study of this repository.
pub fn shipped(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../studies");
    let path = format!("{folder}/{name}.toml");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
