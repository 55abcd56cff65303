//! docs/quantities.md is generated from the definitions.

use std::fmt::Write;
use std::fs;

use tcpcost_counts::{
    Figure, FigureOf, MeterMechanism, MeterName, MeterSubject, Quantity, figure_table,
};

/// Generates the text of docs/quantities.md.
fn markdown() -> String {
    let mut text = String::from(
        "# Quantities\n\n\
         Made from `quantity.rs`, `figure.rs` and `meter_name.rs` of `crates/measure/counts/src`; to make it again:\n\
         `TCPCOST_REWRITE=1 cargo test -p tcpcost-counts`.\n\n\
         ## Counts\n\n\
         What records hold: the growth of each between the two snapshots of a trial. What a kernel does\n\
         not tell is absent, never 0.\n\n\
         | name | definition |\n|---|---|\n",
    );
    for quantity in Quantity::ALL {
        let definition = quantity.definition().replace('|', "\\|");
        writeln!(text, "| `{quantity}` | {definition} |").expect("a String takes all");
    }
    text += "\n## Meters\n\n\
             By which a count was counted. A study's own are those that `[measure] meters` can name.\n\n\
             | name | counts of | how | definition |\n|---|---|---|---|\n";
    for meter in MeterName::ALL {
        let of = match meter.subject() {
            MeterSubject::Cpus => "CPUs",
            MeterSubject::Namespace => "a network namespace",
            MeterSubject::Connections => "connections",
            MeterSubject::Worker => "workers",
            MeterSubject::Host => "a host",
            MeterSubject::Tcpcost => "tcpcost itself",
        };
        let loaded = match meter.mechanism() {
            MeterMechanism::Read => "read before and after",
            MeterMechanism::Perf => "kept by the kernel (perf_event_open)",
            MeterMechanism::Bpf => "eBPF programs",
            MeterMechanism::Spinners => "threads of its own",
        };
        let definition = meter.definition();
        writeln!(text, "| `{meter}` | {of} | {loaded} | {definition} |")
            .expect("a String takes all");
    }
    text += "\n## Figures\n\n\
             What is divided out of counts: each has one formula, whoever shows it, and nothing of it is stored. A\n\
             figure is absent without the meters named with it.\n";
    for (whose, title) in [
        (
            FigureOf::Host,
            "Of a trial, and of each host of it\n\nA host's has its name before it: `client_NAME`, `server_NAME`.",
        ),
        (
            FigureOf::Group,
            "Of a trial as a whole, and of each group of its connections\n\nA group's has its name before it: `small_NAME`.",
        ),
        (FigureOf::Trial, "Of a trial as a whole alone"),
        (
            FigureOf::Window,
            "Of a host, by `tcpcost watch`\n\nIt shows some of a trial's, too: docs/watch.md.",
        ),
        (
            FigureOf::Command,
            "Of a command, by `tcpcost stat`\n\nIt shows some of a trial's and of a host's, too.",
        ),
        (FigureOf::Connection, "Of a connection, by `tcpcost watch`"),
        (
            FigureOf::Direction,
            "Of one end of a captured connection, by `tcpcost trace`",
        ),
    ] {
        let figures = Figure::ALL.iter().copied();
        let table = figure_table(figures.filter(|figure| figure.whose() == whose));
        write!(text, "\n### {title}\n\n{table}").expect("a String takes all");
    }
    text
}

#[test]
fn the_committed_page_is_what_the_definitions_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/quantities.md");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        fs::write(path, markdown()).unwrap();
    }
    let committed = fs::read_to_string(path).unwrap();
    assert!(
        committed == markdown(),
        "{path} is old: TCPCOST_REWRITE=1 cargo test -p tcpcost-counts"
    );
}

#[test]
fn a_bar_does_not_end_a_cell() {
    let page = markdown();
    let row = page
        .lines()
        .find(|line| line.contains("`payload_disagreement_ratio`"));
    assert!(row.unwrap().contains("\\|kernel - workload\\|"));
}
