//! The report as text for a terminal.

mod conclusions;
mod hosts;

use std::fmt::Write;

use tcpcost_study::{Derived, Figure, HostName, Scope};

use crate::acks;
use crate::call_chains::table as profile;
use crate::cell::CellSummary;
use crate::compare::Group;
use crate::labels;
use crate::number::{show, show_count, show_estimate, show_percent, unit_in_tables};
use crate::operations::PERCENTILES;
use crate::scope::scopes;
use crate::summary::Summary;
use crate::table::{ABSENT, Table, WIDTH, wrap};
use crate::trust::trust;

/// Style of the text.
#[derive(Debug, Clone, Copy)]
pub struct TextStyle {
    /// True for all tables, not only the answer: owners of CPU time, comparison of methods, ACKs, response
    /// times.
    pub details: bool,
    /// True for ANSI attributes. They never carry information alone.
    pub colour: bool,
    /// Width in columns; values below 60 count as 60.
    pub width: usize,
}

impl Default for TextStyle {
    /// The answer, without colour, in 100 columns.
    fn default() -> TextStyle {
        TextStyle {
            details: false,
            colour: false,
            width: WIDTH,
        }
    }
}

/// The summary as text for a terminal: the findings, reasons not to trust them, and the cost of each cell
/// next to published figures. Other tables follow if the style asks for details, or if there is no finding.
pub fn text(summary: &Summary, style: TextStyle) -> String {
    let page = Page {
        summary,
        style: Style(style.colour),
        width: style.width.max(WIDTH_LEAST),
    };
    let findings = page.findings();
    // Without a sentence, the tables are the answer.
    let details = style.details || findings.is_empty();
    let mut sections = vec![page.title(), findings, page.head()];
    sections.extend(summary.groups().iter().map(|group| page.cost(group)));
    sections.push(page.fleets(details));
    sections.push(page.hosts());
    sections.extend([
        page.instructions(false),
        page.instructions(true),
        page.published(),
        page.published_table(),
        page.meter_costs(),
        page.statements(),
        page.thresholds(),
    ]);
    if details {
        sections.extend([
            page.acks(),
            page.response_times(),
            page.groups(),
            page.operations(),
            page.split(),
            page.exact(),
            page.profiles(),
            page.lines(labels::regimes(summary)),
            page.lines(labels::buffers(summary)),
            page.openings(),
        ]);
    }
    sections.extend([
        page.lines(labels::not_measured(summary)),
        page.lines(labels::notes(summary, details)),
        page.lines(labels::not_clean(summary)),
        page.warnings(),
    ]);
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

/// Smallest width: less has no room for a name and a number.
const WIDTH_LEAST: usize = 60;

/// Number of functions of a cell in the text, those with the largest exclusive share. The page has all.
const FUNCTIONS: usize = 8;

/// Uses ANSI attributes, or none.
struct Style(bool);

impl Style {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_string()
        }
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }
}

struct Page<'a> {
    summary: &'a Summary,
    style: Style,
    width: usize,
}

/// Text of an estimate of a cell, in its table's unit.
fn shown(cell: &CellSummary, of: Derived) -> String {
    let (_, scale) = unit_in_tables(of);
    cell.estimates
        .get(&of)
        .map_or(ABSENT.to_string(), |estimate| {
            match of.kind.unit().starts_with("instructions") {
                true => show_count(estimate),
                false => show_estimate(estimate, scale),
            }
        })
}

impl Page<'_> {
    fn table(&self, table: &Table, out: &mut String) {
        for line in table.lines(self.width, |header| self.style.dim(header)) {
            let _ = writeln!(out, "{line}");
        }
    }

    fn heading(&self, text: &str) -> String {
        format!("{}\n", self.style.bold(text))
    }

    fn title(&self) -> String {
        self.heading(&self.summary.study.title)
    }

    fn head(&self) -> String {
        let mut lines = vec![trust(self.summary)];
        lines.extend(labels::head(self.summary));
        self.lines(lines)
    }

    fn cost(&self, group: &Group<'_>) -> String {
        let transactions = group.cells.iter().any(|cell| cell.has_transactions());
        let streams = group.cells.iter().any(|cell| !cell.has_transactions());
        let (unit, _) = unit_in_tables(group.main);
        let load = if group.fixed_rate {
            "at a fixed rate"
        } else {
            "CPU-bound"
        };
        let mut out = self.heading(&format!("{}, {load}", labels::quantity(group.main)));
        let mut table = Table::new(&[
            "cell",
            unit,
            "",
            "ratio to first",
            "Gbit/s",
            "trans./s",
            "n",
        ]);
        for cell in &group.cells {
            let work = |of, wanted: bool| {
                let of = Derived::total(of);
                if wanted && of != group.main {
                    shown(cell, of)
                } else {
                    ABSENT.to_string()
                }
            };
            table.row(vec![
                cell.name.clone(),
                shown(cell, group.main),
                labels::marks(self.summary, cell).to_string(),
                group.shown_ratio(cell),
                work(Figure::Goodput, streams && !cell.has_transactions()),
                work(Figure::TransactionsPerS, transactions),
                cell.n.to_string(),
            ]);
        }
        self.table(&table, &mut out);
        out
    }

    fn acks(&self) -> String {
        let has = |of: &Derived| {
            let mut cells = self.summary.cells.iter();
            cells.any(|cell| cell.estimates.contains_key(of))
        };
        let mut columns = acks::columns(self.summary);
        columns.retain(|(of, _)| has(of));
        if columns.is_empty() {
            return String::new();
        }
        let titles: Vec<&str> = columns.iter().map(|(_, title)| *title).collect();
        let mut table = Table::new(&[&["cell"], &titles[..]].concat());
        for cell in self.summary.cells.iter().filter(|cell| cell.n > 0) {
            let shown = columns.iter().map(|&(of, _)| shown(cell, of));
            table.row(std::iter::once(cell.name.clone()).chain(shown).collect());
        }
        let mut out = self.heading("ACKs and packets");
        self.table(&table, &mut out);
        out
    }

    /// Table of each group of connections: throughput and response times.
    fn groups(&self) -> String {
        let mut table = Table::new(&["group", "Gbit/s", "trans./s", "p50", "p90", "p99", "p99.9"]);
        for cell in &self.summary.cells {
            let groups = cell.knobs.group_names();
            if groups.is_empty() || cell.n == 0 {
                continue;
            }
            table.heading(&cell.name);
            for group in groups {
                let of = |kind| Derived {
                    kind,
                    scope: Scope::Group(group),
                };
                let kinds = [
                    Figure::Goodput,
                    Figure::TransactionsPerS,
                    Figure::ResponseP50,
                    Figure::ResponseP90,
                    Figure::ResponseP99,
                    Figure::ResponseP999,
                ];
                let mut row = vec![format!("  {group}")];
                row.extend(kinds.map(|kind| shown(cell, of(kind))));
                table.row(row);
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out = self.heading("Groups of connections, response times in µs");
        self.table(&table, &mut out);
        out
    }

    fn operations(&self) -> String {
        let titles = PERCENTILES.map(|(_, title)| title);
        let mut table = Table::new(&[
            "operation",
            "count",
            "failed",
            titles[0],
            titles[1],
            titles[2],
        ]);
        for cell in &self.summary.cells {
            let mut of = None;
            for one in &cell.operations {
                if of != Some((one.host, one.group)) {
                    of = Some((one.host, one.group));
                    let group = one
                        .group
                        .map_or(String::new(), |group| format!(", {group}"));
                    table.heading(&format!("{}: {}{group}", cell.name, one.host));
                }
                let mut row = vec![format!("  {} {}", one.place, one.operation)];
                row.push(one.count.to_string());
                row.push(match one.failed {
                    0 => ABSENT.to_string(),
                    failed => failed.to_string(),
                });
                let shown = |us: Option<f64>| us.map_or(ABSENT.to_string(), show);
                row.extend(one.times_us.map(shown));
                table.row(row);
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out = self.heading("Operations of programs, times in µs");
        self.table(&table, &mut out);
        out
    }

    fn response_times(&self) -> String {
        let kinds = [
            Figure::ResponseP50,
            Figure::ResponseP99,
            Figure::ResponseP999,
        ];
        let mut table = Table::new(&["cell", "p50", "p99", "p99.9"]);
        for cell in &self.summary.cells {
            let cells = kinds.map(|kind| shown(cell, Derived::total(kind)));
            if cells.iter().any(|shown| shown != ABSENT) {
                table.row(std::iter::once(cell.name.clone()).chain(cells).collect());
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out = self.heading("Response time, µs");
        self.table(&table, &mut out);
        out
    }

    /// Table of cost and CPU split: by host if the bed can distinguish hosts, else all together with each
    /// host's own threads.
    fn split(&self) -> String {
        let mut table = Table::new(&[
            "% of the CPUs",
            "cost",
            "user",
            "system",
            "softirq",
            "idle",
            "others",
            "threads' µs/KiB",
        ]);
        for cell in &self.summary.cells {
            let hosts = cell.hosts();
            let has = |&host: &HostName| {
                let of = Derived::of(host, Figure::UserRatio);
                cell.estimates.contains_key(&of)
            };
            let per_host = hosts.iter().any(has);
            let mut rows = Vec::new();
            for scope in scopes(&hosts) {
                if per_host && scope == Scope::All {
                    continue;
                }
                let of = |kind| Derived { kind, scope };
                let share = |kind| {
                    cell.estimates
                        .get(&of(kind))
                        .map_or(ABSENT.to_string(), show_percent)
                };
                let cost =
                    if cell.main.kind == Figure::CpuUsPerTransaction || cell.has_transactions() {
                        Figure::CpuUsPerTransaction
                    } else {
                        Figure::CpuUsPerKib
                    };
                let cost = shown(cell, of(cost));
                let threads = if per_host || cell.has_transactions() {
                    ABSENT.to_string()
                } else {
                    shown(cell, of(Figure::TaskUsPerKib))
                };
                let row = vec![
                    format!("  {}", labels::whose_cpus(cell, scope)),
                    cost,
                    share(Figure::UserRatio),
                    share(Figure::SystemRatio),
                    share(Figure::SoftirqRatio),
                    share(Figure::IdleRatio),
                    share(Figure::OthersRatio),
                    threads,
                ];
                if row[1..].iter().any(|shown| shown != ABSENT) {
                    rows.push(row);
                }
            }
            if !rows.is_empty() {
                table.heading(&cell.name);
                rows.into_iter().for_each(|row| table.row(row));
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out = self.heading("CPU time by host and kind (cost in µs/KiB or µs/transaction)");
        self.table(&table, &mut out);
        out
    }

    /// Table of instructions by context, and of the counts that identify the regime.
    fn instructions(&self, has_transactions: bool) -> String {
        let columns = labels::instructions(has_transactions);
        let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
        let mut table = Table::new(&[&["cell"], &titles[..]].concat());
        let cells = self.summary.cells.iter();
        let cells = cells.filter(|cell| cell.counts_instructions && cell.n > 0);
        for cell in cells.filter(|cell| cell.has_transactions() == has_transactions) {
            let medians = columns.map(|(_, of)| {
                let median = cell
                    .estimates
                    .get(&of)
                    .map(|estimate| show(estimate.median));
                median.unwrap_or(ABSENT.to_string())
            });
            table.row(std::iter::once(cell.name.clone()).chain(medians).collect());
        }
        if table.is_empty() {
            return String::new();
        }
        let unit = if has_transactions {
            "transaction"
        } else {
            "KiB"
        };
        let mut out = self.heading(&format!(
            "Instructions per {unit} by context and by host, and their regime (medians)"
        ));
        self.table(&table, &mut out);
        out
    }

    fn exact(&self) -> String {
        let header: Vec<&str> = labels::EXACT.iter().map(|(title, _)| *title).collect();
        let mut table = Table::new(&[&["% of the CPUs, by exact"], &header[..]].concat());
        for cell in self
            .summary
            .cells
            .iter()
            .filter(|cell| labels::has_exact(cell))
        {
            table.heading(&cell.name);
            for scope in scopes(&cell.hosts()) {
                let shown = labels::EXACT.iter().map(|&(_, kind)| {
                    let of = Derived { kind, scope };
                    let estimate = cell.estimates.get(&of);
                    match (estimate, kind.unit()) {
                        (Some(estimate), "ratio") => show_percent(estimate),
                        _ => shown(cell, of),
                    }
                });
                let row: Vec<String> =
                    std::iter::once(format!("  {}", labels::whose_cpus(cell, scope)))
                        .chain(shown)
                        .collect();
                if row[1..].iter().any(|shown| shown != ABSENT) {
                    table.row(row);
                }
            }
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out = self.heading("Exact CPU time by kind, and the error of other methods");
        self.table(&table, &mut out);
        for line in labels::methods(self.summary) {
            out += &wrap(&line, self.width, "  ");
            out.push('\n');
        }
        out
    }

    fn profiles(&self) -> String {
        let mut out = String::new();
        for group in self.summary.groups() {
            for &cell in &group.cells {
                for rows in profile::rows(&group, cell) {
                    let whose = format!("{}, {}", cell.name, rows.whose);
                    let unit = profile::unit(cell);
                    let mut table =
                        Table::new(&[&whose, "%", "with callees", "ms/s", unit, "ratio to first"]);
                    let functions = rows.functions.into_iter().take(FUNCTIONS);
                    for row in rows.layers.into_iter().chain(functions) {
                        table.row(vec![
                            profile::shortened(&row.name),
                            row.own,
                            row.inclusive,
                            row.ms_per_s,
                            row.us_per_unit,
                            row.ratio,
                        ]);
                    }
                    out.push('\n');
                    self.table(&table, &mut out);
                }
            }
        }
        if out.is_empty() {
            return out;
        }
        out.insert_str(
            0,
            &self.heading("CPU time by layer and by function (cost: with callees)"),
        );
        out + &self.lines(profile::notes(self.summary.cells.iter())) + &self.published_functions()
    }

    fn meter_costs(&self) -> String {
        let mut table = Table::new(&["cell", "meter", "× the cost without", "by", "n"]);
        for cost in &self.summary.meter_costs {
            table.row(vec![
                cost.cell.clone(),
                cost.meter_name().to_string(),
                cost.ratio
                    .map_or(ABSENT.to_string(), |ratio| show_estimate(&ratio, 1.0)),
                cost.of.name().to_string(),
                cost.ratio.map_or(0, |ratio| ratio.n).to_string(),
            ]);
        }
        if table.is_empty() {
            return String::new();
        }
        let mut out =
            self.heading("Cost of the meters themselves, from paired trials with and without");
        self.table(&table, &mut out);
        out
    }

    fn lines(&self, lines: Vec<String>) -> String {
        let mut out = String::new();
        for line in lines {
            let _ = writeln!(out, "{}", wrap(&line, self.width, "  "));
        }
        out
    }

    fn warnings(&self) -> String {
        let mut out = String::new();
        for warned in self.summary.warnings() {
            let line = format!("warning, {}", warned.sentence());
            let line = wrap(&line, self.width, "  ");
            let _ = writeln!(out, "{}", self.style.paint("33", &line));
        }
        out
    }
}
