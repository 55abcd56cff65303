//! The report as text for a terminal.

mod table;

use crate::sections::model::{Kind, Level, Prose, Section, Table, Tone};
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
            width: 100,
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
            false => table::lines(table, self.width, &self.style),
        }
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

/// Wraps words into lines of at most `width` characters and indents later lines. A longer word gets its own
/// line.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        let empty = line.trim().is_empty();
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
