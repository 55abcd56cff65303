//! Lines of a report about the buffers of sockets, and about losses on a path.

mod common;

use common::{all_measured, records};
use tcpcost_report::{Summary, TextStyle, text};
use tcpcost_study::{MeterName, Quantity, Record, Study};

const STUDY: &str =
    "[workload]\nkind = \"stream\"\nsend_buffer = \"128KiB\"\n[vary]\nflows = [1, 100]\n";

fn shown(study: &Study, records: &[Record], details: bool) -> String {
    let style = TextStyle {
        details,
        width: 1000,
        ..TextStyle::default()
    };
    text(&Summary::new(study, records), style)
}

#[test]
fn the_details_tell_what_was_asked_of_buffers_and_what_the_sockets_had() {
    let study = Study::parse("s", STUDY, "s.toml").unwrap();
    let found = records(&study, "netns", 6, all_measured);
    let sizes = "Buffers of the first connection: client: to send 128KiB asked, 256KiB had, to receive none asked, 6MiB had; server: to send 128KiB asked, 256KiB had, to receive none asked, 6MiB had.";
    assert!(shown(&study, &found, true).contains(sizes));
    assert!(!shown(&study, &found, false).contains("Buffers of"));
    let summary = Summary::new(&study, &found);
    let factor = summary.cells[0].estimates.iter();
    let mut factor =
        factor.filter(|(of, _)| of.to_string() == "client_send_buffer_to_asked_factor");
    assert_eq!(factor.next().unwrap().1.median, 2.0);
    let names = summary.cells[0].estimates.keys();
    let mut of_all = names.filter(|of| of.to_string() == "send_buffer_bytes");
    assert_eq!(of_all.next(), None, "no socket is that of both hosts");
}

#[test]
fn out_of_order_skbs_are_told_where_there_were_some() {
    let study = Study::parse("s", STUDY, "s.toml").unwrap();
    let mut found = records(&study, "netns", 6, all_measured);
    let told = "out-of-order skbs per MiB: more than none in 1 trial, at most ";
    assert!(!shown(&study, &found, false).contains("more than none"));
    let set = |record: &mut Record, count| {
        let mut ends = record.hosts.values_mut();
        let readings = ends.by_ref().flat_map(|end| &mut end.readings);
        for reading in readings.filter(|reading| reading.meter == MeterName::Netstat) {
            reading.counts.insert(Quantity::OutOfOrderQueued, count);
        }
    };
    found.iter_mut().for_each(|record| set(record, 0));
    assert!(!shown(&study, &found, false).contains("more than none"));
    set(&mut found[1], 50);
    let shown = shown(&study, &found, false);
    assert!(
        shown.contains(told) && shown.contains("(flows=100)."),
        "{shown}"
    );
}
