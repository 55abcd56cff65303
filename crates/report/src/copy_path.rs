//! Whether two cells copy payload as often: of those that do not, instructions tell nothing.
//!
//! Where instructions are counted a copied byte is an eighth of one, and on a machine with fast string operations hundreds of bytes are
//! one. What a copy costs is memory traffic, which no count of instructions has: by hand sendfile took 20 % more instructions than
//! write, and saves time. So there is no verdict between such cells, neither in a comparison nor in a sentence.

use std::collections::BTreeSet;

use tcpcost_study::{Derived, Figure, ReceiveWith, RelayMode, SendWith};

use crate::cell::CellSummary;
use crate::effects::differing;

/// The knob by which two cells copy otherwise: `client.send_with`.
pub(crate) fn differs<'a>(from: &'a CellSummary, to: &'a CellSummary) -> Option<&'a str> {
    let copies_otherwise = |name: &&str| {
        let of = |cell: &CellSummary| copies(name, &cell.knobs.value(name)?.to_string());
        of(from) != of(to)
    };
    differing(&from.knobs, &to.knobs).find(copies_otherwise)
}

/// Whether this quantity of these cells must not be held against each other.
pub(crate) fn refuses(from: &CellSummary, to: &CellSummary, of: Derived) -> bool {
    from.counts_instructions
        && to.counts_instructions
        && counts_work(of.kind)
        && differs(from, to).is_some()
}

/// Figures that are instructions, but for those that are copies alone.
fn counts_work(kind: Figure) -> bool {
    let name = kind.name();
    name.contains("instructions_per") && !name.starts_with("memory_")
}

/// How often a byte is copied by what a knob chooses; `None` of a knob that chooses no copies.
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
        "relay_mode" => RelayMode::from_word(word).map(|mode| match mode {
            RelayMode::Copy | RelayMode::IoUring => 2,
            RelayMode::User => 1,
            // `auto` splices where it can.
            RelayMode::Forward | RelayMode::Splice | RelayMode::Auto => 0,
        }),
        // Ours lends its memory to who reads, the kernel's copies in and out.
        "stack" => Some(u32::from(word == "kernel")),
        _ => None,
    }
}

/// A line of the report where cells are not held against each other for it.
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
            "No verdict by instructions between cells that differ in {}: they copy payload more or less often, and what a copy costs is not in a count of instructions.",
            knobs.join(", ")
        )
    })
}
