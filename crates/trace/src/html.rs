//! One self-contained page of a capture: its findings, its table, and charts drawn by a bundled
//! script. The page loads nothing and runs only its own scripts; its content security policy
//! refuses all else.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::graph::{ConnectionGraph, Graph, Points, Step};
use crate::page_policy::{PLOT_STYLE, policy, source};
use crate::report::{ConnectionReport, Distribution, EndReport, Report};
use crate::text::{CONNECTION_COLUMNS, acknowledged, connection_cells, connection_text, summary};

// The assets are symbolic links to the files of `report`, which `cargo package` follows: a copy
// would become out of date.
const PLOT: &str = include_str!("../assets/plot.min.js");
/// Licences of the bundle, which must be wherever the bundle is, so in every page.
const LICENCES: &str = include_str!("../assets/LICENSES.txt");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/trace.js");

/// Renders the page, with charts of the connections in `graph`. Charts of several connections are
/// next to each other.
pub fn page(report: &Report, graph: &Graph) -> String {
    let shown: Vec<(&ConnectionReport, &ConnectionGraph)> = report
        .connections
        .iter()
        .filter_map(|connection| Some((connection, graph.of_connection(connection.number)?)))
        .collect();
    let rows = rows(&shown);
    let title = format!("{}: what its TCP did", report.file);
    let bundle = format!("/*\n{LICENCES}*/\n{PLOT}");
    let beside = beside(shown.len());
    let scripts = [source(&bundle), source(SCRIPT)];
    let styles = [source(STYLE), source(&beside), source(PLOT_STYLE)];
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(&scripts, &styles));
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
                style { (PreEscaped(&beside)) }
            }
            body {
                header { h1 { (title) } }
                main {
                    pre.wrapped { (summary(report)) }
                    (connections(report))
                    div.scroll { pre { (acknowledged(report)) } }
                    (figures(&rows, shown.len() > 1))
                    @for (connection, graph) in &shown {
                        h2 { "Connection " (connection.number) }
                        div.scroll { pre { (connection_text(report, connection, Some(graph))) } }
                    }
                }
                script type="application/json" id="charts" { (PreEscaped(data(&rows))) }
                script { (PreEscaped(&bundle)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Limit of connections in the page's table: more make a page slow.
const LISTED_MOST: usize = 1000;

/// Table of the connections, those with the most payload first. A click on a heading sorts by it.
fn connections(report: &Report) -> Markup {
    let mut order: Vec<&ConnectionReport> = report.connections.iter().collect();
    order.sort_by_key(|connection| std::cmp::Reverse(connection.payload_bytes()));
    let more = order.len().saturating_sub(LISTED_MOST);
    order.truncate(LISTED_MOST);
    html! {
        @if !order.is_empty() {
            div.scroll {
                table.sortable {
                    thead { tr {
                        th { "#" }
                        th.left { "client > server: what it waited for most" }
                        @for heading in &CONNECTION_COLUMNS[1..] { th { (heading) } }
                    } }
                    tbody {
                        @for connection in order {
                            @let [ends, numbers @ ..] = connection_cells(connection);
                            tr {
                                td { (connection.number) }
                                td.left { (ends) }
                                @for number in &numbers { td { (number) } }
                            }
                        }
                    }
                }
            }
            @if more > 0 { p { (more) " connections more, with less payload, are in the JSON and CSV." } }
        }
    }
}

/// Charts of the connections: a row for each kind of chart, so that charts to compare are next to
/// each other.
fn rows(shown: &[(&ConnectionReport, &ConnectionGraph)]) -> Vec<Vec<Value>> {
    let of_each = shown
        .iter()
        .map(|(connection, graph)| charts(connection, graph));
    let of_each: Vec<Vec<Option<Value>>> = of_each.collect();
    let kinds = of_each.first().map_or(0, Vec::len);
    (0..kinds)
        .map(|kind| of_each.iter().filter_map(|of| of[kind].clone()).collect())
        .filter(|row: &Vec<Value>| !row.is_empty())
        .collect()
}

/// Charts as JSON within a `script` element.
fn data(rows: &[Vec<Value>]) -> String {
    let charts: Vec<&Value> = rows.iter().flatten().collect();
    // "</" would end the element, and "<!--" would change how it ends, so every "<" is escaped.
    serde_json::to_string(&charts)
        .expect("values have no keys but strings")
        .replace('<', "\\u003c")
}

/// Places of the charts on the page. `are_beside`: charts of a row are next to each other.
fn figures(rows: &[Vec<Value>], are_beside: bool) -> Markup {
    let mut charts = rows.iter().flatten().enumerate();
    html! {
        @if !rows.is_empty() {
            p { "Drag across a chart of time to look at a part of it; a double click shows all." }
        }
        @if are_beside {
            @for row in rows {
                div.beside {
                    @for (place, chart) in charts.by_ref().take(row.len()) { (figure(place, chart)) }
                }
            }
        } @else {
            div.charts { @for (place, chart) in charts { (figure(place, chart)) } }
        }
    }
}

/// Style of charts in `columns` columns, and in fewer columns if each would be too narrow to read.
fn beside(columns: usize) -> String {
    let (columns, gaps) = (columns.max(1), columns.saturating_sub(1) * 2);
    format!(
        ".beside {{ display: grid; gap: 1.5rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, max(16rem, (100% - {gaps}rem) / {columns})), 1fr)); }}\n.wrapped {{ white-space: pre-wrap; }}"
    )
}

fn figure(place: usize, chart: &Value) -> Markup {
    html! {
        figure data-chart=(place) {
            figcaption { (chart["title"].as_str().unwrap_or_default()) }
            div.chart {}
        }
    }
}

/// Charts of a connection, in the same order for each connection. `None` if a chart would be empty.
fn charts(connection: &ConnectionReport, graph: &ConnectionGraph) -> Vec<Option<Value>> {
    let charts = Charts { connection, graph };
    let over_time = (0..graph.curves.len()).flat_map(|end| charts.over_time(end));
    let of_sizes = connection.ends.iter().flat_map(|end| charts.of_sizes(end));
    over_time.chain(of_sizes).collect()
}

/// Axis of all charts over time.
const TIME: &str = "ms since the first packet";

/// Source of the charts of a connection.
struct Charts<'a> {
    connection: &'a ConnectionReport,
    graph: &'a ConnectionGraph,
}

impl Charts<'_> {
    /// Charts over time of one end. `None` if the end sent no data.
    fn over_time(&self, end: usize) -> [Option<Value>; 4] {
        let curves = &self.graph.curves[end];
        if curves.data.points().is_empty() {
            return [const { None }; 4];
        }
        let line = |name: &str, points: Value| json!({"name": name, "points": points});
        let throughput = vec![
            line("sent", json!(self.rate(|step| step.sent_bytes[end]))),
            line(
                "acknowledged",
                json!(self.rate(|step| step.acked_bytes[end])),
            ),
        ];
        let in_flight = vec![
            line("in flight", json!(self.points(&curves.in_flight))),
            line("window", json!(self.points(&curves.window))),
        ];
        let round_trips = vec![line("RTT", json!(self.points(&curves.rtt_us)))];
        [
            self.sequence(end),
            self.lines(end, "throughput and goodput", "KiB/s", throughput),
            self.lines(end, "data in flight and window offered", "bytes", in_flight),
            self.lines(end, "round trips", "µs", round_trips),
        ]
        .map(Some)
    }

    /// Time-sequence chart of one end.
    fn sequence(&self, end: usize) -> Value {
        let curves = &self.graph.curves[end];
        let address = &self.connection.ends[end].address;
        let of_end = self.graph.stalls.iter().filter(|stall| stall.0 == end);
        let stalls = of_end.map(|(_, since, until)| (self.ms(*since), self.ms(*until)));
        json!({
            "form": "sequence",
            "title": format!("Connection {}, time and sequence: what {address} sent (dots), acknowledged (line), the window's edge (upper line), sent again (crosses), SACK (triangles), D-SACK (squares), stalls shaded", self.connection.number),
            "x": TIME, "y": "bytes",
            "data": self.points(&curves.data),
            "again": self.points(&curves.again),
            "acked": self.points(&curves.acked),
            "edge": self.points(&curves.edge),
            "sacked": self.points(&curves.sacked),
            "dsacked": self.points(&curves.dsacked),
            "stalls": stalls.collect::<Vec<_>>(),
        })
    }

    /// Chart of lines over time of one end.
    fn lines(&self, end: usize, title: &str, y: &str, lines: Vec<Value>) -> Value {
        let address = &self.connection.ends[end].address;
        json!({
            "form": "lines", "x": TIME, "y": y, "lines": lines,
            "title": format!("Connection {}, {title} of {address}", self.connection.number),
        })
    }

    /// Charts of the sizes of one end's packets, ACKs and bursts. `None` if there are none.
    fn of_sizes(&self, end: &EndReport) -> [Option<Value>; 3] {
        let chart = |form: &str, title: String, x: &str, of: &Distribution| {
            let title = format!("Connection {}: {title}", self.connection.number);
            (of.n > 0).then(
                || json!({"form": form, "title": title, "x": x, "n": of.n, "steps": of.steps}),
            )
        };
        let address = &end.address;
        [
            chart(
                "cdf",
                format!("captured packets that {address} sent, by size"),
                "payload bytes",
                &end.packet_bytes,
            ),
            chart(
                "bars",
                format!("ACKs of {address}, by what they cover"),
                "bytes per pure ACK",
                &end.bytes_per_ack,
            ),
            chart(
                "cdf",
                format!("data bursts of {address}"),
                "wire segments in a row",
                &end.data_burst_wire_segments,
            ),
        ]
    }

    /// Time since the first packet, ms.
    fn ms(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.connection.first_ns.unwrap_or(0)) as f64 / 1e6
    }

    fn points(&self, points: &Points) -> Vec<(f64, u64)> {
        let points = points.points().iter();
        points.map(|(at, place)| (self.ms(*at), *place)).collect()
    }

    /// Bytes of each step as KiB/s. The last step is repeated at its end, because one point makes
    /// no line.
    fn rate(&self, bytes: impl Fn(&Step) -> u64) -> Vec<(f64, f64)> {
        let steps = &self.graph.steps;
        let step_ms = steps.step_ns as f64 / 1e6;
        let repeated = steps.steps.iter().chain(steps.steps.last());
        let point = |(place, step): (usize, &Step)| {
            let per_ms = bytes(step) as f64 / 1024.0 / step_ms;
            (place as f64 * step_ms, per_ms * 1e3)
        };
        repeated.enumerate().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Analysis, Filter, Report, Settings, read};

    use super::*;

    #[test]
    fn the_page_refers_to_nothing_and_holds_its_charts() {
        let capture = "000000 A.1 > </script>.2: P 1:101(100) ack 1 win 9\n000009 </script>.2 > A.1: . ack 101 win 9\n";
        let mut analysis =
            Analysis::watched(Settings::default(), Filter::default(), Graph::of(&[1]));
        let (reading, outcome) = read(capture.as_bytes(), &mut analysis);
        let (connections, graph) = analysis.finish();
        let report = Report::new("a<b", &reading, outcome.as_ref().copied(), &connections);
        let page = page(&report, &graph);
        assert_eq!(page.matches("</script>").count(), 3);
        assert!(!page.contains("src=") && !page.contains("href="));
        assert!(page.contains("\"form\":\"sequence\"") && page.contains("a&lt;b"));
    }
}
