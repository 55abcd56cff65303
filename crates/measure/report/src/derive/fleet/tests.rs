use tcpcost_counts::{CountOwner, MeterName, Quantity, Reading};
use tcpcost_study::{
    Host, HostRecord, Knobs, Outcome, Reach, SCHEMA_VERSION, StackKind, round, rounds,
};

use super::*;
use crate::words::fleets::lines;

/// Bytes that a host receives in a round, and the data segments that it retransmits, by place and
/// round.
type Round<'a> = &'a dyn Fn(usize, usize) -> (u64, u64);

fn record(hosts: usize, number: usize, of: Round<'_>) -> Record {
    let name = |place: usize| format!("n{}", place + 1).parse::<HostName>().unwrap();
    let mut knobs = Knobs::default();
    knobs.set("workload", "bidirectional").unwrap();
    let traffic: Vec<Traffic> = round(hosts, number)
        .into_iter()
        .map(|(on, to)| Traffic {
            on: name(on),
            to: name(to),
        })
        .collect();
    let found = |place: usize| {
        let (bytes, again) = of(place, number);
        let reading = |meter, whose, counts: &[(Quantity, u64)]| Reading {
            meter,
            whose,
            duration_ns: 1_000_000_000,
            counts: counts.iter().copied().collect(),
        };
        HostRecord {
            machine: format!("machine of {place}"),
            readings: vec![
                reading(
                    MeterName::Workload,
                    CountOwner::Workload,
                    &[(Quantity::PayloadBytesReceived, bytes)],
                ),
                reading(
                    MeterName::TcpInfo,
                    CountOwner::Connections,
                    &[
                        (Quantity::ConnDataSegmentsSent, 1000),
                        (Quantity::ConnSegmentsRetransmitted, again),
                    ],
                ),
            ],
            ..HostRecord::default()
        }
    };
    let host = |place| Host {
        name: name(place),
        reach: Reach::Slurm(None),
        stack: StackKind::Kernel,
        cpus: None,
    };
    Record {
        schema_version: SCHEMA_VERSION,
        study: "fleet".into(),
        cell: "all".into(),
        knobs: knobs.into(),
        repetition: number as u32,
        attempt: 0,
        seed: 1,
        started: String::new(),
        bed: "hosts".into(),
        captured: false,
        interval_ns: 1_000_000_000,
        took_ns: None,
        work: None,
        outcome: Outcome::Measured,
        warnings: vec![],
        cpu_distances: vec![],
        topology: Topology {
            hosts: (0..hosts).map(host).collect(),
            traffic,
            ..Topology::default()
        }
        .into(),
        machines: Shared::default(),
        hosts: (0..hosts)
            .map(|place| (name(place), found(place).into()))
            .collect(),
    }
}

fn fleet(hosts: usize, laps: usize, of: Round<'_>) -> Fleet {
    let records: Vec<Record> = (0..laps * rounds(hosts))
        .map(|number| record(hosts, number, of))
        .collect();
    let records: Vec<&Record> = records.iter().collect();
    Fleet::of(&records, 0.01).unwrap()
}

/// Scatter that is the same for all hosts on average, and differs between rounds.
fn scatter(place: usize, number: usize) -> u64 {
    (place * 7919 + number * 104_729) as u64 % 5000
}

#[test]
fn a_host_that_is_slow_in_all_its_rounds_is_the_only_outlier_and_its_count_is_told() {
    let fleet = fleet(16, 1, &|place, number| match place {
        // Each partner receives as little as this host, but in one round only.
        6 => (300_000 + scatter(place, number), 40),
        _ => (1_000_000 + scatter(place, number), 0),
    });
    assert_eq!((fleet.rounds, fleet.hosts.len()), (15, 16));
    let hosts: Vec<String> = fleet
        .outliers
        .iter()
        .map(|one| one.host.to_string())
        .collect();
    assert_eq!(hosts, ["n7"], "{:?}", fleet.outliers);
    let outlier = &fleet.outliers[0];
    assert_eq!(outlier.figure, Figure::Goodput);
    // Goodput of a pair is the sum of both directions.
    assert!(
        (0.64..0.66).contains(&outlier.ratio()),
        "{}",
        outlier.ratio()
    );
    let because = outlier.because.unwrap();
    assert_eq!(
        (because.figure, because.value, because.median),
        (Figure::RetransmitRatio, 0.04, 0.0)
    );
    let told = lines(&fleet, 0.01).join("\n");
    assert!(
        told.contains("n7: goodput 0.0104 [0.0104, 0.0105] Gbit/s, 0.65 times all hosts' 0.0160"),
        "{told}"
    );
    assert!(
        told.contains("; retransmissions per data segment 4.00 %, of all hosts 0 %"),
        "{told}"
    );
}

#[test]
fn hosts_that_are_alike_have_no_outlier() {
    let alike = fleet(16, 1, &|place, number| {
        (1_000_000 + scatter(place, number), 0)
    });
    assert_eq!(alike.outliers, []);
    assert!(
        lines(&alike, 0.01)[1].starts_with("No host differs"),
        "{:?}",
        lines(&alike, 0.01)
    );
    // The difference is certain, but too small to matter.
    let near = fleet(16, 1, &|place, _| {
        (1_000_000 - 5000 * u64::from(place == 3), 0)
    });
    assert_eq!(near.outliers, []);
}

#[test]
fn a_host_that_was_slow_in_a_few_rounds_is_none() {
    let fleet = fleet(16, 1, &|place, number| match (place, number) {
        (4, 0..3) => (100_000, 0),
        _ => (1_000_000 + scatter(place, number), 0),
    });
    assert_eq!(fleet.outliers, []);
}

#[test]
fn few_rounds_have_no_interval_and_tell_nothing() {
    let slow = |place: usize, number: usize| {
        (
            1_000_000 / (1 + place as u64 / 3) + scatter(place, number),
            0,
        )
    };
    let one_lap = fleet(4, 1, &slow);
    assert_eq!(one_lap.outliers, []);
    assert!(lines(&one_lap, 0.01)[1].starts_with("Too few rounds"));
    let laps = fleet(4, 4, &slow);
    assert_eq!(laps.outliers.len(), 1);
    assert_eq!(laps.outliers[0].host.as_str(), "n4");
}

#[test]
fn of_two_hosts_none_is_the_odd_one() {
    let one = record(2, 0, &|_, _| (1_000_000, 0));
    assert_eq!(Fleet::of(&[&one], 0.01), None);
}
