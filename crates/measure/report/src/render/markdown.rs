//! GitHub's Markdown, for a comment on a pull request: the gist of each run, and all tables folded.

use std::fmt::Write;

use tcpcost_counts::printable;

use crate::render::text::{TextStyle, text};
use crate::sections::model::{Cell, Kind, Level, Prose, Row, Section, Table, Tone};
use crate::sections::sections;
use crate::summary::Summary;

/// The runs, one below the other.
pub fn markdown(summaries: &[Summary]) -> String {
    let runs: Vec<String> = summaries.iter().map(run).collect();
    runs.join("\n")
}

fn run(summary: &Summary) -> String {
    let mut out = format!("### {}\n", escaped(&summary.study.title));
    for one in sections(summary, Level::Gist) {
        section(&one, &mut out);
    }
    let style = TextStyle {
        details: true,
        ..TextStyle::default()
    };
    let details = text(summary, style);
    let fence = fence(&details);
    let _ = write!(
        out,
        "\n<details>\n<summary>All tables</summary>\n\n{fence}text\n{details}{fence}\n\n</details>\n"
    );
    out
}

fn section(section: &Section<'_>, out: &mut String) {
    if !section.heading.is_empty() {
        let _ = writeln!(out, "\n**{}**", escaped(&section.heading));
    }
    for one in &section.tables {
        *out += &format!("\n{}", table(one));
    }
    let is_list = section.prose_form != Prose::Paragraphs;
    for (place, line) in section.prose.iter().enumerate() {
        let between = if place == 0 || !is_list { "\n" } else { "" };
        let mark = if is_list { "- " } else { "" };
        let _ = writeln!(out, "{between}{mark}{}", escaped(line));
    }
}

fn table(table: &Table) -> String {
    let titles = table.columns.iter().map(|column| escaped(&column.title));
    let alignments = table.columns.iter().map(|column| match column.kind {
        Kind::Number => "--:",
        Kind::Name | Kind::Sentence => ":--",
    });
    let width = table.columns.len();
    let rows = table.rows.iter().map(|row| line(row_texts(row, width)));
    let titles = line(titles.collect());
    let alignments = alignments.collect::<Vec<_>>().join("|");
    format!("{titles}|{alignments}|\n{}", rows.collect::<String>())
}

fn line(texts: Vec<String>) -> String {
    format!("| {} |\n", texts.join(" | "))
}

/// Texts of a row: the name as code, since cells are named by their settings.
fn row_texts(row: &Row, width: usize) -> Vec<String> {
    let (name, numbers) = row.cells.split_first().expect("each row has a name");
    let shown = |cell: &Cell| match cell.tone {
        Tone::Bad if !cell.text.is_empty() => format!("**{}**", escaped(&cell.text)),
        _ => escaped(&cell.text),
    };
    let mut texts = vec![code(&name.text).replace('|', "\\|")];
    texts.extend(numbers.iter().map(shown));
    texts.resize(width, String::new());
    texts
}

/// Text as inline code. Backquotes in it are replaced, so that nothing ends the code early.
fn code(text: &str) -> String {
    match text.trim() {
        "" => "` `".to_string(),
        _ => format!("`{}`", printable(text).replace('`', "'")),
    }
}

/// Plain text: without markup, formulas, links, or mentions of issues and users. GitHub looks for mentions after it
/// has removed escapes, so a space of no width ([`NOTHING`]) prevents them.
fn escaped(text: &str) -> String {
    let text = printable(text.trim());
    let mut out = String::new();
    let ends_in = |out: &str, word: &str| {
        let from = out.len().checked_sub(word.len());
        from.and_then(|from| out.get(from..))
            .is_some_and(|end| end.eq_ignore_ascii_case(word))
    };
    for (at, char) in text.char_indices() {
        match char {
            // A list, or a line under a heading.
            '+' | '-' | '=' if at == 0 => out.extend(['\\', char]),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' => out.extend(['\\', char]),
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '$' => out += "<span>$</span>",
            '#' => out.extend(["\\#", NOTHING]),
            '@' => out.extend(["@", NOTHING]),
            ':' if text[at..].starts_with("://") => out.extend([":", NOTHING]),
            '.' if ends_in(&out, "www") => out.extend([NOTHING, "."]),
            '-' if ends_in(&out, "gh") => out.extend(["-", NOTHING]),
            _ => out.push(char),
        }
    }
    out
}

/// A space of no width.
const NOTHING: &str = "&#8203;";

/// A fence that no line of the text ends.
fn fence(text: &str) -> String {
    let runs = text.split(|char| char != '`').map(str::len);
    "`".repeat(runs.max().unwrap_or(0).max(2) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup_and_nothing_ends_a_block() {
        let text = "a*b* [x](y) <script> @all #1 | `c`";
        let expected = "a\\*b\\* \\[x\\](y) &lt;script&gt; @&#8203;all \\#&#8203;1 \\| \\`c\\`";
        assert_eq!(escaped(text), expected);
        assert_eq!(
            escaped("- http://x www.x.org GH-1 $a$"),
            "\\- http:&#8203;//x www&#8203;.x.org GH-&#8203;1 <span>$</span>a<span>$</span>"
        );
        assert_eq!(escaped("a\n| b | ::error::"), "a␊\\| b \\| ∷error::");
        assert_eq!(code("a`b\n|"), "`a'b␊|`");
        assert_eq!(code(" "), "` `");
        assert_eq!(fence("no ticks"), "```");
        assert_eq!(fence("four ````\n"), "`````");
    }
}
