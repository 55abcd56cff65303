//! The table of skbs, of who sent them and of their cost, for trials with the meter `segments`.

mod common;

use common::{all_measured, records};
use tcpcost_report::{Summary, TextStyle, text};
use tcpcost_study::{CountOwner, HostName, Keyed, MeterName, Quantity as Q, Reading, Study};

/// Text of a report whose client sent ten skbs, eight of them by its system calls.
fn report(bed: &str) -> String {
    let study = "[vary]\nwrite_size = [\"4KiB\", \"64KiB\"]\n";
    let study = Study::parse("skbs", study, "skbs.toml").unwrap();
    let mut records = records(&study, bed, 6, all_measured);
    for record in &mut records {
        for (&host, of) in &mut record.hosts {
            let sent = u64::from(host == HostName::CLIENT);
            of.readings.push(Reading {
                meter: MeterName::Segments,
                whose: CountOwner::Namespace,
                duration_ns: 1_000_000_000,
                counts: Keyed::from([
                    (Q::DataSkbsSent, 10 * sent),
                    (Q::DataSkbBytesSent, 200_000 * sent),
                    (Q::LargeSkbsSent, 5 * sent),
                    (Q::LargeSkbBytesSent, 195_000 * sent),
                    (Q::DrainedSystemCallSkbs, 8 * sent),
                    (Q::DrainedNetRxSkbs, sent),
                    (Q::DrainedTaskletSkbs, sent),
                ]),
            });
        }
    }
    text(&Summary::new(&study, &records), TextStyle::default())
}

/// Lines of the table, each with single spaces.
fn table(report: &str) -> Vec<String> {
    let mut lines = report.lines();
    let heading = "What TCP passed down, who sent it, and CPU per KiB (medians)";
    lines.find(|line| *line == heading).expect("the table");
    let lines = lines.take_while(|line| !line.is_empty());
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn the_sender_has_a_row_in_each_cell_with_its_own_cost() {
    let table = table(&report("netns"));
    assert_eq!(table.len(), 3, "{table:?}");
    assert_eq!(
        table[0],
        "cell host bytes an skb a super-segment writer % worker % interrupt % µs/KiB"
    );
    let begin = "write_size=4KiB client 20000 39000 80.0 10.0 10.0 ";
    assert!(table[1].starts_with(begin), "{table:?}");
}

#[test]
fn hosts_that_share_a_namespace_have_one_row() {
    let table = table(&report("loopback"));
    assert_eq!(
        table
            .iter()
            .filter(|row| row.contains("all hosts together"))
            .count(),
        2
    );
    let own = table.iter().find(|row| row.contains("client"));
    assert_eq!(own, None, "{table:?}");
}

#[test]
fn without_the_meter_there_is_no_table() {
    let study = Study::parse("skbs", "[vary]\nflows = [1, 2]\n", "skbs.toml").unwrap();
    let records = records(&study, "netns", 6, all_measured);
    let text = text(&Summary::new(&study, &records), TextStyle::default());
    assert!(!text.contains("bytes an skb"), "{text}");
}
