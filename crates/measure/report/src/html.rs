//! Makes one self-contained page: tables that need no script, and charts that a bundled script draws.
//!
//! The page loads nothing, and runs only its own scripts: its content security policy refuses everything
//! else.

mod hosts;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeSet;

use tcpcost_study::{Derived, Figure, FigureOf, HostName, Scope};

use crate::acks;
use crate::call_chains::flame::inline_texts;
use crate::call_chains::page;
use crate::cell::CellSummary;
use crate::charts::{Chart, PARTS, charts};
use crate::compare::Group;
use crate::estimate::Estimate;
use crate::facts::facts;
use crate::json::json;
use crate::labels;
use crate::number::{show, show_estimate, show_percent, unit_in_tables};
use crate::operations::PERCENTILES;
use crate::page_policy::{PLOT_STYLE, policy, source};
use crate::prose::{found, sentence};
use crate::published_chart::published_chart;
use crate::published_table;
use crate::scope::{self, scopes};
use crate::series_chart::series_chart;
use crate::summary::Summary;
use crate::table::ABSENT;
use crate::trust::trust;
use crate::verdict::Verdict;

const PLOT: &str = include_str!("../assets/plot.min.js");
/// Licences of the bundle. They must accompany it, and it is in every page.
const LICENCES: &str = include_str!("../assets/LICENSES.txt");
const SCRIPT: &str = include_str!("../assets/report.js");
const STYLE: &str = include_str!("../assets/report.css");

/// The summary as one HTML page that refers to nothing outside itself.
pub fn html(summary: &Summary) -> String {
    let first = published_chart(summary).into_iter();
    let charts: Vec<Chart> = first
        .chain(charts(summary))
        .chain(series_chart(summary))
        .collect();
    // "</" would end the element, and "<!--" would change how it ends, so every "<" is escaped.
    let embedded = |json: String| json.replace('<', "\\u003c");
    let data = embedded(serde_json::to_string(&charts).expect("text and finite numbers alone"));
    let study = &summary.study;
    let bundle = format!("/*\n{LICENCES}*/\n{PLOT}");
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy_of(summary, &bundle));
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (study.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (study.title) } }
                main {
                    (findings(summary))
                    p { (trust(summary)) }
                    (figures(&charts, |chart| !chart.is_detail, "In pictures"))
                    (statements(summary))
                    (thresholds(summary))
                    (warnings(summary))
                    h2 { "Cost" }
                    @for group in summary.groups() { (cost(summary, &group)) }
                    (hosts::fleets(summary))
                    (hosts::hosts(summary))
                    ul.notes { @for note in labels::notes(summary, true).iter().chain(&labels::not_clean(summary)) { li { (note) } } }
                    (not_measured(summary))
                    (published(summary))
                    (published_table(summary))
                    h2 { "About this run" }
                    @for paragraph in study.about.split("\n\n") {
                        @if !paragraph.trim().is_empty() { p { (paragraph.trim()) } }
                    }
                    ul.facts { @for line in labels::head(summary).iter().chain(&labels::regimes(summary)).chain(&labels::buffers(summary)) { li { (line) } } }
                    details.all {
                        summary { "Details: ACKs, response times, owners of CPU time, comparison of methods, environment" }
                        (cells_table("ACKs and packets", &summary.cells.iter().collect::<Vec<_>>(), &acks::columns(summary)))
                        (openings(summary))
                        (response_times(summary))
                        (groups(summary))
                        (operations(summary))
                        (figures(&charts, |chart| chart.is_detail && chart.form != "split", "Each host"))
                        (figures(&charts, |chart| chart.form == "split", "Where the CPU time went"))
                        (split(summary))
                        (exact(summary))
                        (page::profiles(summary))
                        (page::meter_costs(summary))
                        (environment(summary))
                        (everything(summary))
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

/// Table cell of an estimate: the median, and its interval in small type.
fn estimate(estimate: Option<&Estimate>, scale: f64) -> Markup {
    let Some(estimate) = estimate else {
        return html! { (ABSENT) };
    };
    two_sizes(&show_estimate(estimate, scale))
}

/// The median, and the rest in small type.
fn two_sizes(shown: &str) -> Markup {
    let (median, interval) = shown.split_once(' ').unwrap_or((shown, ""));
    html! { (median) " " small { (interval) } }
}

fn of_cell(cell: &CellSummary, of: Derived) -> Markup {
    let of_cpu_time = PARTS.iter().any(|(_, kind)| *kind == of.kind);
    if (of_cpu_time || of.kind == Figure::OthersRatio)
        && let Some(estimate) = cell.estimates.get(&of)
    {
        return two_sizes(&show_percent(estimate));
    }
    let (_, scale) = unit_in_tables(of);
    estimate(cell.estimates.get(&of), scale)
}

/// Columns in which at least one cell has a number.
fn kept(cells: &[&CellSummary], wanted: &[Derived]) -> Vec<Derived> {
    let any = |of: &&Derived| cells.iter().any(|cell| cell.estimates.contains_key(of));
    wanted.iter().filter(any).copied().collect()
}

/// Table of these quantities, with a row for each cell that has any of them.
fn cells_table(caption: &str, cells: &[&CellSummary], wanted: &[(Derived, &str)]) -> Markup {
    let all: Vec<Derived> = wanted.iter().map(|(of, _)| *of).collect();
    let kept = kept(cells, &all);
    let title = |of: &Derived| {
        wanted
            .iter()
            .find(|(wanted, _)| wanted == of)
            .map(|(_, t)| *t)
    };
    html! {
        @if !kept.is_empty() {
            div.scroll { table {
                caption { (caption) }
                thead { tr {
                    th scope="col" { "cell" }
                    @for of in &kept {
                        th scope="col" title=(of.kind.definition()) {
                            (title(of).unwrap_or_default()) ", " (unit_in_tables(*of).0)
                        }
                    }
                } }
                tbody {
                    @for cell in cells.iter().filter(|cell| kept.iter().any(|of| cell.estimates.contains_key(of))) {
                        tr {
                            th scope="row" { (cell.name) }
                            @for of in &kept { td { (of_cell(cell, *of)) } }
                        }
                    }
                }
            } }
        }
    }
}

fn cost(summary: &Summary, group: &Group<'_>) -> Markup {
    let load = if group.fixed_rate {
        "at a fixed rate"
    } else {
        "CPU-bound"
    };
    let (unit, _) = unit_in_tables(group.main);
    let with_ratio = group.cells.len() > 1;
    let work = Derived::total(if group.cells.iter().any(|cell| cell.has_transactions()) {
        Figure::TransactionsPerS
    } else {
        Figure::Goodput
    });
    let hosts = group.cells.iter().flat_map(|cell| cell.hosts()).collect();
    let others: Vec<Derived> = scopes(&hosts)
        .into_iter()
        .map(|scope| Derived {
            kind: group.main.kind,
            scope,
        })
        .chain([work])
        .filter(|of| *of != group.main)
        .collect();
    let kept = kept(&group.cells, &others);
    let first_regime = group.cells.iter().find_map(|cell| cell.regime());
    let regimes_differ = group.cells.iter().any(|cell| {
        cell.regime()
            .is_some_and(|regime| Some(regime) != first_regime)
    });
    html! {
        div.scroll { table {
            caption { (labels::quantity(group.main)) ", " (load) }
            thead { tr {
                th scope="col" { "cell" }
                th scope="col" title=(group.main.kind.definition()) { (whose(group.main)) (unit) }
                @if with_ratio { th scope="col" { "ratio to first" } }
                @for of in &kept {
                    th scope="col" title=(of.kind.definition()) {
                        (whose(*of)) (unit_in_tables(*of).0)
                    }
                }
                th scope="col" { "trials" }
                @if regimes_differ { th.left scope="col" { "segmentation" } }
            } }
            tbody { @for cell in &group.cells { tr {
                th scope="row" { (cell.name) }
                td { (of_cell(cell, group.main)) (marks(summary, cell)) }
                @if with_ratio { td { (group.shown_ratio(cell)) } }
                @for of in &kept { td { (of_cell(cell, *of)) } }
                td { (cell.n) }
                @if regimes_differ {
                    td.left { (cell.regime().unwrap_or_else(|| ABSENT.to_string())) }
                }
            } } }
        } }
    }
}

/// Prefix of a unit, such as `client, `.
fn whose(of: Derived) -> String {
    match of.scope {
        Scope::Host(name) | Scope::Group(name) => format!("{name}, "),
        Scope::All if of.kind.whose() == FigureOf::Host => "all, ".to_string(),
        Scope::All => String::new(),
    }
}

fn marks(summary: &Summary, cell: &CellSummary) -> Markup {
    let marks = labels::marks(summary, cell);
    html! { @if !marks.is_empty() { " " span.mark { (marks) } } }
}

fn response_times(summary: &Summary) -> Markup {
    let cells: Vec<&CellSummary> = summary.cells.iter().collect();
    let wanted = [
        (Figure::ResponseP50, "p50"),
        (Figure::ResponseP90, "p90"),
        (Figure::ResponseP99, "p99"),
        (Figure::ResponseP999, "p99.9"),
        (Figure::ResponseP9999, "p99.99"),
    ]
    .map(|(kind, title)| (Derived::total(kind), title));
    cells_table("Response time", &cells, &wanted)
}

/// A table for each group of connections.
fn groups(summary: &Summary) -> Markup {
    let cells: Vec<&CellSummary> = summary.cells.iter().collect();
    let names: BTreeSet<HostName> = cells
        .iter()
        .flat_map(|cell| cell.knobs.group_names())
        .collect();
    html! {
        @for group in names {
            @let wanted = [
                (Figure::Goodput, "goodput"),
                (Figure::TransactionsPerS, "transactions"),
                (Figure::ResponseP50, "p50"),
                (Figure::ResponseP90, "p90"),
                (Figure::ResponseP99, "p99"),
                (Figure::ResponseP999, "p99.9"),
                (Figure::ResponseP9999, "p99.99"),
            ]
            .map(|(kind, title)| (Derived { kind, scope: Scope::Group(group) }, title));
            (cells_table(&format!("Connections of the group {group}"), &cells, &wanted))
        }
    }
}

/// Tables of the times of each operation of a program, by cell.
fn operations(summary: &Summary) -> Markup {
    let titles = PERCENTILES.map(|(_, title)| title);
    html! {
        @for cell in summary.cells.iter().filter(|cell| !cell.operations.is_empty()) {
            div.scroll { table {
                caption { "Operations of programs, times in µs: " (cell.name) }
                thead { tr {
                    th scope="col" { "operation" }
                    th scope="col" { "count" }
                    th scope="col" { "failed" }
                    @for title in titles { th scope="col" { (title) } }
                } }
                tbody { @for one in &cell.operations { tr {
                    th scope="row" {
                        (one.host) @if let Some(group) = one.group { ", " (group) }
                        ": " (one.place) " " (one.operation)
                    }
                    td { (one.count) }
                    td { (one.failed) }
                    @for time in one.times_us { td { (time.map_or(ABSENT.to_string(), show)) } }
                } } }
            } }
        }
    }
}

fn split(summary: &Summary) -> Markup {
    let cells: Vec<&CellSummary> = summary.cells.iter().collect();
    html! {
        @for scope in scopes(&summary.hosts_of_cells()) {
            @let wanted = PARTS
                .iter()
                .map(|(title, kind)| (Derived { kind: *kind, scope }, *title))
                .chain([(Derived { kind: Figure::OthersRatio, scope }, "other tasks (included)")])
                .collect::<Vec<_>>();
            (cells_table(
                &format!("CPU time, {}", scope::whose(scope)),
                &cells,
                &wanted,
            ))
        }
    }
}

fn exact(summary: &Summary) -> Markup {
    let cells: Vec<&CellSummary> = summary
        .cells
        .iter()
        .filter(|cell| labels::has_exact(cell))
        .collect();
    html! {
        @if !cells.is_empty() {
            h2 { "Exact CPU time by kind, and the error of other methods" }
            @for scope in scopes(&summary.hosts_of_cells()) {
                @let wanted = labels::EXACT
                    .iter()
                    .map(|&(title, kind)| (Derived { kind, scope }, title))
                    .collect::<Vec<_>>();
                (cells_table(
                    &format!("CPU time by the meter exact, {}", scope::whose(scope)),
                    &cells,
                    &wanted,
                ))
            }
            ul.notes { @for line in labels::methods(summary) { li { (line) } } }
        }
    }
}

fn figures(charts: &[Chart], wanted: impl Fn(&Chart) -> bool, title: &str) -> Markup {
    html! {
        @if charts.iter().any(&wanted) {
            h2 { (title) }
            noscript { p.soft { "Charts need JavaScript; the tables have the same numbers." } }
            div.charts {
                @for (index, chart) in charts.iter().enumerate().filter(|(_, chart)| wanted(chart)) {
                    figure data-chart=(index) {
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

fn published(summary: &Summary) -> Markup {
    let Some(published) = &summary.study.published else {
        return html! {};
    };
    let (unit, scale) = unit_in_tables(published.quantity);
    html! {
        h2 { "Published figures and ours" }
        div.scroll { table {
            caption { (published.source) ": " (labels::quantity(published.quantity)) ", " (unit) }
            thead { tr {
                th scope="col" { (published.knob) }
                th.left scope="col" { "curve" }
                th scope="col" { "published" }
                th scope="col" { "ours" }
                th.left scope="col" { "our cell" }
            } }
            tbody { @for row in summary.published() { tr {
                th scope="row" { (row.value) }
                td.left { (row.series.name) }
                td { (show(row.figure * scale)) }
                td { (estimate(row.ours, scale)) }
                td.left { (row.cell.map_or(ABSENT, |cell| &cell.name)) }
            } } }
        } }
    }
}

fn findings(summary: &Summary) -> Markup {
    html! { @for sentence in found(summary) { p.finding { (sentence) } } }
}

fn published_table(summary: &Summary) -> Markup {
    let Some((published, rows)) = published_table::shown(summary) else {
        return html! {};
    };
    let scales: Vec<f64> = published
        .columns
        .iter()
        .map(|(_, of)| unit_in_tables(*of).1)
        .collect();
    html! {
        div.scroll { table {
            caption { "Compared with " (published.source) }
            thead { tr {
                @for knob in &published.knobs { th.left scope="col" { (knob) } }
                th.left scope="col" { "whose" }
                @for (heading, _) in &published.columns { th scope="col" { (heading) } }
            } }
            tbody { @for row in &rows {
                tr {
                    @for value in row.setting { th.left scope="row" { (value) } }
                    td.left { "published" }
                    @for (figure, scale) in row.published.iter().zip(&scales) { td { (show(figure * scale)) } }
                }
                @for ours in &row.ours { tr {
                    @for _ in row.setting { td {} }
                    td.left { (ours.cell) }
                    @for (figure, scale) in ours.figures.iter().zip(&scales) {
                        td { (figure.map_or(ABSENT.to_string(), |figure| show_estimate(figure, *scale))) }
                    }
                } }
            } }
        } }
    }
}

fn statements(summary: &Summary) -> Markup {
    if summary.statements.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Published statements" }
        div.scroll { table {
            thead { tr {
                th scope="col" { "here it" } th.left scope="col" { "stated" } th.left scope="col" { "tested by" }
            } }
            tbody { @for one in &summary.statements { tr {
                th scope="row" { (one.held.name()) }
                td.left { (one.statement.text) " (" (one.statement.source) ")" }
                td.left { @for &index in &one.findings { p { (sentence(&summary.findings[index])) } } }
            } } }
        } }
    }
}

fn openings(summary: &Summary) -> Markup {
    let Some(openings) = &summary.openings else {
        return html! {};
    };
    let published = openings.source.iter();
    html! {
        div.scroll { table {
            caption {
                "A connection's first transactions, captured at the " (openings.captured_at)
                ": wire segments of each pure ACK and of each data burst, | between transactions"
            }
            thead { tr {
                th scope="col" { "cell" }
                th.left scope="col" { "pure ACKs, most often" } th scope="col" { "in" }
                th scope="col" { "as published" }
                th.left scope="col" { "data bursts, most often" } th scope="col" { "in" }
                th scope="col" { "as published" } th scope="col" { "captures" }
            } }
            tbody {
                @for source in published { tr {
                    th scope="row" { (source) }
                    td.left { (openings.pure_acks.as_deref().unwrap_or(ABSENT)) } td {} td {}
                    td.left { (openings.data_bursts.as_deref().unwrap_or(ABSENT)) } td {} td {} td {}
                } }
                @for cell in &openings.cells { tr {
                    th scope="row" { (cell.cell) }
                    @for told in [&cell.pure_acks, &cell.data_bursts] {
                        td.left { (told.sequence) } td { (told.captures) }
                        td { (told.as_published.map_or(ABSENT.to_string(), |count| count.to_string())) }
                    }
                    td {
                        (cell.captures)
                        @if cell.too_short > 0 { " (" (cell.too_short) " too short)" }
                    }
                } }
            }
        } }
    }
}

fn thresholds(summary: &Summary) -> Markup {
    html! {
        @if !summary.judged.is_empty() {
            h2 { "Thresholds" }
            div.scroll { table {
                thead { tr {
                    th scope="col" { "verdict" }
                    th.left scope="col" { "quantity" }
                    th.left scope="col" { "limit" }
                    th scope="col" { "found" }
                    th.left scope="col" { "cell" }
                } }
                tbody { @for judged in &summary.judged { tr {
                    th scope="row" class=(Verdict::name(judged.verdict)) { (judged.verdict.name()) }
                    td.left { (judged.quantity) }
                    td.left { (judged.limits()) }
                    td { (estimate(judged.estimate.as_ref(), 1.0)) }
                    td.left { (judged.cell.as_deref().unwrap_or("no cell has these knobs")) }
                } } }
            } }
        }
    }
}

fn warnings(summary: &Summary) -> Markup {
    let warnings = summary.warnings();
    html! {
        @if !warnings.is_empty() {
            ul.warnings aria-label="Warnings" {
                @for warned in &warnings {
                    li { (warned.sentence()) }
                }
            }
        }
    }
}

fn not_measured(summary: &Summary) -> Markup {
    let lines = labels::not_measured(summary);
    html! {
        @if !lines.is_empty() {
            h3 { "Not measured" }
            ul.notes { @for line in lines { li { (line) } } }
        }
    }
}

fn environment(summary: &Summary) -> Markup {
    html! {
        h2 { "Environment" }
        @for host in &summary.machines.each {
            (key_values("The machine", &facts(host)))
        }
        @for host in summary.hosts_of_cells() {
            @for (cells, environment) in summary.environments(host) {
                details {
                    summary {
                        "The " (host) " as read back: "
                        @if cells.len() == summary.cells.len() { "all cells" }
                        @else { (cells.join("; ")) }
                    }
                    (key_values("", &facts(environment)))
                }
            }
        }
    }
}

fn key_values(caption: &str, facts: &[(String, String)]) -> Markup {
    html! {
        div.scroll { table {
            @if !caption.is_empty() { caption { (caption) } }
            tbody { @for (key, value) in facts { tr {
                th scope="row" { (key) }
                td.wrap { (value) }
            } } }
        } }
    }
}

/// Tables of every estimate of every cell.
fn everything(summary: &Summary) -> Markup {
    html! {
        h2 { "Every quantity of every cell" }
        @for cell in &summary.cells {
            details {
                summary { (cell.name) " " span.soft { "(" (cell.n) " trials, " (cell.load.name()) ")" } }
                p.soft { code { (cell.knobs) } }
                div.scroll { table {
                    thead { tr {
                        th scope="col" { "quantity" } th scope="col" { "median" }
                        th scope="col" { "from" } th scope="col" { "to" }
                        th.left scope="col" { "unit" } th scope="col" { "n" }
                    } }
                    tbody { @for (of, found) in &cell.estimates { tr {
                        th scope="row" title=(of.kind.definition()) { (of) }
                        td { (show(found.median)) }
                        td { (found.lo.map_or(ABSENT.to_string(), show)) }
                        td { (found.hi.map_or(ABSENT.to_string(), show)) }
                        td.left { (of.kind.unit()) }
                        td { (found.n) }
                    } } }
                } }
            }
        }
    }
}
