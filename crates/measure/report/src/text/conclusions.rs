//! The lower part of the text: published figures, openings of connections, findings, thresholds.

use std::fmt::Write;

use super::Page;
use crate::call_chains::table as profile;
use crate::held::Held;
use crate::number::{show, show_estimate, unit_in_tables};
use crate::prose::found;
use crate::published_table;
use crate::table::{ABSENT, Table};
use crate::verdict::Verdict;

impl Page<'_> {
    pub(super) fn published_functions(&self) -> String {
        let Some(published) = &self.summary.study.published_functions else {
            return String::new();
        };
        let title = format!(
            "Published by {}: {} {}, ratio to first",
            published.source, published.cell, published.host
        );
        let mut table = Table::new(&["function", "published", "ours", "our function"]);
        for row in profile::published(self.summary) {
            table.row(vec![
                row.theirs.to_string(),
                show(row.published),
                row.ours
                    .map_or(ABSENT.to_string(), |ours| show_estimate(&ours, 1.0)),
                row.function.to_string(),
            ]);
        }
        let mut out = format!("\n{}", self.heading(&title));
        self.table(&table, &mut out);
        out
    }

    pub(super) fn published(&self) -> String {
        let Some(published) = &self.summary.study.published else {
            return String::new();
        };
        let (unit, scale) = unit_in_tables(published.quantity);
        let mut out = self.heading(&format!("Compared with {} ({unit})", published.source));
        let mut table = Table::new(&[&published.knob, "published", "ours", "our cell"]);
        let mut series = None;
        for row in self.summary.published() {
            if series != Some(&row.series.name) && !row.series.name.is_empty() {
                table.heading(&row.series.name);
            }
            series = Some(&row.series.name);
            table.row(vec![
                format!("  {}", row.value),
                show(row.figure * scale),
                row.ours
                    .map_or(ABSENT.to_string(), |ours| show_estimate(ours, scale)),
                row.cell
                    .map_or(ABSENT.to_string(), |cell| cell.name.clone()),
            ]);
        }
        self.table(&table, &mut out);
        out
    }

    pub(super) fn openings(&self) -> String {
        let Some(openings) = &self.summary.openings else {
            return String::new();
        };
        let end = openings.captured_at;
        let mut out = self.heading(&format!(
            "A connection's first transactions, captured at the {end} (wire segments; | between transactions)"
        ));
        for bursts in [false, true] {
            let (title, published) = match bursts {
                false => ("of each pure ACK", &openings.pure_acks),
                true => ("of each data burst", &openings.data_bursts),
            };
            let mut table = Table::new(&[title, "most often", "in", "as published", "captures"]);
            if let (Some(source), Some(published)) = (&openings.source, published) {
                let absent = || ABSENT.to_string();
                table.row(vec![
                    source.clone(),
                    published.clone(),
                    absent(),
                    absent(),
                    absent(),
                ]);
            }
            for cell in &openings.cells {
                let told = if bursts {
                    &cell.data_bursts
                } else {
                    &cell.pure_acks
                };
                let as_published = told.as_published.map(|count| count.to_string());
                table.row(vec![
                    cell.cell.clone(),
                    told.sequence.clone(),
                    told.captures.to_string(),
                    as_published.unwrap_or(ABSENT.to_string()),
                    match cell.too_short {
                        0 => cell.captures.to_string(),
                        short => format!("{} ({short} too short)", cell.captures),
                    },
                ]);
            }
            self.table(&table, &mut out);
        }
        out
    }

    /// The first part: conclusions of the study, and effects of its knobs.
    pub(super) fn findings(&self) -> String {
        self.lines(found(self.summary))
    }

    pub(super) fn published_table(&self) -> String {
        let Some((published, rows)) = published_table::shown(self.summary) else {
            return String::new();
        };
        let mut out = self.heading(&format!("Compared with {}", published.source));
        let headings = published
            .columns
            .iter()
            .map(|(heading, _)| heading.as_str());
        let header: Vec<&str> = [""].into_iter().chain(headings).collect();
        let mut table = Table::new(&header);
        let scales = published
            .columns
            .iter()
            .map(|(_, of)| unit_in_tables(*of).1);
        let scales: Vec<f64> = scales.collect();
        for row in rows {
            let setting = published.knobs.iter().zip(row.setting);
            let setting: Vec<String> = setting
                .map(|(knob, value)| format!("{knob}={value}"))
                .collect();
            table.heading(&setting.join(" "));
            let theirs = row.published.iter().zip(&scales);
            let theirs = theirs.map(|(figure, scale)| show(figure * scale));
            table.row(
                ["  published".to_string()]
                    .into_iter()
                    .chain(theirs)
                    .collect(),
            );
            for ours in row.ours {
                let figures = ours.figures.iter().zip(&scales);
                let figures = figures.map(|(figure, scale)| {
                    figure.map_or(ABSENT.to_string(), |figure| show_estimate(figure, *scale))
                });
                let name = format!("  {}", ours.cell);
                table.row([name].into_iter().chain(figures).collect());
            }
        }
        self.table(&table, &mut out);
        out
    }

    /// Table of published statements, and whether they hold here.
    pub(super) fn statements(&self) -> String {
        let statements = &self.summary.statements;
        if statements.is_empty() {
            return String::new();
        }
        let mut out = self.heading("Published statements");
        for one in statements {
            let held = match one.held {
                Held::Fails => self.style.paint("31", "fails"),
                held => held.name().to_string(),
            };
            let stated = &one.statement;
            out += &self.lines(vec![format!("{held}: {} ({})", stated.text, stated.source)]);
        }
        out
    }

    pub(super) fn thresholds(&self) -> String {
        let judged = &self.summary.judged;
        if judged.is_empty() {
            return String::new();
        }
        let mut out = self.heading("Thresholds");
        for one in judged {
            let verdict = match one.verdict {
                Verdict::Missed => self.style.paint("31", "missed"),
                verdict => verdict.name().to_string(),
            };
            // Value in the unit of the limit, as in the study file.
            let found = one.estimate.map_or("no number".to_string(), |estimate| {
                show_estimate(&estimate, 1.0)
            });
            let cell = one.cell.as_deref().unwrap_or("no cell has these knobs");
            let _ = writeln!(
                out,
                "{verdict}: {} {}: {found} ({cell})",
                one.quantity,
                one.limits()
            );
        }
        out
    }
}
