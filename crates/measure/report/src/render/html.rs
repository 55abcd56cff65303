//! Makes one self-contained page: tables that need no script, and charts that a bundled script draws.
//!
//! The page loads nothing, and runs only its own scripts: its content security policy refuses everything
//! else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::derive::cell::CellSummary;
use crate::render::flame::{flame, inline_texts};
use crate::render::json::json;
use crate::render::page_policy::{PLOT_STYLE, policy, source};
use crate::sections::charts::Chart;
use crate::sections::model::{Cell, Column, Kind, Level, Prose, Row, Section, Table, Tone};
use crate::sections::sections;
use crate::summary::Summary;

const PLOT: &str = include_str!("../../assets/plot.min.js");
/// Licences of the bundle. They must accompany it, and it is in every page.
const LICENCES: &str = include_str!("../../assets/LICENSES.txt");
const SCRIPT: &str = include_str!("../../assets/report.js");
const STYLE: &str = include_str!("../../assets/report.css");

/// The summary as one HTML page that refers to nothing outside itself.
pub fn html(summary: &Summary) -> String {
    let sections = sections(summary, Level::Page);
    let charts: Vec<&Chart> = sections.iter().flat_map(|one| &one.charts).collect();
    // "</" would end the element, and "<!--" would change how it ends, so every "<" is escaped.
    let embedded = |json: String| json.replace('<', "\\u003c");
    let data = embedded(serde_json::to_string(&charts).expect("text and finite numbers alone"));
    let title = &summary.study.title;
    let bundle = format!("/*\n{LICENCES}*/\n{PLOT}");
    let mut n_charts = 0;
    let laid_out = sections.iter().map(|one| {
        let markup = section(one, n_charts);
        n_charts += one.charts.len();
        (one.level, markup)
    });
    let (answer, details): (Vec<_>, Vec<_>) =
        laid_out.partition(|(level, _)| *level <= Level::Answer);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy_of(summary, &bundle));
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (title) } }
                main {
                    @for (_, section) in &answer { (section) }
                    details.all {
                        summary { "Details: ACKs, response times, owners of CPU time, comparison of methods, environment" }
                        @for (_, section) in &details { (section) }
                    }
                }
                script type="application/json" id="charts" { (PreEscaped(data)) }
                // For a reader who has only the page: the output of `tcpcost report --format json`.
                script type="application/json" id="summary" { (PreEscaped(embedded(json(summary)))) }
                script { (PreEscaped(&bundle)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// Content security policy of the page. It also applies in flame graphs, because their addresses are data of
/// the page.
fn policy_of(summary: &Summary, bundle: &str) -> String {
    let mut scripts = vec![source(bundle), source(SCRIPT)];
    let mut styles = vec![source(STYLE), source(PLOT_STYLE)];
    if summary.cells.iter().any(|cell| !cell.profiles.is_empty())
        && let Some(inline) = inline_texts()
    {
        scripts.extend([
            source(&inline.script),
            "'unsafe-hashes'".to_string(),
            source(inline.handler),
        ]);
        styles.push(source(&inline.style));
    }
    let policy = policy(&scripts, &styles);
    policy + "; img-src data:; frame-src data:"
}

/// A section. Its first chart is number `first_chart` of the page.
fn section(section: &Section<'_>, first_chart: usize) -> Markup {
    let contents = html! {
        (charts(&section.charts, first_chart))
        @for one in &section.tables { (table(one)) }
        @if let Some(cell) = section.flame { (flame_graph(cell)) }
        (prose(section))
    };
    html! {
        @if section.is_folded {
            details { summary { (section.heading) } (contents) }
        } @else {
            @if !section.heading.is_empty() { h2 { (section.heading) } }
            (contents)
        }
    }
}

fn charts(charts: &[Chart], first: usize) -> Markup {
    html! {
        @if !charts.is_empty() {
            noscript { p.soft { "Charts need JavaScript; the tables have the same numbers." } }
            div.charts {
                @for (index, chart) in charts.iter().enumerate() {
                    figure data-chart=(first + index) {
                        figcaption {
                            (chart.title)
                            @if !chart.note.is_empty() { small { (chart.note) } }
                        }
                        div.chart {}
                    }
                }
            }
        }
    }
}

fn prose(section: &Section<'_>) -> Markup {
    let lines = &section.prose;
    if lines.is_empty() {
        return html! {};
    }
    html! {
        @match section.prose_form {
            Prose::Findings => { @for line in lines { p.finding { (line) } } }
            Prose::Paragraphs => { @for line in lines { p { (line) } } }
            Prose::Notes => { ul.notes { @for line in lines { li { (line) } } } }
            Prose::Facts => { ul.facts { @for line in lines { li { (line) } } } }
            Prose::Warnings => { ul.warnings aria-label="Warnings" { @for line in lines { li { (line) } } } }
        }
    }
}

fn table(table: &Table) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { @for column in &table.columns {
                th.left[column.kind != Kind::Number] scope="col" title=[definition(column)] { (column.title) }
            } } }
            tbody { @for row in &table.rows { (table_row(row, &table.columns)) } }
        } }
    }
}

fn definition(column: &Column) -> Option<&str> {
    Some(column.definition).filter(|text| !text.is_empty())
}

fn table_row(row: &Row, columns: &[Column]) -> Markup {
    let cells = row.cells.iter().zip(columns);
    html! {
        tr {
            @if row.is_heading() {
                th scope="rowgroup" colspan=(columns.len()) { (row.cells[0].text) }
            } @else {
                @for (place, (cell, column)) in cells.enumerate() {
                    @if place == 0 {
                        th.good[cell.tone == Tone::Good].bad[cell.tone == Tone::Bad] scope="row" { (cell.text) }
                    } @else {
                        (table_cell(cell, column.kind))
                    }
                }
            }
        }
    }
}

fn table_cell(cell: &Cell, kind: Kind) -> Markup {
    let (is_good, is_bad) = (cell.tone == Tone::Good, cell.tone == Tone::Bad);
    html! {
        @match kind {
            Kind::Number => { td.good[is_good].bad[is_bad] { (two_sizes(&cell.text)) } }
            Kind::Name => { td.left.good[is_good].bad[is_bad] { (cell.text) } }
            Kind::Sentence => { td.wrap.good[is_good].bad[is_bad] { (cell.text) } }
        }
    }
}

/// The median, and its interval in small type.
fn two_sizes(shown: &str) -> Markup {
    let (median, interval) = shown.split_once(' ').unwrap_or((shown, ""));
    html! { (median) @if !interval.is_empty() { " " small { (interval) } } }
}

/// Flame graph of a cell, as a document of its own, so that its script and names do not mix with this page's. The
/// security policy of this page applies to it, too.
fn flame_graph(cell: &CellSummary) -> Markup {
    html! {
        @if let Some(svg) = flame(cell) {
            iframe.flame loading="lazy" src={ "data:image/svg+xml;base64," (STANDARD.encode(svg)) }
                title={ "Flame graph, " (cell.name) } {}
        }
    }
}
