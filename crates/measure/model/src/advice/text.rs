//! Advice as text: the cost in a sentence, its terms, then ranked advice with the lines that do, undo and verify it.

use tcpcost_counts::table::{WIDTH, wrap, wrap_after};

use crate::advice::evaluate::{Advice, Advised, NotHere, Saving, percent};
use crate::advice::rule::{Rule, Verify};
use crate::explain::Explanation;
use crate::words::{digits, time};

/// Workload that is advised, with the names that stand in its lines.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Beginning of the first sentence, e.g. `nginx (2214), 10 s`.
    pub name: String,
    /// Options of `tcpcost stat` that name it, e.g. `--pid 2214`; empty for a command.
    pub target: String,
    /// Command that ran meanwhile, or the measured command; empty if unknown.
    pub load: String,
    /// Device that its packets pass; empty if unknown.
    pub device: String,
    /// Words before a command that must run in the workload's network namespace, with a space at the end;
    /// empty for this namespace.
    pub within: String,
}

/// Lines of a rule with the names of a subject.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Lines {
    /// Does it.
    #[serde(rename = "do")]
    pub act: String,
    /// Undoes it.
    pub undo: String,
    /// Compares before and after.
    pub verify: String,
}

impl Subject {
    /// Lines of a rule. Names that are not known stay as they are, in capitals.
    pub fn lines(&self, rule: &Rule) -> Lines {
        // Files of /sys are read only in this namespace.
        let is_file = rule.act.contains("/sys/");
        let is_command = rule.verify == Verify::Switch && rule.needs.who == "root" && !is_file;
        let within = if is_command { self.within.as_str() } else { "" };
        let named = |line: &str, with: &str| {
            let parts = line.split(" && ").map(|part| format!("{with}{part}"));
            replace(&parts.collect::<Vec<_>>().join(" && "), "DEV", &self.device)
        };
        let (act, undo) = (named(rule.act, within), named(rule.undo, within));
        let mut verify = match rule.verify {
            Verify::Loads => Rule::LOADS.to_string(),
            Verify::Switch => Rule::switch(&quoted(&undo), &quoted(&act)),
        };
        verify = match self.target.as_str() {
            "" if self.load.is_empty() => verify,
            "" => verify.replace("TARGET ", ""),
            target => verify.replace("TARGET", target),
        };
        verify = replace(&verify, "LOAD", &quoted(&self.load));
        if self.target.is_empty() {
            verify = replace(&verify, "OLD", &self.load);
        }
        Lines { act, undo, verify }
    }
}

/// Text within single quotes of a shell.
fn quoted(text: &str) -> String {
    text.replace('\'', "'\\''")
}

fn replace(line: &str, name: &str, by: &str) -> String {
    if by.is_empty() {
        line.to_string()
    } else {
        line.replace(name, by)
    }
}

/// Text that is printed besides the advice itself.
#[derive(Debug, Clone, Default)]
pub struct Remarks {
    /// Age, place and accuracy of the prices, or the reason for none and the remedy.
    pub prices: String,
    /// Other lines that a reader must know.
    pub notes: Vec<String>,
}

impl Advised {
    /// Advice as text; prose is within 100 columns, lines for a shell are whole.
    pub fn text(&self, subject: &Subject, remarks: &Remarks) -> String {
        let mut text = String::new();
        let mut paragraph = |words: &str| text += &(wrap(words, WIDTH, "") + "\n");
        match &self.explanation {
            Some(cost) => {
                paragraph(&cost.answer(&subject.name));
                paragraph(&remarks.prices);
                text += &(String::from("\n") + &wrap(&terms(cost), WIDTH, "  ") + "\n");
            }
            None => paragraph(&remarks.prices),
        }
        for (at, advice) in self.claims.iter().enumerate() {
            text += &claim(at + 1, advice, subject);
        }
        if self.claims.len() > 1 {
            text += "\nAfter 1 the shares of the others change: run advise again.\n";
        }
        if !self.worth_trying.is_empty() {
            text += "\nWorth trying, no number:\n";
        }
        for advice in &self.worth_trying {
            text += &worth_trying(advice, subject);
        }
        if !self.not_here.is_empty() {
            let all: Vec<String> = self.not_here.iter().map(not_here).collect();
            let all = format!("Not worth it here: {}.", all.join(", "));
            text += &(String::from("\n") + &wrap(&all, WIDTH, "  ") + "\n");
        }
        if self.is_empty() {
            text += "\nNo rule applies: nothing to advise.\n";
        }
        text.push('\n');
        for note in &remarks.notes {
            text += &(wrap(note, WIDTH, "  ") + "\n");
        }
        text + END
    }

    /// True if no rule has anything to say.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.worth_trying.is_empty() && self.not_here.is_empty()
    }
}

/// Last line of all advice.
const END: &str =
    "Nothing was changed. Savings are of CPU at this load, not of latency; they do not add up.\n";

/// Least share of a term that is printed.
const TERM_LEAST: f64 = 0.01;

fn terms(cost: &Explanation) -> String {
    let terms = cost.terms.iter().filter(|term| term.share >= TERM_LEAST);
    let terms: Vec<String> = terms
        .map(|term| {
            let mark = if term.is_outside {
                ", outside what was studied"
            } else {
                ""
            };
            format!(
                "{} {} ({}{mark})",
                term.cause.label(),
                time(term.ns),
                digits(term.count)
            )
        })
        .collect();
    format!("Of TCP's {}: {}.", time(cost.priced_ns), terms.join("; "))
}

/// A saving in words: `saves 40 % [32, 53]`.
pub fn saving_words(saving: &Saving, rule: &Rule) -> String {
    let of = |share: f64| format!("{:.0}", 100.0 * share);
    let interval = format!(
        "[{}, {}]",
        of(saving.interval.low),
        of(saving.interval.high)
    );
    let least = if rule.is_cautious { "at least " } else { "" };
    let more = if rule.saves_more { ", or more" } else { "" };
    format!("saves {least}{} {interval}{more}", percent(saving.share))
}

fn claim(number: usize, advice: &Advice, subject: &Subject) -> String {
    let rule = advice.rule;
    let saving = advice.saving.as_ref();
    let saving = saving.map_or(String::new(), |saving| saving_words(saving, rule));
    let mut text = format!("\n{number} {:<18} {saving}\n", rule.id);
    text += &prose("why", &why(advice));
    text += &details(rule, subject);
    text + &prose("limits", rule.limits)
}

fn worth_trying(advice: &Advice, subject: &Subject) -> String {
    let rule = advice.rule;
    let bound = advice
        .upper_bound
        .map(|bound| format!("at most {}", percent(bound)));
    let withheld = (!advice.withheld.is_empty()).then(|| format!("no claim: {}", advice.withheld));
    let said: Vec<String> = bound.into_iter().chain(withheld).collect();
    let head = format!("\n- {:<18} {}", rule.id, said.join("; "));
    let mut text = head.trim_end().to_string() + "\n";
    text += &prose("why", &why(advice));
    text += &prose("claimed", &format!("{} ({})", rule.claim, rule.source));
    text + &details(rule, subject)
}

fn why(advice: &Advice) -> String {
    format!("{}: {}", advice.rule.title, advice.evidence.join("; "))
}

/// Lines of a rule, and what it costs.
fn details(rule: &Rule, subject: &Subject) -> String {
    let lines = subject.lines(rule);
    let whole = [
        ("do", &lines.act),
        ("undo", &lines.undo),
        ("verify", &lines.verify),
    ];
    let whole = whole.map(|(name, line)| format!("  {name:<8}{line}\n"));
    whole.concat() + &prose("costs", rule.costs)
}

/// Wrapped row.
fn prose(name: &str, words: &str) -> String {
    let first = format!("  {name:<8}");
    wrap_after(&first, words, WIDTH, &" ".repeat(10)) + "\n"
}

fn not_here(of: &NotHere) -> String {
    let bound = of
        .upper_bound
        .map(|bound| format!("; at most {}", percent(bound)));
    let bound = bound.filter(|_| !of.reason.starts_with("it could save"));
    format!(
        "{} ({}{})",
        of.rule.id,
        of.reason,
        bound.unwrap_or_default()
    )
}
