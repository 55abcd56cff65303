//! Manual pages in roff.

use std::path::Path;

use anyhow::Context;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{Page, pages};
use crate::reference;

/// Writes a manual page for each command.
pub fn write(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    for page in pages() {
        let name = format!("tcpcost {}", page.words)
            .trim_end()
            .replace(' ', "-");
        let path = directory.join(format!("{name}.1"));
        let text = render(page)?;
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Returns a manual page in roff.
fn render(page: Page) -> anyhow::Result<Vec<u8>> {
    let command = page
        .command
        .mut_args(|arg| match arg.get_long_help().map(ToString::to_string) {
            Some(help) => arg.long_help(help.replace('\n', "\n ")),
            None => arg,
        });
    let source = concat!("tcpcost ", env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    Man::new(command)
        .source(source)
        .manual("tcpcost")
        .render(&mut text)?;
    let mut text = keep_lines(&String::from_utf8(text)?).into_bytes();
    let mut roff = Roff::new();
    if let Some(usage) = page.usage {
        add_lines(&mut roff, "USAGE", &usage);
    }
    if let Some(notes) = page.notes {
        let title = if notes.starts_with("Example") {
            "EXAMPLES"
        } else {
            "NOTES"
        };
        add_lines(&mut roff, title, &notes);
    }
    add_rows(&mut roff, "EXIT STATUS", reference::exit_codes(&page.words));
    add_rows(&mut roff, "FILES", reference::files(&page.words));
    if !page.words.is_empty() {
        roff.control("SH", ["SEE ALSO"])
            .text([bold("tcpcost"), roman("(1)")]);
    }
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// Keeps lines of roff that begin with a blank as they are: lists in the help of options.
fn keep_lines(text: &str) -> String {
    let mut kept = String::new();
    let mut keeps = false;
    for line in text.lines() {
        if line.starts_with(' ') != keeps {
            keeps = !keeps;
            kept += if keeps { ".nf\n" } else { ".fi\n" };
        }
        kept += line;
        kept += "\n";
    }
    kept
}

/// Adds a section of lines that are kept as they are.
fn add_lines(roff: &mut Roff, title: &str, lines: &str) {
    roff.control("SH", [title]).control("nf", []);
    for line in lines.lines() {
        match line {
            "" => roff.control("sp", []),
            line => roff.text([roman(line)]),
        };
    }
    roff.control("fi", []);
}

/// Adds a section of terms and their meanings, if there are any.
fn add_rows<T: Into<String>>(roff: &mut Roff, title: &str, rows: Vec<(T, &str)>) {
    if !rows.is_empty() {
        roff.control("SH", [title]);
    }
    for (term, meaning) in rows {
        roff.control("TP", [])
            .text([bold(term)])
            .text([roman(meaning)]);
    }
}
