//! One self-contained page of a capture: its findings, its table, and charts drawn by a bundled
//! script. The page loads nothing and runs only its own scripts; its content security policy
//! refuses all else.

use maud::{DOCTYPE, PreEscaped, html};
use serde_json::{Value, json};

use crate::graph::{ConnectionGraph, Graph, Points, Step};
use crate::page_policy::{PLOT_STYLE, policy, source};
use crate::report::{ConnectionReport, Distribution, Report};
use crate::text::{connection_text, largest, summary};

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
    let of_each: Vec<Vec<Option<Value>>> = shown
        .iter()
        .map(|(connection, graph)| charts(connection, graph))
        .collect();
    let kinds = of_each.first().map_or(0, Vec::len);
    // A row for each kind of chart, so that charts to compare are next to each other.
    let rows: Vec<Vec<Value>> = (0..kinds)
        .map(|kind| of_each.iter().filter_map(|of| of[kind].clone()).collect())
        .filter(|row: &Vec<Value>| !row.is_empty())
        .collect();
    let charts: Vec<&Value> = rows.iter().flatten().collect();
    // "</" would end the element, and "<!--" would change how it ends, so every "<" is escaped.
    let data = serde_json::to_string(&charts)
        .expect("values have no keys but strings")
        .replace('<', "\\u003c");
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
                    div.scroll { pre { (largest(report)) } }
                    @if !charts.is_empty() {
                        p { "Drag across a chart of time to look at a part of it; a double click shows all." }
                    }
                    @if shown.len() > 1 {
                        @let mut places = 0..;
                        @for row in &rows {
                            div.beside {
                                @for (place, chart) in places.by_ref().take(row.len()).zip(row) { (figure(place, chart)) }
                            }
                        }
                    } @else {
                        div.charts {
                            @for (place, chart) in charts.iter().enumerate() { (figure(place, chart)) }
                        }
                    }
                    @for (connection, graph) in &shown {
                        h2 { "Connection " (connection.number) }
                        div.scroll { pre { (connection_text(report, connection, Some(graph))) } }
                    }
                }
                script type="application/json" id="charts" { (PreEscaped(data)) }
                script { (PreEscaped(&bundle)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Style of charts in `columns` columns, and in fewer columns if each would be too narrow to read.
fn beside(columns: usize) -> String {
    let (columns, gaps) = (columns.max(1), columns.saturating_sub(1) * 2);
    format!(
        ".beside {{ display: grid; gap: 1.5rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, max(16rem, (100% - {gaps}rem) / {columns})), 1fr)); }}\n.wrapped {{ white-space: pre-wrap; }}"
    )
}

fn figure(place: usize, chart: &Value) -> maud::Markup {
    html! {
        figure data-chart=(place) {
            figcaption { (chart["title"].as_str().unwrap_or_default()) }
            div.chart {}
        }
    }
}

/// Number of charts over time for each end.
const OVER_TIME: usize = 4;

/// Charts of a connection, in the same order for each connection. `None` if a chart would be empty.
fn charts(connection: &ConnectionReport, graph: &ConnectionGraph) -> Vec<Option<Value>> {
    let mut charts = Vec::new();
    let start_ns = connection.first_ns.unwrap_or(0);
    let ms = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e6;
    let x = "ms since the first packet";
    for (end, curves) in graph.curves.iter().enumerate() {
        let points = |points: &Points| -> Vec<(f64, u64)> {
            let of = points.points().iter();
            of.map(|(at, place)| (ms(*at), *place)).collect()
        };
        if curves.data.points().is_empty() {
            charts.extend([const { None }; OVER_TIME]);
            continue;
        }
        let address = &connection.ends[end].address;
        let of_end = graph.stalls.iter().filter(|stall| stall.0 == end);
        charts.push(Some(json!({
            "form": "sequence",
            "title": format!("Connection {}, time and sequence: what {address} sent (dots), acknowledged (line), the window's edge (upper line), sent again (crosses), SACK (triangles), D-SACK (squares), stalls shaded", connection.number),
            "x": x, "y": "bytes",
            "data": points(&curves.data),
            "again": points(&curves.again),
            "acked": points(&curves.acked),
            "edge": points(&curves.edge),
            "sacked": points(&curves.sacked),
            "dsacked": points(&curves.dsacked),
            "stalls": of_end.map(|(_, since, until)| (ms(*since), ms(*until))).collect::<Vec<_>>(),
        })));
        let step_ms = graph.steps.step_ns as f64 / 1e6;
        let rate = |of: &dyn Fn(&Step) -> u64| -> Vec<(f64, f64)> {
            // The last step is repeated at its end, because one point makes no line.
            let steps = graph.steps.steps.iter();
            let last = graph.steps.steps.last();
            steps
                .chain(last)
                .enumerate()
                .map(|(at, step)| {
                    (
                        at as f64 * step_ms,
                        of(step) as f64 / 1024.0 / step_ms * 1e3,
                    )
                })
                .collect()
        };
        let line = |name: &str, points: Value| json!({"name": name, "points": points});
        let mut over_time = |title: &str, y: &str, lines: Vec<Value>| {
            charts.push(Some(json!({
                "form": "lines", "x": x, "y": y, "lines": lines,
                "title": format!("Connection {}, {title} of {address}", connection.number),
            })));
        };
        over_time(
            "throughput and goodput",
            "KiB/s",
            vec![
                line("sent", json!(rate(&|step| step.sent_bytes[end]))),
                line("acknowledged", json!(rate(&|step| step.acked_bytes[end]))),
            ],
        );
        over_time(
            "data in flight and window offered",
            "bytes",
            vec![
                line("in flight", json!(points(&curves.in_flight))),
                line("window", json!(points(&curves.window))),
            ],
        );
        over_time(
            "round trips",
            "µs",
            vec![line("RTT", json!(points(&curves.rtt_us)))],
        );
    }
    for end in &connection.ends {
        let mut add = |form: &str, title: String, x: &str, of: &Distribution| {
            charts.push((of.n > 0).then(
                || json!({"form": form, "title": title, "x": x, "n": of.n, "steps": of.steps}),
            ));
        };
        let (number, address) = (connection.number, &end.address);
        add(
            "cdf",
            format!("Connection {number}: captured packets that {address} sent, by size"),
            "payload bytes",
            &end.packet_bytes,
        );
        add(
            "bars",
            format!("Connection {number}: ACKs of {address}, by what they cover"),
            "bytes per pure ACK",
            &end.bytes_per_ack,
        );
        add(
            "cdf",
            format!("Connection {number}: data bursts of {address}"),
            "wire segments in a row",
            &end.data_burst_wire_segments,
        );
    }
    charts
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
