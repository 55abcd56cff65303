//! Check that two cells copy payload equally often. If not, instruction counts cannot compare them.
//!
//! A copied byte costs an eighth of an instruction, or hundreds of bytes cost one on a machine with
//! fast string operations. The cost of a copy is memory traffic, which an instruction count does
//! not show: in a manual test sendfile took 20 % more instructions than write, and yet saves time.
//! So there is no verdict between such cells, neither in a comparison nor in a sentence.

use std::collections::BTreeSet;

use tcpcost_study::{Derived, Figure, ReceiveWith, RelayMode, SendWith};

use crate::derive::cell::{CellSummary, differing};

/// Name of a knob by which two cells copy a different number of times, such as `client.send_with`.
pub(crate) fn differs<'a>(from: &'a CellSummary, to: &'a CellSummary) -> Option<&'a str> {
    let copies_otherwise = |name: &&str| {
        let of = |cell: &CellSummary| copies(name, &cell.knobs.value(name)?.to_string());
        of(from) != of(to)
    };
    differing(&from.knobs, &to.knobs).find(copies_otherwise)
}

/// True if this quantity of these two cells must not be compared.
pub(crate) fn refuses(from: &CellSummary, to: &CellSummary, of: Derived) -> bool {
    from.counts_instructions
        && to.counts_instructions
        && counts_work(of.kind)
        && differs(from, to).is_some()
}

/// True if the figure counts instructions of all work. Those of memory copies alone do not count.
fn counts_work(kind: Figure) -> bool {
    let name = kind.name();
    name.contains("instructions_per") && !name.starts_with("memory_")
}

/// Number of times that a byte is copied with this value of a knob. `None` if the knob does not
/// decide this.
fn copies(name: &str, word: &str) -> Option<u32> {
    match name.rsplit('.').next()? {
        "send_with" => SendWith::from_word(word).map(|with| match with {
            SendWith::Write | SendWith::Send | SendWith::MmapSend | SendWith::UringSend => 1,
            SendWith::ReadWrite | SendWith::ReadSend => 2,
            SendWith::Sendfile
            | SendWith::SendfileMemfd
            | SendWith::Splice
            | SendWith::Zerocopy
            | SendWith::MmapZerocopy
            | SendWith::UringSendZc
            | SendWith::UringSplice => 0,
        }),
        "receive_with" => ReceiveWith::from_word(word).map(|with| match with {
            ReceiveWith::Read => 1,
            ReceiveWith::RecvTrunc | ReceiveWith::Splice | ReceiveWith::Zerocopy => 0,
        }),
        // `forward` copies nothing.
        "relay_mode" => Some(RelayMode::from_word(word).map_or(0, |mode| mode.row().copies)),
        // The user-space stack lends its memory to the reader; the kernel's stack copies in and
        // out.
        "stack" => Some(u32::from(word == "kernel")),
        _ => None,
    }
}

/// Note that lists the knobs because of which cells are not compared. `None` if there are none.
pub(crate) fn note(cells: &[CellSummary]) -> Option<String> {
    let counted: Vec<&CellSummary> = cells
        .iter()
        .filter(|cell| cell.counts_instructions && cell.n > 0)
        .collect();
    let pairs = counted.iter().enumerate();
    let pairs = pairs.flat_map(|(at, one)| counted[at + 1..].iter().map(move |other| (one, other)));
    let knobs: BTreeSet<&str> = pairs
        .filter(|(one, other)| one.main == other.main)
        .filter_map(|(one, other)| differs(one, other))
        .collect();
    let knobs: Vec<&str> = knobs.into_iter().collect();
    (!knobs.is_empty()).then(|| {
        format!(
            "No verdict by instructions between cells that differ in {}: they copy payload more or less often, and an instruction count does not show the cost of a copy.",
            knobs.join(", ")
        )
    })
}
