//! Results, reasons to trust them or not, and the way they were measured.

use super::model::{Column, Level, Prose, Section, Table};
use super::numbers::number;
use crate::derive::facts::facts;
use crate::derive::number::show;
use crate::summary::Summary;
use crate::words::findings::found;
use crate::words::labels;
use crate::words::trust::trust;

/// Sentences of all findings.
pub(super) fn findings(summary: &Summary) -> Section<'_> {
    Section::new(Level::Gist, "").prose(Prose::Findings, found(summary))
}

/// Reasons not to trust the run.
pub(super) fn quiet_or_not(summary: &Summary) -> Section<'_> {
    Section::new(Level::Gist, "").prose(Prose::Paragraphs, [trust(summary)])
}

/// Machine, bed and method.
pub(super) fn head(summary: &Summary) -> Section<'_> {
    Section::new(Level::Answer, "").prose(Prose::Facts, labels::head(summary))
}

/// Trials without numbers.
pub(super) fn not_measured(summary: &Summary) -> Section<'_> {
    Section::new(Level::Gist, "Not measured").notes(labels::not_measured(summary))
}

/// Notes that are needed to read the answer.
pub(super) fn notes(summary: &Summary) -> Section<'_> {
    let notes = labels::notes(summary).into_iter();
    Section::new(Level::Answer, "").notes(notes.chain(labels::not_clean(summary)))
}

/// Warnings of all trials, by code.
pub(super) fn warnings(summary: &Summary) -> Section<'_> {
    let warnings = summary.warnings();
    let sentences = warnings.iter().map(|warned| warned.sentence());
    Section::new(Level::Answer, "").prose(Prose::Warnings, sentences)
}

/// The study's own description.
pub(super) fn about(summary: &Summary) -> Section<'_> {
    let paragraphs = summary.study.about.split("\n\n").map(str::trim);
    let paragraphs = paragraphs.filter(|paragraph| !paragraph.is_empty());
    Section::new(Level::Page, "About this study")
        .prose(Prose::Paragraphs, paragraphs.map(str::to_string))
}

/// Notes on the loads of the cells, and segmentation and buffers as read back.
pub(super) fn conditions(summary: &Summary) -> Section<'_> {
    let lines = labels::loads(summary).into_iter();
    let lines = lines
        .chain(labels::regimes(summary))
        .chain(labels::buffers(summary))
        .chain(labels::cross_check(summary));
    Section::new(Level::Details, "").notes(lines)
}

/// Machines, and the settings of each host's ports as read back.
pub(super) fn environment(summary: &Summary) -> Vec<Section<'_>> {
    let mut all = Vec::new();
    for machine in &summary.machines.each {
        let table = key_values(&facts(machine));
        all.push(Section::new(Level::Page, "The machine").table(table));
    }
    for host in summary.hosts_of_cells() {
        for (cells, environment) in summary.environments(host) {
            let which = match cells.len() == summary.cells.len() {
                true => "all cells".to_string(),
                false => cells.join("; "),
            };
            let heading = format!("The {host} as read back: {which}");
            let table = key_values(&facts(environment));
            all.push(Section::new(Level::Page, heading).table(table).folded());
        }
    }
    all
}

fn key_values(facts: &[(String, String)]) -> Table {
    let mut table = Table::new([Column::name("setting"), Column::sentence("value")]);
    for (key, value) in facts {
        table.row(vec![key.as_str().into(), value.as_str().into()]);
    }
    table
}

/// Every estimate of every cell.
pub(super) fn everything(summary: &Summary) -> Vec<Section<'_>> {
    let of_cell = |cell: &crate::CellSummary| {
        let mut table = Table::new([
            Column::name("quantity"),
            Column::number("median"),
            Column::number("from"),
            Column::number("to"),
            Column::name("unit"),
            Column::number("n"),
            Column::sentence("definition"),
        ]);
        for (of, found) in &cell.estimates {
            table.row(vec![
                of.to_string().into(),
                show(found.median).into(),
                number(found.lo).into(),
                number(found.hi).into(),
                of.kind.unit().into(),
                found.n.to_string().into(),
                of.kind.definition().into(),
            ]);
        }
        let (name, n, load) = (&cell.name, cell.n, cell.load.name());
        let heading = format!("Every quantity of {name} ({n} trials, {load})");
        Section::new(Level::Page, heading)
            .table(table)
            .notes([cell.knobs.to_string()])
            .folded()
    };
    summary.cells.iter().map(of_cell).collect()
}
