//! Results by selector: NAME=value, CSV, columns under headings (netperf's `nettest_omni.c`,
//! `print_omni_keyword`, `print_omni_csv`, `print_omni_human`).

use std::fmt::Write;

use super::Report;
use super::selectors::Selector;
use super::value::Value;

/// Prints a line `NAME=value` for each selector that has a value.
pub fn keyval(report: &Report<'_>, blocks: &[Vec<Selector>]) -> String {
    let mut text = String::new();
    for selector in blocks.iter().flatten() {
        match selector.value(report) {
            Value::None => {}
            value => {
                let _ = writeln!(text, "{}={value}", selector.name());
            }
        }
    }
    text
}

/// Prints a line of headings, if wanted, and a line of values.
pub fn csv(report: &Report<'_>, blocks: &[Vec<Selector>]) -> String {
    let all = || blocks.iter().flatten();
    if all().next().is_none() {
        return String::new();
    }
    let join = |fields: Vec<String>| fields.join(",") + "\n";
    let mut text = String::new();
    if report.options.with_headers {
        let heading = |selector: &Selector| selector.heading().collect::<Vec<_>>().join(" ");
        text += &join(all().map(heading).collect());
    }
    text + &join(
        all()
            .map(|selector| selector.value(report).to_string())
            .collect(),
    )
}

/// Prints for each block headings of four lines, if wanted, and the values below.
pub fn human(report: &Report<'_>, blocks: &[Vec<Selector>]) -> String {
    let mut text = String::new();
    for (index, block) in blocks.iter().enumerate() {
        let values: Vec<String> = block
            .iter()
            .map(|selector| selector.value(report).to_string())
            .collect();
        let headings: Vec<Vec<&str>> = block
            .iter()
            .map(|selector| selector.heading().collect())
            .collect();
        let widths: Vec<usize> = headings
            .iter()
            .zip(&values)
            .map(|(heading, value)| {
                let heading = heading.iter().map(|line| line.len()).max().unwrap_or(0);
                heading.max(value.len() + 1)
            })
            .collect();
        let mut row = |cells: Vec<&str>| {
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(text, "{cell:<width$} ");
            }
            text.push('\n');
        };
        if index > 0 {
            row(Vec::new());
        }
        if report.options.with_headers {
            for line in 0..HEADING_LINES {
                row(headings
                    .iter()
                    .map(|heading| heading.get(line).copied().unwrap_or(""))
                    .collect());
            }
        }
        row(values.iter().map(String::as_str).collect());
    }
    text
}

/// Number of lines of a heading.
const HEADING_LINES: usize = 4;
