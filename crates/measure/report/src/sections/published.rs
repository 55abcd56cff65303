//! Published figures, tables and statements next to our results, and thresholds.

use super::model::{Cell, Column, Level, Section, Table, Tone};
use super::numbers::estimate;
use crate::derive::number::{ABSENT, show, show_estimate};
use crate::judge::held::Held;
use crate::judge::thresholds::Verdict;
use crate::summary::Summary;
use crate::summary::groups::PublishedComparison;
use crate::summary::published_functions::{self, PublishedRatio};
use crate::summary::published_table;
use crate::words::findings::sentence_of;
use crate::words::labels;

/// Published figures by the value of a knob, and ours. Points of a curve that none of our cells has are
/// left out if others have one: a quick run has three of thirty. The page's chart and JSON have all.
pub(super) fn figures(summary: &Summary) -> Option<Section<'_>> {
    let published = summary.study.published.as_ref()?;
    let (unit, scale) = published.quantity.kind.shown_unit();
    let mut table = Table::new([
        Column::name(published.knob.as_str()),
        Column::number("published"),
        Column::number("ours"),
        Column::name("our cell"),
    ]);
    let mut series = "";
    let rows = summary.published();
    let is_shown = |row: &&PublishedComparison<'_>| {
        let mut of_series = rows
            .iter()
            .filter(|one| std::ptr::eq(one.series, row.series));
        row.cell.is_some() || of_series.all(|one| one.cell.is_none())
    };
    for row in rows.iter().filter(is_shown) {
        if series != row.series.name {
            series = &row.series.name;
            table.heading(series);
        }
        table.row(vec![
            row.value.to_string().into(),
            show(row.figure * scale).into(),
            estimate(row.ours, scale).into(),
            row.cell.map_or(ABSENT, |cell| &cell.name).into(),
        ]);
    }
    let quantity = labels::quantity(published.quantity);
    let heading = format!("Compared with {}: {quantity}, {unit}", published.source);
    Some(Section::new(Level::Answer, heading).table(table))
}

/// A published table, with our cells of each row's setting.
pub(super) fn table(summary: &Summary) -> Option<Section<'_>> {
    let (published, rows) = published_table::rows(summary)?;
    let columns = published
        .columns
        .iter()
        .map(|(title, of)| Column::figure(title.as_str(), *of));
    let mut table = Table::new([Column::name("")].into_iter().chain(columns));
    let scales: Vec<f64> = published
        .columns
        .iter()
        .map(|(_, of)| of.kind.shown_unit().1)
        .collect();
    // A quick run lacks some cells.
    for row in rows.iter().filter(|row| !row.ours.is_empty()) {
        let setting = published.knobs.iter().zip(row.setting);
        let setting: Vec<String> = setting
            .map(|(knob, value)| format!("{knob}={value}"))
            .collect();
        table.heading(setting.join(" "));
        let theirs = row.published.iter().zip(&scales);
        let theirs = theirs.map(|(figure, scale)| show(figure * scale));
        table.numbers(Level::Gist, "published", theirs);
        for ours in &row.ours {
            let figures = ours.figures.iter().zip(&scales);
            let figures = figures.map(|(figure, scale)| Cell::from(estimate(*figure, *scale)));
            table.row([ours.cell.into()].into_iter().chain(figures).collect());
        }
    }
    let heading = format!("Compared with {}", published.source);
    Some(Section::new(Level::Answer, heading).table(table))
}

/// Published ratios of functions, and ours.
pub(super) fn functions(summary: &Summary) -> Option<Section<'_>> {
    let published = summary.study.published_functions.as_ref()?;
    let mut table = Table::new([
        Column::name("function"),
        Column::number("published"),
        Column::number("ours"),
        Column::name("our function"),
    ]);
    let rows = published_functions::ratios(&summary.study, &summary.cells);
    for row in rows {
        table.row(vec![
            row.of.theirs.as_str().into(),
            show(row.of.published).into(),
            estimate(row.ours.as_ref(), 1.0).into(),
            row.of.ours.as_str().into(),
        ]);
    }
    let heading = format!(
        "Published by {}: {} {}, ratio to {}",
        published.source,
        published.cell,
        published.host,
        published.first.as_deref().unwrap_or("first")
    );
    Some(Section::new(Level::Gist, heading).table(table))
}

/// Published statements, and whether they hold here.
pub(super) fn statements(summary: &Summary) -> Section<'_> {
    let mut table = Table::new([
        Column::name("here"),
        Column::sentence("statement"),
        Column::sentence("tested by").at(Level::Page),
    ]);
    let functions = published_functions::ratios(&summary.study, &summary.cells);
    for one in &summary.statements {
        let tone = match one.held {
            Held::Holds => Tone::Good,
            Held::Fails => Tone::Bad,
            Held::Undecided | Held::NotTested => Tone::Plain,
        };
        let stated = &one.statement;
        let tests = one.findings.iter();
        let tests = tests.map(|&index| sentence_of(summary, index));
        let is_of_it =
            |row: &&PublishedRatio<'_>| row.tests().is_some_and(|(id, _)| id == stated.id);
        let of_functions = functions
            .iter()
            .filter(is_of_it)
            .map(PublishedRatio::sentence);
        let tests: Vec<String> = tests.chain(of_functions).collect();
        let by = match one.by_instructions {
            true => ", by instructions",
            false => "",
        };
        table.row(vec![
            Cell::toned(format!("{}{by}", one.held.name()), tone),
            format!("{} ({})", stated.text, stated.source).into(),
            tests.join(" ").into(),
        ]);
    }
    let is_cut = summary
        .statements
        .iter()
        .any(|one| one.held == Held::NotTested);
    let note = "not tested: --quick leaves out cells that the test needs; the study without --quick has them.";
    Section::new(Level::Answer, "Published statements")
        .table(table)
        .notes(is_cut.then(|| note.to_string()))
}

/// Thresholds, and whether they are met.
pub(super) fn thresholds(summary: &Summary) -> Section<'_> {
    let mut table = Table::new([
        Column::name("cell"),
        Column::name("quantity"),
        Column::name("limit"),
        Column::number("found"),
        Column::name("verdict"),
    ]);
    for one in &summary.judged {
        let tone = match one.verdict {
            Verdict::Met => Tone::Good,
            Verdict::Missed => Tone::Bad,
            Verdict::Inconclusive => Tone::Plain,
        };
        // Value in the unit of the limit, as in the study file.
        let found = one.estimate.map(|found| show_estimate(&found, 1.0));
        table.row(vec![
            one.cell
                .as_deref()
                .unwrap_or("no cell has these knobs")
                .into(),
            one.quantity.to_string().into(),
            one.limits().into(),
            found.unwrap_or("no number".to_string()).into(),
            Cell::toned(one.verdict.name(), tone),
        ]);
    }
    Section::new(Level::Gist, "Thresholds").table(table)
}
