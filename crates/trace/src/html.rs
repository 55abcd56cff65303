//! One self-contained page of a capture: its findings, its table, and charts drawn by a bundled
//! script. It loads nothing: its content security policy refuses every address.

use maud::{DOCTYPE, PreEscaped, html};
use serde_json::{Value, json};

use crate::graph::Graph;
use crate::report::{ConnectionReport, Distribution, Report};
use crate::text::{largest, summary};

const PLOT: &str = include_str!("../../report/assets/plot.min.js");
const STYLE: &str = include_str!("../../report/assets/report.css");
const SCRIPT: &str = include_str!("../assets/trace.js");
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// The page; `graph` is of the connection with the number `of`.
pub fn page(report: &Report, of: usize, graph: &Graph) -> String {
    let connection = report
        .connections
        .iter()
        .find(|connection| connection.number == of);
    let charts = connection
        .map(|connection| charts(connection, graph))
        .unwrap_or_default();
    let depth = connection.map(crate::text::depth);
    // "</" would end the element, "<!--" change how it ends: no "<" is left in it.
    let data = Value::from(charts.clone())
        .to_string()
        .replace('<', "\\u003c");
    let title = format!("{}: what its TCP did", report.file);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (title) } }
                main {
                    pre style="white-space: pre-wrap" { (summary(report)) }
                    div.scroll { pre { (largest(report)) } }
                    @if let Some(depth) = depth {
                        h2 { "Connection " (of) }
                        div.charts {
                            @for (place, chart) in charts.iter().enumerate() {
                                figure data-chart=(place) {
                                    figcaption { (chart["title"].as_str().unwrap_or_default()) }
                                    div.chart {}
                                }
                            }
                        }
                        div.scroll { pre { (depth) } }
                    }
                }
                script type="application/json" id="charts" { (PreEscaped(data)) }
                script { (PreEscaped(PLOT)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

fn charts(connection: &ConnectionReport, graph: &Graph) -> Vec<Value> {
    let mut charts = Vec::new();
    let start_ns = connection.first_ns.unwrap_or(0);
    let ms = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e6;
    for (end, curves) in graph.curves.iter().enumerate() {
        let points = |points: &[(u64, u64)]| -> Vec<(f64, u64)> {
            points.iter().map(|(at, place)| (ms(*at), *place)).collect()
        };
        if curves.data.points().is_empty() {
            continue;
        }
        let of_end = graph.stalls.iter().filter(|stall| stall.0 == end);
        charts.push(json!({
            "form": "sequence",
            "title": format!("Time and sequence: what {} sent (dots), how far it was acknowledged (line), sent again (crosses), stalls shaded", connection.ends[end].address),
            "x": "ms since the first packet", "y": "bytes",
            "data": points(curves.data.points()),
            "again": points(curves.again.points()),
            "acked": points(curves.acked.points()),
            "stalls": of_end.map(|(_, since, until)| (ms(*since), ms(*until))).collect::<Vec<_>>(),
        }));
    }
    for end in &connection.ends {
        let mut add = |form: &str, title: String, x: &str, of: &Distribution| {
            if of.n > 0 {
                charts.push(
                    json!({"form": form, "title": title, "x": x, "n": of.n, "steps": of.steps}),
                );
            }
        };
        let address = &end.address;
        add(
            "cdf",
            format!("Captured packets that {address} sent, by size"),
            "payload bytes",
            &end.packet_bytes,
        );
        add(
            "bars",
            format!("ACKs of {address}, by what they cover"),
            "bytes per pure ACK",
            &end.bytes_per_ack,
        );
        add(
            "cdf",
            format!("Data bursts of {address}"),
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
        let mut analysis = Analysis::watched(Settings::default(), Filter::default(), Graph::of(1));
        let (reading, outcome) = read(capture.as_bytes(), &mut analysis);
        let (connections, graph) = analysis.finish();
        let report = Report::new("a<b", &reading, outcome.as_ref().copied(), &connections);
        let page = page(&report, 1, &graph);
        assert_eq!(page.matches("</script>").count(), 3);
        assert!(!page.contains("src=") && !page.contains("href="));
        assert!(page.contains("\"form\":\"sequence\"") && page.contains("a&lt;b"));
    }
}
