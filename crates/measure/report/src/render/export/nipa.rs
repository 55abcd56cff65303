//! Result file for netdev's CI (NIPA, contest/remote/lib/fetcher.py): executor, branch, times, and
//! a list of tests, each `pass`, `fail` or `skip`. The tests are those of KTAP.
//!
//! The CI's executor must fill in branch and link: a run knows only its kernel's release, and has
//! no web address.

use serde::Serialize;

use super::ktap::{Result, tests};
use super::pretty;
use crate::summary::Summary;

#[derive(Serialize)]
struct Entry {
    executor: &'static str,
    branch: String,
    start: String,
    end: String,
    results: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    test: String,
    group: String,
    result: &'static str,
    link: String,
    comment: String,
}

/// NIPA result file of all runs.
pub fn nipa(summaries: &[Summary]) -> String {
    let times = summaries.iter().filter_map(|one| one.started.as_ref());
    let release = summaries
        .iter()
        .flat_map(|one| &one.machines.each)
        .find_map(|host| host.kernel.split(' ').next());
    let results = tests(summaries).into_iter().flatten().map(|test| Row {
        test: word(&test.name),
        group: "tcpcost".to_string(),
        result: match test.result {
            Result::Ok => "pass",
            Result::NotOk => "fail",
            Result::Skip(_) => "skip",
        },
        link: String::new(),
        comment: test.diagnostics.join("; "),
    });
    pretty(&Entry {
        executor: "tcpcost",
        branch: release.unwrap_or_default().to_string(),
        start: times
            .clone()
            .map(|(first, _)| first.clone())
            .min()
            .unwrap_or_default(),
        end: times
            .map(|(_, last)| last.clone())
            .max()
            .unwrap_or_default(),
        results: results.collect(),
    })
}

/// Test name in netdev's form: lower case, with dashes between words.
fn word(name: &str) -> String {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let parts = parts.filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests_of_names {
    use super::word;

    #[test]
    fn a_cells_name_becomes_a_word() {
        assert_eq!(
            word("cost-of-tcp: rr 1 B, TSO=on"),
            "cost-of-tcp-rr-1-b-tso-on"
        );
    }
}
