//! GitHub's Markdown, for a comment on a pull request: findings, thresholds, one table, and all else folded.

use std::fmt::Write;

use tcpcost_counts::printable;
use tcpcost_study::{Derived, Figure};

use crate::cell::CellSummary;
use crate::labels;
use crate::number::{show_estimate, unit_in_tables};
use crate::prose::found;
use crate::summary::Summary;
use crate::table::ABSENT;
use crate::text::{TextStyle, text};
use crate::trust::trust;
use crate::verdict::Verdict;

/// The runs, one below the other.
pub fn markdown(summaries: &[Summary]) -> String {
    let sections: Vec<String> = summaries.iter().map(section).collect();
    sections.join("\n")
}

fn section(summary: &Summary) -> String {
    let mut out = format!("### {}\n", escaped(&summary.study.title));
    let found = found(summary);
    if !found.is_empty() {
        out.push('\n');
    }
    for sentence in found {
        let _ = writeln!(out, "- {}", escaped(&sentence));
    }
    out += &thresholds(summary);
    out += &table(summary);
    let _ = writeln!(out, "\n{}", escaped(&trust(summary)));
    for line in labels::not_measured(summary) {
        let _ = writeln!(out, "\n{}", escaped(&line));
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

fn thresholds(summary: &Summary) -> String {
    let mut lines = String::new();
    for judged in &summary.judged {
        let verdict = match judged.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "**missed**",
            Verdict::Inconclusive => "**inconclusive**",
        };
        let cell = judged.cell.as_deref().map_or("no cell".to_string(), code);
        let found = judged.estimate.as_ref();
        let found = found.map_or("nothing".to_string(), |found| show_estimate(found, 1.0));
        let _ = writeln!(
            lines,
            "- {verdict}: {cell}: `{}` {}, found {}",
            judged.quantity,
            escaped(&judged.limits()),
            escaped(&found)
        );
    }
    match lines.is_empty() {
        true => lines,
        false => format!("\nThresholds:\n\n{lines}"),
    }
}

/// One table for all groups: a number has its unit beside it.
fn table(summary: &Summary) -> String {
    let mut rows = String::new();
    for group in summary.groups() {
        for &cell in &group.cells {
            let _ = writeln!(
                rows,
                "| {} | {} | {} | {} | {} |",
                code(&cell.name).replace('|', "\\|"),
                shown(cell, cell.main),
                escaped(&group.shown_ratio(cell)),
                work(cell),
                cell.n
            );
        }
    }
    format!("\n| cell | cost | ratio to first | work | trials |\n|:--|--:|--:|--:|--:|\n{rows}")
}

fn work(cell: &CellSummary) -> String {
    let of = match cell.has_transactions() {
        true => Figure::TransactionsPerS,
        false => Figure::Goodput,
    };
    shown(cell, Derived::total(of))
}

fn shown(cell: &CellSummary, of: Derived) -> String {
    let (unit, scale) = unit_in_tables(of);
    let estimate = cell.estimates.get(&of);
    estimate.map_or(ABSENT.to_string(), |estimate| {
        escaped(&format!("{} {unit}", show_estimate(estimate, scale)))
    })
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
