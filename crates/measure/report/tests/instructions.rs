//! Records of guests whose clock counts instructions: they have costs but no times, and different regimes are
//! not compared.

mod common;

use common::{all_measured, records};
use tcpcost_report::{
    Decision, Earlier, FindingKind, Held, Incomparable, Summary, TextStyle, text,
};
use tcpcost_study::{
    CellPair, CountOwner, Derived, Figure, FixedWork, HostName, MeterName, Quantity as Q, Reading,
    Record, Study,
};

/// Trials of guests with `cost_factor` times the cost and `acks_factor` times the ACKs. The cost varies by a
/// millionth between boots.
fn guests(cost_factor: f64, acks_factor: u64) -> (Study, Vec<Record>) {
    let text = "[workload]\nplacement = \"same-cpu\"\n";
    let study = Study::parse("s", text, "s.toml").unwrap();
    guests_of(study, cost_factor, acks_factor)
}

fn guests_of(study: Study, cost_factor: f64, acks_factor: u64) -> (Study, Vec<Record>) {
    let mut records = records(&study, "netns", 8, all_measured);
    for (boot, record) in records.iter_mut().enumerate() {
        for machine in record.machines.values_mut() {
            machine.instructions_per_ns = Some(1);
        }
        let mut bytes = 0;
        for host in record.hosts.values_mut() {
            host.cpus = vec![0];
            let readings = host.readings.iter_mut();
            for reading in readings {
                bytes += reading
                    .counts
                    .get(&Q::PayloadBytesReceived)
                    .copied()
                    .unwrap_or(0)
                    * u64::from(reading.meter == MeterName::Workload);
                if let (MeterName::TcpInfo, Some(acks)) = (
                    reading.meter,
                    reading.counts.get(&Q::ConnDataSegmentsReceived).copied(),
                ) {
                    let all = reading.counts.get_mut(&Q::ConnSegmentsReceived).unwrap();
                    *all = acks + (*all - acks) * acks_factor;
                }
            }
        }
        let all = (bytes as f64 / 1024.0 * 900.0 * cost_factor) as u64 + boot as u64 * 10;
        let mut counts: tcpcost_study::Counts =
            Q::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        counts.insert(Q::ExactTaskOwnNs, all / 4 * 3);
        counts.insert(Q::ExactSoftirqNetRxNs, all - all / 4 * 3);
        record
            .hosts
            .get_mut(&HostName::CLIENT)
            .unwrap()
            .readings
            .push(Reading {
                meter: MeterName::Exact,
                whose: CountOwner::Cpu(0),
                duration_ns: all,
                counts: counts.into(),
            });
    }
    (study, records)
}

fn summary((study, records): &(Study, Vec<Record>)) -> Summary {
    Summary::new(study, records)
}

#[test]
fn a_guests_costs_are_instructions_and_nothing_is_a_time() {
    let summary = summary(&guests(1.0, 1));
    let cell = &summary.cells[0];
    assert_eq!(cell.main, Derived::total(Figure::InstructionsPerKib));
    let median = |kind| cell.estimates[&Derived::total(kind)].median;
    assert!((median(Figure::InstructionsPerKib) - 900.0).abs() < 0.1);
    assert!((median(Figure::TaskInstructionsPerKib) - 675.0).abs() < 0.1);
    assert!((median(Figure::NetRxInstructionsPerKib) - 225.0).abs() < 0.1);
    let times: Vec<_> = cell
        .estimates
        .keys()
        .filter(|of| of.kind.is_time())
        .collect();
    assert!(times.is_empty(), "{times:?}");
    let text = text(&summary, TextStyle::default());
    assert!(text.contains("Instructions are not time"), "{text}");
    assert!(
        text.contains("ACKs/KiB") && text.contains("switches/MiB"),
        "{text}"
    );
}

fn earlier(runs: &[Summary], min_effect: f64) -> Earlier<'_, Summary> {
    Earlier {
        runs,
        beside: &[],
        min_effect,
        study: "s",
        for_compare: "",
        for_run: "",
        directory: "before",
    }
}

#[test]
fn a_difference_of_half_a_percent_is_a_verdict_and_another_regime_is_none() {
    let verdict = |cost_factor, acks_factor| {
        let mut now = summary(&guests(cost_factor, acks_factor));
        now.hold_against(&earlier(&[summary(&guests(1.0, 1))], 0.002));
        now.comparisons.remove(0)
    };
    assert_eq!(verdict(1.0, 1).decision, Decision::Equivalent);
    let dearer = verdict(1.005, 1);
    assert_eq!(dearer.decision, Decision::Regresses);
    assert_eq!(dearer.quantity, Derived::total(Figure::InstructionsPerKib));
    let other = verdict(1.005, 4);
    assert_eq!(other.decision, Decision::Inconclusive);
    assert_eq!(other.regime.unwrap().count.kind, Figure::AcksPerKib);
    assert_eq!(
        other.pairs_needed, None,
        "more boots would be of two regimes, too"
    );
}

#[test]
fn a_switch_more_in_a_whole_interval_is_no_other_regime() {
    const LEAST: f64 = 1e-9;
    let of = |switches: u64| {
        let (study, mut records) = guests(1.0, 1);
        for record in &mut records {
            let received = record.hosts.values().flat_map(|host| &host.readings);
            let received = received.filter(|one| one.meter == MeterName::Workload);
            let bytes = received.filter_map(|one| one.counts.get(&Q::PayloadBytesReceived));
            record.work = Some(FixedWork {
                bytes: bytes.sum(),
                transactions: 2000,
            });
            let client = record.hosts.get_mut(&HostName::CLIENT).unwrap();
            let mut of_both = client.readings.iter_mut();
            let rusage = of_both.find(|one| one.meter == MeterName::Rusage).unwrap();
            let done = rusage.counts.get_mut(&Q::VoluntarySwitches).unwrap();
            *done = 10 + switches;
        }
        summary(&(study, records))
    };
    let regime = |switches| {
        let mut now = of(switches);
        // The smallest difference that matters is tiny: by its price, a single switch would exceed it.
        now.hold_against(&earlier(&[of(0)], LEAST));
        let verdict = now.comparisons.remove(0);
        verdict.regime.map(|one| one.count.kind)
    };
    assert_eq!(regime(2), None);
    assert_eq!(regime(3), Some(Figure::SwitchesPerMib));
}

#[test]
fn cells_that_copy_otherwise_have_no_verdict_by_instructions() {
    let verdict = |values: &str| {
        let text = format!(
            "[vary]\nsend_with = [{values}]\n[[conclusion]]\ntext = \"it saves\"\nknob = \"send_with\"\n"
        );
        let first = values.split(", ").next().unwrap();
        let second = values.split(", ").nth(1).unwrap();
        let text = format!("{text}from = {first}\nto = [{second}]\n");
        let mut study = Study::parse("s", &text, "s.toml").unwrap();
        study.comparisons.push(CellPair {
            from: study.cells[0].name.clone(),
            to: study.cells[1].name.clone(),
        });
        let summary = summary(&guests_of(study, 1.0, 1));
        let percent = match &summary.findings[0].kind {
            FindingKind::Change { steps, .. } => steps[0].percent,
            other => panic!("{other:?}"),
        };
        let text = tcpcost_report::text(&summary, TextStyle::default());
        (summary.comparisons[0].clone(), percent.is_some(), text)
    };
    let (alike, has_change, text) = verdict("\"write\", \"send\"");
    assert_eq!(alike.decision, Decision::Equivalent);
    assert!(
        has_change && !text.contains("No verdict by instructions"),
        "{text}"
    );
    let (other, has_change, text) = verdict("\"send\", \"sendfile\"");
    assert_eq!(other.decision, Decision::Inconclusive);
    assert_eq!(other.contrast, None);
    let copies = Incomparable::Copies("send_with".to_string());
    assert_eq!(other.incomparable, Some(copies));
    assert!(!has_change, "a sentence would be a verdict, too");
    assert!(text.contains("copy payload more or less often"), "{text}");
}

#[test]
fn what_time_leaves_undecided_instructions_decide() {
    let text = "[vary]\nnodelay = [\"on\", \"off\"]\nsend_with = [\"write\", \"send\"]\n\
                [[conclusion]]\ntext = \"No delay\"\nknob = \"nodelay\"\nfrom = \"on\"\nto = [\"off\"]\n\
                expects = \"more\"\nstatement = \"dearer\"\n\
                [[conclusion]]\ntext = \"Limits\"\nquantity = \"cpu_us_per_kib\"\nat_most = 1e9\nstatement = \"limit\"\n\
                [[statement]]\nid = \"dearer\"\nsource = \"x\"\ntext = \"a delay is dearer\"\n\
                [[statement]]\nid = \"limit\"\nsource = \"x\"\ntext = \"a KiB is cheap\"\n";
    let study = Study::parse("s", text, "s.toml").unwrap();
    // Three trials have no interval.
    let mut summary = Summary::new(&study, &records(&study, "netns", 3, all_measured));
    let held = |summary: &Summary| -> Vec<_> {
        let statements = summary.statements.iter();
        statements
            .map(|one| (one.held, one.by_instructions))
            .collect()
    };
    assert_eq!(held(&summary), [(Held::Undecided, false); 2]);
    // The cells of a limit in microseconds are not asked for alone, but here they are those of the change.
    assert_eq!(summary.cells_for_second_clock(false).len(), 4);

    let (study, mut counted) = guests_of(study, 1.0, 1);
    for record in &mut counted {
        let is_dearer = record.cell.contains("nodelay=off");
        let client = record.hosts.get_mut(&HostName::CLIENT).unwrap();
        let exact = client.readings.last_mut().unwrap();
        let own = exact.counts.get_mut(&Q::ExactTaskOwnNs).unwrap();
        *own += u64::from(is_dearer) * *own / 100;
    }
    summary.add_instructions(&Summary::new(&study, &counted));
    assert_eq!(
        held(&summary),
        [(Held::Holds, true), (Held::Undecided, false)],
        "a limit in time is none in instructions"
    );
    let shown = text_of(&summary);
    for expected in [
        "holds, by instructions: a delay is dearer",
        "by instructions: costs",
        "By instructions: the same cells in guests of Linux",
        "By instructions: send_with",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let document: serde_json::Value =
        serde_json::from_str(&tcpcost_report::json(&summary)).unwrap();
    let findings = document["by_instructions"]["findings"].as_array().unwrap();
    assert_eq!(
        findings.len(),
        2,
        "a change at each send_with: {findings:#?}"
    );
    assert_eq!(findings[1]["of_finding"], 1);
}

/// Text of the report, unwrapped.
fn text_of(summary: &Summary) -> String {
    let text = text(summary, TextStyle::default());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
