//! Beginnings of connections in the captures of a study. For each transaction: the segments that the client's
//! pure ACKs covered, and the lengths of the server's bursts, next to a published capture.

use serde::Serialize;
use tcpcost_study::{Capture, HostName, PublishedOpening, Record, Study};

use crate::derive::cell::CellSummary;

/// All cells that have captures of requests and responses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Openings {
    /// Host of the captures: the server, which sends the responses.
    pub captured_at: HostName,
    /// Source of the published capture.
    pub source: Option<String>,
    /// Published pure ACKs, in the format of [`show_sequence`].
    pub pure_acks: Option<String>,
    /// Published bursts.
    pub data_bursts: Option<String>,
    /// Our cells.
    pub cells: Vec<CellOpening>,
    /// Sentence that compares our captures with the published one; `None` if there is none.
    pub sentence: Option<String>,
}

/// Captures of one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellOpening {
    /// Name of the cell.
    pub cell: String,
    /// Number of captures that are long enough.
    pub captures: usize,
    /// Number of captures that ended too early.
    pub too_short: usize,
    /// Wire segments that each of the client's pure ACKs covered.
    pub pure_acks: Frequent,
    /// Wire segments of each of the server's bursts.
    pub data_bursts: Frequent,
}

/// Most frequent sequence of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Frequent {
    /// The sequence; if several are equally frequent, the first one seen.
    pub sequence: String,
    /// Number of captures with this sequence.
    pub captures: usize,
    /// Number of captures with the published sequence; `None` if none is published.
    pub as_published: Option<usize>,
}

/// Number of transactions that are shown if nothing is published.
const TRANSACTIONS: usize = 4;

/// Openings of all captured records of these cells. `None` if there are none.
pub(crate) fn openings(
    study: &Study,
    cells: &[CellSummary],
    records: &[&Record],
) -> Option<Openings> {
    let end = HostName::SERVER;
    let published = study.published_opening.as_ref();
    let most = published.map_or(TRANSACTIONS, |published| published.pure_acks.len());
    let captures_of = |cell: &CellSummary| -> Vec<&Capture> {
        let of = |record: &&&Record| {
            let mut captured = study.cells.iter();
            captured.any(|one| {
                one.name == record.cell && one.captured.as_deref() == Some(cell.name.as_str())
            })
        };
        let captures = records.iter().filter(of);
        captures
            .filter_map(|record| record.hosts.get(&end)?.capture.as_deref())
            .filter(|capture| capture.opening.is_some())
            .collect()
    };
    let each = cells.iter();
    let found: Vec<CellOpening> = each
        .filter_map(|cell| opening(&cell.name, captures_of(cell), most, published))
        .collect();
    if found.is_empty() {
        return None;
    }
    let theirs = |published: &PublishedOpening| {
        let is_his = |one: &&CellOpening| {
            let mut cells = cells.iter();
            cells.any(|cell| cell.name == one.cell && cell.knobs.has(&published.matching))
        };
        let ours: Vec<&CellOpening> = found.iter().filter(is_his).collect();
        sentence(published, &ours)
    };
    Some(Openings {
        captured_at: end,
        source: published.map(|published| published.source.clone()),
        pure_acks: published.map(|published| show_sequence(&published.pure_acks)),
        data_bursts: published.map(|published| show_sequence(&published.data_bursts)),
        sentence: published.and_then(theirs),
        cells: found,
    })
}

/// Opening of one cell, from its captures. `None` without captures.
fn opening(
    cell: &str,
    mut captures: Vec<&Capture>,
    most: usize,
    published: Option<&PublishedOpening>,
) -> Option<CellOpening> {
    let all = captures.len();
    // A transaction is complete when the next one has begun.
    captures.retain(|capture| {
        let opening = capture.opening.as_ref();
        opening.is_some_and(|opening| opening.client.pure_acks.len() > most)
    });
    let openings = || {
        captures
            .iter()
            .filter_map(|capture| capture.opening.as_ref())
    };
    let acks: Vec<&[Vec<u64>]> = openings().map(|one| &one.client.pure_acks[..]).collect();
    let bursts: Vec<&[Vec<u64>]> = openings().map(|one| &one.server.data_bursts[..]).collect();
    (all > 0).then(|| CellOpening {
        cell: cell.to_string(),
        captures: captures.len(),
        too_short: all - captures.len(),
        pure_acks: frequent(&acks, most, published.map(|one| &one.pure_acks[..])),
        data_bursts: frequent(&bursts, most, published.map(|one| &one.data_bursts[..])),
    })
}

/// Most frequent sequence of the first `most` transactions.
fn frequent(captures: &[&[Vec<u64>]], most: usize, published: Option<&[Vec<u64>]>) -> Frequent {
    let begins: Vec<&[Vec<u64>]> = captures.iter().map(|whole| &whole[..most]).collect();
    let times = |one: &[Vec<u64>]| begins.iter().filter(|other| **other == one).count();
    let most_often = begins.iter().map(|one| times(one)).max().unwrap_or(0);
    let first = begins.iter().find(|one| times(one) == most_often);
    Frequent {
        sequence: first.map(|one| show_sequence(one)).unwrap_or_default(),
        captures: most_often,
        as_published: published.map(times),
    }
}

/// Text such as `1 2 3 4 | 5 6 | 7`, with a bar between transactions and a dash for an empty one.
pub(crate) fn show_sequence(lists: &[Vec<u64>]) -> String {
    let list = |list: &Vec<u64>| match &list[..] {
        [] => "–".to_string(),
        list => {
            let numbers: Vec<String> = list.iter().map(ToString::to_string).collect();
            numbers.join(" ")
        }
    };
    let lists: Vec<String> = lists.iter().map(list).collect();
    lists.join(" | ")
}

fn sentence(published: &PublishedOpening, ours: &[&CellOpening]) -> Option<String> {
    let of_cell = |one: &&CellOpening| {
        let all = one.captures;
        let acks = one.pure_acks.as_published?;
        let bursts = one.data_bursts.as_published?;
        Some(format!(
            "in {acks} of {all} captures of \"{}\" the pure ACKs were these, in {bursts} of {all} the bursts",
            one.cell
        ))
    };
    let cells: Vec<String> = ours.iter().filter_map(of_cell).collect();
    (!cells.is_empty()).then(|| {
        format!(
            "{}, from the connection's first transaction on: pure ACKs of {} segments, data bursts of {}; {}.",
            published.source,
            show_sequence(&published.pure_acks),
            show_sequence(&published.data_bursts),
            cells.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_sequence_is_told_and_how_often_it_is_the_published_one() {
        let (theirs, other) = (vec![vec![1, 2], vec![3]], vec![vec![1, 2], vec![]]);
        let longer = vec![vec![1, 2], vec![3], vec![9]];
        let captures: Vec<&[Vec<u64>]> = vec![&other, &theirs, &longer];
        let all = frequent(&captures, 2, Some(&theirs));
        assert_eq!(all.sequence, "1 2 | 3");
        assert_eq!((all.captures, all.as_published), (2, Some(2)));
        let none = frequent(&captures[..1], 2, Some(&theirs));
        assert_eq!(none.sequence, "1 2 | –");
        assert_eq!((none.captures, none.as_published), (1, Some(0)));
        assert_eq!(frequent(&captures, 1, None).captures, 3);
        assert_eq!(frequent(&[], 2, Some(&theirs)).as_published, Some(0));
    }
}
