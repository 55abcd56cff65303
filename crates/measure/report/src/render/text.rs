//! The report as text for a terminal.

use tcpcost_counts::table::{self, Align, WIDTH, wrap};

use crate::sections::model::{Cell, Kind, Level, Prose, Row, Section, Table, Tone};
use crate::sections::sections;
use crate::summary::Summary;
use crate::words::findings::found;

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
        style: Style(style.colour),
        width: style.width.max(WIDTH_LEAST),
    };
    // Without a sentence, the tables are the answer.
    let level = match style.details || found(summary).is_empty() {
        true => Level::Details,
        false => Level::Answer,
    };
    let title = page.style.bold(&summary.study.title) + "\n";
    let sections = sections(summary, level);
    let sections = sections.iter().map(|section| page.section(section));
    let all: Vec<String> = std::iter::once(title).chain(sections).collect();
    all.join("\n")
}

/// Smallest width: less has no room for a name and a number.
const WIDTH_LEAST: usize = 60;

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

    fn bad(&self, text: &str) -> String {
        self.paint("31", text)
    }

    fn warning(&self, text: &str) -> String {
        self.paint("33", text)
    }
}

struct Page {
    style: Style,
    width: usize,
}

impl Page {
    fn section(&self, section: &Section<'_>) -> String {
        let mut parts = Vec::new();
        if !section.heading.is_empty() {
            parts.push(self.style.bold(&section.heading));
        }
        for (place, table) in section.tables.iter().enumerate() {
            if place > 0 {
                parts.push(String::new());
            }
            parts.extend(self.table(table));
        }
        parts.extend(section.prose.iter().map(|line| {
            match section.prose_form {
                Prose::Warnings => self
                    .style
                    .warning(&self.wrapped(&format!("warning, {line}"))),
                _ => self.wrapped(line),
            }
        }));
        parts.join("\n") + "\n"
    }

    fn table(&self, table: &Table) -> Vec<String> {
        let has_sentences = table.columns.iter().any(|one| one.kind == Kind::Sentence);
        match has_sentences {
            true => self.sentences(table),
            false => self.grid(table),
        }
    }

    /// Lines of a table of names and numbers.
    fn grid(&self, table: &Table) -> Vec<String> {
        let columns = table.columns.iter().map(|one| match one.kind {
            Kind::Number => (one.title.as_str(), Align::Right),
            Kind::Name | Kind::Sentence => (one.title.as_str(), Align::Left),
        });
        let mut grid = table::Table::aligned(&columns.collect::<Vec<_>>());
        let has_headings = table.rows.iter().any(Row::is_heading);
        let indent = if has_headings { "  " } else { "" };
        for row in &table.rows {
            let mut texts: Vec<String> = row.cells.iter().map(|cell| cell.text.clone()).collect();
            if row.is_heading() {
                grid.heading(&texts[0]);
            } else {
                texts[0] = format!("{indent}{}", shortened(&texts[0], table.name_max));
                grid.row(texts);
            }
        }
        let is_bad = |cell: &&Cell| cell.tone == Tone::Bad && !cell.text.is_empty();
        let verdicts = table.rows.iter().filter_map(|row| row.cells.last());
        let bad: Vec<&Cell> = verdicts.filter(is_bad).collect();
        let painted = |line: &String| {
            let found = bad
                .iter()
                .find_map(|cell| Some((line.strip_suffix(&cell.text)?, cell)));
            found.map_or(line.clone(), |(rest, cell)| {
                format!("{rest}{}", self.style.bad(&cell.text))
            })
        };
        let lines = grid.lines(self.width, |header| self.style.dim(header));
        lines.iter().map(painted).collect()
    }

    /// Rows of a table with long texts, each as a sentence.
    fn sentences(&self, table: &Table) -> Vec<String> {
        let rows = table.rows.iter().map(|row| {
            let texts: Vec<&str> = row.cells.iter().map(|cell| cell.text.as_str()).collect();
            let line = self.wrapped(&texts.join(": "));
            match (&row.cells[0], line.strip_prefix(texts[0])) {
                (first, Some(rest)) if first.tone == Tone::Bad => {
                    self.style.bad(&first.text) + rest
                }
                _ => line,
            }
        });
        rows.collect()
    }

    fn wrapped(&self, line: &str) -> String {
        wrap(line, self.width, "  ")
    }
}

/// A name of at most `limit` characters.
fn shortened(name: &str, limit: usize) -> String {
    match name.char_indices().nth(limit) {
        Some(_) => name.chars().take(limit - 1).chain(['…']).collect(),
        None => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn a_name_keeps_its_first_characters() {
        assert_eq!(shortened("a_name", 6), "a_name");
        assert_eq!(shortened("a_longer_name", 6), "a_lon…");
    }
}
