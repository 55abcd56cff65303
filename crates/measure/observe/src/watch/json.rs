//! One JSON object per line, in base units; docs/records.md describes each field.

use std::io::{self, Write};
use std::ops::ControlFlow;

use serde_json::{Map, Value, json};
use tcpcost_counts::Source;
use tcpcost_meter::holder::Port;

use crate::watch::causes::{ORDINARY, RARE};
use crate::watch::column::Column;
use crate::watch::connections::Wanted;
use crate::watch::driver::{Moment, View};
use crate::watch::rows::{CONNECTION_COLUMNS, OWNER_COLUMNS, Row, top};
use crate::watch::sample::{COLUMNS, Sample};
use crate::watch::sources::About;

/// Version of the fields. It grows when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u64 = 3;

/// Writes lines for programs.
pub struct Json<W> {
    out: W,
    about: About,
    wanted: Wanted,
    /// Returns the time of day, RFC 3339.
    now: fn() -> String,
}

impl<W: Write> Json<W> {
    /// Writes to a pipe, a file or a terminal.
    pub fn new(out: W, about: &About, wanted: &Wanted) -> Json<W> {
        Json {
            out,
            about: about.clone(),
            wanted: wanted.clone(),
            now: || jiff::Timestamp::now().to_string(),
        }
    }
}

impl<W: Write> View for Json<W> {
    fn show(&mut self, _: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>> {
        let mut line = object(&self.about, (self.now)(), sample);
        if let Some(rows) = &sample.rows {
            for (&by, &most) in &self.wanted.rows {
                let top = top(rows, by, most);
                let top = top
                    .iter()
                    .map(|row| row_object(row, sample.growth.duration_ns));
                line.insert(by.name().to_string(), top.collect());
            }
        }
        let line = Value::Object(line);
        writeln!(self.out, "{line}")?;
        self.out.flush()?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Fields of a sample. Values that were not measured are absent.
fn object(about: &About, time: String, sample: &Sample) -> Map<String, Value> {
    let mut object = Map::new();
    let mut set = |name: &str, value: Value| object.insert(name.to_string(), value);
    set("schema_version", json!(SCHEMA_VERSION));
    set("time", json!(time));
    set("duration_ns", json!(sample.growth.duration_ns));
    set("tier", json!(about.tier.name()));
    set("counts", json!(sample.growth.counts));
    if !about.refused.is_empty() {
        set("refused", json!(about.refused));
    }
    if !sample.growth.warnings.is_empty() {
        set("warnings", json!(sample.growth.warnings));
    }
    for columns in INTERVAL {
        figures(columns, &sample.growth, &mut object);
    }
    object
}

/// Columns of an interval. Lines show only the first group.
const INTERVAL: [&[Column]; 3] = [COLUMNS, ORDINARY, RARE];

/// Fields of a connection, or of an owner.
fn row_object(row: &Row, duration_ns: u64) -> Map<String, Value> {
    let mut object = Map::new();
    let mut set = |name: &str, value: Value| object.insert(name.to_string(), value);
    match row.ends {
        Some([local, remote]) => {
            set("local", json!(local));
            set("remote", json!(remote));
        }
        None if row.is_host => {
            set("host", json!(true));
        }
        None => {
            set("connections", json!(row.connections));
        }
    }
    if let Some(namespace) = &row.namespace {
        set("netns", json!(namespace.inode));
        if let Some(name) = &namespace.name {
            set("netns_name", json!(name));
        }
    }
    match row.port {
        Some(Port::Served(port)) => set("port_served", json!(port)),
        Some(Port::Asked(port)) => set("port_asked", json!(port)),
        None => None,
    };
    if let Some(process) = &row.process {
        set("pid", json!(process.pid));
        set("process", json!(process.name));
    }
    if let Some(cgroup) = &row.cgroup {
        set("cgroup", json!(cgroup));
    }
    set("counts", json!(row.counts));
    for columns in [CONNECTION_COLUMNS, OWNER_COLUMNS] {
        figures(columns, &row.over(duration_ns), &mut object);
    }
    object
}

/// Adds every figure that has a value, also if a better meter offers the same: each has its own name.
fn figures(columns: &[Column], from: &dyn Source, object: &mut Map<String, Value>) {
    for figure in columns.iter().flat_map(|column| column.figures) {
        if let Some(value) = figure.value(from) {
            object.insert(figure.name().to_string(), json!(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rows::By;
    use crate::watch::testing::{about, cost, counters_only, row, tracepoints};
    use std::collections::BTreeSet;
    use tcpcost_counts::Quantity;

    fn line(sample: &Sample) -> Map<String, Value> {
        let mut about = about(true);
        about.refused.push("meter x: no".to_string());
        let mut out = Vec::new();
        let mut wanted = Wanted::default();
        for by in [
            By::Connection,
            By::Process,
            By::Cgroup,
            By::Namespace,
            By::Port,
        ] {
            wanted.rows.insert(by, 5);
        }
        let mut json = Json::new(&mut out, &about, &wanted);
        json.now = || "2026-01-02T03:04:05Z".to_string();
        assert!(json.show(&Moment::default(), sample).unwrap().is_continue());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn values_are_in_base_units_and_counts_are_whole() {
        let line = line(&tracepoints(0));
        assert_eq!(line["schema_version"], SCHEMA_VERSION);
        assert_eq!(line["time"], "2026-01-02T03:04:05Z");
        assert_eq!(line["duration_ns"], 1_000_000_000);
        assert_eq!(line["payload_sent_bits_per_s"], 1e9);
        assert_eq!(line["tail_ratio"], 0.05);
        assert_eq!(line["counts"]["segments"]["data_skbs_sent"], 10_000);
        assert!(!line.contains_key("warnings"));
    }

    #[test]
    fn what_was_not_measured_is_absent() {
        let line = line(&counters_only(0));
        assert!(!line.contains_key("tail_ratio"));
        assert!(line.contains_key("softirq_ratio"));
    }

    fn of_a_row() -> Vec<Column> {
        let is_new = |column: &&Column| {
            let mut known = CONNECTION_COLUMNS.iter();
            !known.any(|known| known.figures == column.figures)
        };
        let more = OWNER_COLUMNS.iter().filter(is_new);
        CONNECTION_COLUMNS.iter().chain(more).copied().collect()
    }

    /// Checks that docs/records.md has the tables of figures and counters as they are defined.
    #[test]
    fn the_page_has_the_figures_as_they_are_defined() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/records.md");
        let committed = std::fs::read_to_string(path).unwrap();
        let mut page = committed.clone();
        let figures = |columns: Vec<Column>| {
            let figures = columns
                .iter()
                .flat_map(|column| column.figures.iter().copied());
            tcpcost_counts::figure_table(figures)
        };
        for (of, table) in [
            ("figures of an interval", figures(INTERVAL.concat())),
            ("figures of a row", figures(of_a_row())),
            ("counters", super::super::metrics::tests::counter_table()),
        ] {
            let begin = format!("<!-- {of}: ");
            let (before, rest) = page.split_once(&begin).expect("the marker is there");
            let (made, rest) = rest.split_once("-->\n").expect("the marker is a comment");
            let (_, after) = rest.split_once("<!-- end -->").expect("and ends");
            page = format!("{before}{begin}{made}-->\n{table}<!-- end -->{after}");
        }
        if std::env::var_os("TCPCOST_REWRITE").is_some() {
            std::fs::write(path, &page).unwrap();
        } else {
            assert!(
                page == committed,
                "docs/records.md is old: TCPCOST_REWRITE=1 cargo test -p tcpcost-observe"
            );
        }
    }

    /// Words in backquotes that begin a row of a table in the section about `watch`.
    fn documented() -> BTreeSet<String> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/records.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (_, section) = page
            .split_once("\n## `tcpcost watch`: JSON\n")
            .expect("the section is there");
        let (section, _) = section.split_once("\n## ").expect("another follows");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| Some(row.split_once('`')?.0.to_string()))
            .collect()
    }

    #[test]
    fn every_field_is_documented_and_every_documented_field_is_there() {
        let mut sample = tracepoints(0);
        sample.growth.warnings.push("something".to_string());
        let mut both = row(1, "one", 10);
        both.counts.insert(Quantity::ConnSegmentsSent, 20_001);
        both.counts.insert(Quantity::ConnDataSegmentsReceived, 5);
        let named = cost(1, "one", None);
        let served = cost(1, "one", Some(Port::Served(80)));
        let host = Row {
            is_host: true,
            ..Row::default()
        };
        let mut rows = vec![both, named, served];
        for row in &mut rows {
            row.namespace.as_mut().unwrap().name = Some("blue".into());
        }
        rows.push(host);
        sample.rows = Some(rows);
        let line = line(&sample);
        let mut there: BTreeSet<String> = line.keys().cloned().collect();
        for view in ["connections", "processes", "cgroups", "namespaces", "ports"] {
            for row in line[view].as_array().unwrap() {
                there.extend(row.as_object().unwrap().keys().cloned());
            }
        }
        assert_eq!(documented(), there);
    }
}
