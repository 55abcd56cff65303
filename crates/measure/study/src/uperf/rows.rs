//! Words of uperf's language, one row each: honoured, without effect, or refused. The reader
//! refuses a word without a row, and docs/fronts.md contains the table.

use super::error::ProfileError;
use tcpcost_knobs::nearest;

/// Handling of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UperfHandling {
    /// Honoured: it acts as in uperf, except for differences that the row describes.
    Honoured,
    /// Without effect: it is read and changes nothing; the row has the reason.
    NoEffect,
    /// Refused: it ends the conversion with an error.
    Refused,
}

/// Kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordKind {
    Element,
    Attribute(&'static str),
    Flowop,
    Option,
    Protocol,
}

/// Word of the language.
#[derive(Debug, Clone, Copy)]
pub struct UperfRow {
    pub(super) kind: WordKind,
    /// Name of the word.
    pub name: &'static str,
    /// Handling of the word.
    pub handling: UperfHandling,
    /// Meaning of the word in a study, or the reason why it has none.
    pub here: &'static str,
}

impl UperfRow {
    /// Kind of the word as text: `option`, `attribute of group`.
    pub fn kind(&self) -> String {
        match self.kind {
            WordKind::Element => "element".to_string(),
            WordKind::Attribute(of) => format!("attribute of {of}"),
            WordKind::Flowop => "flowop".to_string(),
            WordKind::Option => "option".to_string(),
            WordKind::Protocol => "protocol".to_string(),
        }
    }
}

/// Row of a word, in upper or lower case. The error is for an unknown or a refused word: it has
/// the place `line` and the name `shown`.
pub(super) fn find(
    kind: WordKind,
    name: &str,
    line: usize,
    shown: &str,
) -> Result<&'static UperfRow, ProfileError> {
    let wrong = |what: String| Err(ProfileError::new(line, shown, what));
    let lower = name.to_ascii_lowercase();
    let here = ROWS.iter().filter(|row| row.kind == kind);
    if let Some(row) = here.clone().find(|row| row.name == lower) {
        return match row.handling {
            UperfHandling::Refused => wrong(row.here.to_string()),
            _ => Ok(row),
        };
    }
    let what = match kind {
        WordKind::Option if lower.starts_with("sctp_") => return wrong(SCTP.to_string()),
        WordKind::Element => "no such element of a profile".to_string(),
        WordKind::Attribute(of) => format!("no such attribute of {of}"),
        WordKind::Flowop => "no such flowop".to_string(),
        WordKind::Option => "no such option".to_string(),
        WordKind::Protocol => "no such protocol: there is tcp".to_string(),
    };
    wrong(match nearest(&lower, here.map(|row| row.name)) {
        Some(near) => format!("{what}; nearest is \"{near}\""),
        None => what,
    })
}

/// Error for the name of an element that uperf has not.
pub(super) fn no_element(line: usize, name: &str) -> ProfileError {
    match find(WordKind::Element, name, line, name) {
        Err(error) => error,
        Ok(_) => ProfileError::new(line, name, "no such element of a profile"),
    }
}

/// Returns the element that an attribute in a tag of `inside` belongs to: that element, if it has
/// such an attribute, else the nearest one around it, as in uperf. `None` if no such element has it.
pub(super) fn owner(name: &str, inside: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let mut around = ["flowop", "transaction", "group", "profile"].into_iter();
    around
        .by_ref()
        .skip_while(|element| *element != inside)
        .find(|element| {
            let kind = WordKind::Attribute(element);
            ROWS.iter().any(|row| row.kind == kind && row.name == lower)
        })
}

/// Renders the rows as a Markdown table, which `docs/fronts.md` contains; a test compares them.
pub fn uperf_table() -> String {
    let mut table = String::from("| word | is | here |\n|---|---|---|\n");
    for row in ROWS {
        let handling = match row.handling {
            UperfHandling::Honoured => "",
            UperfHandling::NoEffect => "no effect: ",
            UperfHandling::Refused => "**refused**: ",
        };
        table += &format!(
            "| `{}` | {} | {handling}{} |\n",
            row.name,
            row.kind(),
            row.here
        );
    }
    table
}

/// Rows of all words.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static UperfRow> {
    ROWS.iter()
}

const SCTP: &str = "belongs to SCTP, and tcpcost measures TCP";

const fn row(
    handling: UperfHandling,
    kind: WordKind,
    name: &'static str,
    here: &'static str,
) -> UperfRow {
    UperfRow {
        kind,
        name,
        handling,
        here,
    }
}

const fn honoured(kind: WordKind, name: &'static str, here: &'static str) -> UperfRow {
    row(UperfHandling::Honoured, kind, name, here)
}

const fn no_effect(kind: WordKind, name: &'static str, here: &'static str) -> UperfRow {
    row(UperfHandling::NoEffect, kind, name, here)
}

const fn refused(kind: WordKind, name: &'static str, here: &'static str) -> UperfRow {
    row(UperfHandling::Refused, kind, name, here)
}

use WordKind::{Attribute, Element, Flowop, Option as Opt, Protocol};

const ROWS: &[UperfRow] = &[
    honoured(Element, "profile", "the study"),
    honoured(
        Element,
        "group",
        "`[[group]]`; `[workload]` where there is but one",
    ),
    honoured(
        Element,
        "transaction",
        "what is done once before the traffic, or a loop of the program",
    ),
    honoured(Element, "flowop", "an operation"),
    honoured(Attribute("profile"), "name", "the title"),
    honoured(
        Attribute("group"),
        "nthreads",
        "`flows`: connections, each with a thread of its own unless `--set io=epoll`",
    ),
    honoured(
        Attribute("group"),
        "nprocs",
        "as `nthreads`: threads, no processes; what processes cost more (page tables, their switches) is not measured",
    ),
    honoured(
        Attribute("group"),
        "name",
        "the group's name: its first 12 small letters, digits and `-`",
    ),
    honoured(
        Attribute("transaction"),
        "iterations",
        "a loop. A profile without `duration` is not over when it is done: it goes on for the measured interval",
    ),
    honoured(
        Attribute("transaction"),
        "duration",
        "the measured interval; one for all groups. The loop has begun before it (`warm_up`) and ends after it",
    ),
    honoured(
        Attribute("transaction"),
        "rate",
        "`at_rate`, passes per second of each thread; also with `iterations`, as uperf's manual says and its source does not",
    ),
    honoured(Attribute("flowop"), "type", "which flowop"),
    honoured(
        Attribute("flowop"),
        "options",
        "its options, apart by spaces or lines",
    ),
    honoured(
        Flowop,
        "connect",
        "`connect`, done before the traffic where a transaction of its own does it once",
    ),
    honoured(
        Flowop,
        "accept",
        "`accept`: the profile's side is then the bed's server, and its client connects",
    ),
    honoured(
        Flowop,
        "disconnect",
        "`close`. The listening side closes first; in uperf both do at the same time. At the end of a profile it is the trial's end",
    ),
    honoured(
        Flowop,
        "read",
        "`receive`, by recv(2), until the message is whole",
    ),
    honoured(Flowop, "recv", "as `read`"),
    honoured(Flowop, "write", "`send`, by send(2), a call for a message"),
    honoured(Flowop, "send", "as `write`"),
    honoured(
        Flowop,
        "sendfile",
        "`sendfile` out of files of tcpcost's own, as long as those of `dir` are in the mean; by epoll, as threads that block have no sendfile",
    ),
    honoured(
        Flowop,
        "sendfilev",
        "`nfiles` times `sendfile`; Linux has no sendfilev(3EXT), and uperf does nothing there",
    ),
    honoured(
        Flowop,
        "think",
        "`think` where it is `busy`, else `sleep`; at both ends, as in uperf",
    ),
    honoured(Flowop, "nop", "`nop`"),
    refused(
        Flowop,
        "wait",
        "belongs to asynchronous protocols, which uperf itself no longer has",
    ),
    honoured(
        Opt,
        "size",
        "`64k` is 65536 bytes. `rand(a,b)` is drawn anew for each message, the same at both ends; uperf's receiver takes what one read gives",
    ),
    honoured(
        Opt,
        "rsize",
        "`read_size`: how much a read of either side may take",
    ),
    honoured(
        Opt,
        "count",
        "`count`: its time is that of each, where uperf's is that of all",
    ),
    honoured(
        Opt,
        "conn",
        "`conn`: in the order in which they are opened, 1 first; opened once",
    ),
    honoured(
        Opt,
        "remotehost",
        "a host of the bed by its name or address, or `localhost`",
    ),
    no_effect(Opt, "localhost", "uperf reads it for RDS alone"),
    no_effect(Opt, "port", "the kernel chooses the ports"),
    honoured(Opt, "protocol", "`tcp`"),
    honoured(
        Opt,
        "wndsz",
        "`send_buffer` and `receive_buffer`; the same in all groups",
    ),
    honoured(Opt, "tcp_nodelay", "`nodelay`; the same in all groups"),
    honoured(
        Opt,
        "cc",
        "`congestion_control`; the same in all groups. Without it: reno, as in all studies",
    ),
    honoured(
        Opt,
        "duration",
        "of `think`, at most an hour; of other flowops uperf's source ignores it, and so does this",
    ),
    honoured(Opt, "busy", "`think` keeps the CPU busy"),
    honoured(Opt, "idle", "`think` sleeps, as it does without either"),
    honoured(
        Opt,
        "canfail",
        "only for connections that come and go: a failed one is counted, and the program begins again. On connections that stay open the program cannot continue after a failure, and none happens in a bed",
    ),
    honoured(Opt, "nfiles", "how many files a sendfilev sends"),
    honoured(
        Opt,
        "dir",
        "the folder whose files are as long as those that are sent",
    ),
    no_effect(
        Opt,
        "non_blocking",
        "uperf's TCP does not read it; event loops are `--set io=epoll`",
    ),
    no_effect(
        Opt,
        "timeout",
        "a read waits until the message is whole; its percentiles tell how long",
    ),
    no_effect(Opt, "poll_timeout", "the manual's name of `timeout`"),
    no_effect(Opt, "repeat", "uperf reads it for UDP and SCTP alone"),
    no_effect(Opt, "batch_size", "uperf reads it for UDP and SCTP alone"),
    no_effect(
        Opt,
        "stack",
        "only on FreeBSD; uperf on Linux warns and continues",
    ),
    no_effect(
        Opt,
        "bblog",
        "only on FreeBSD; uperf on Linux warns and continues",
    ),
    refused(
        Opt,
        "encaps",
        "TCP in UDP exists only on FreeBSD; uperf's connect fails on Linux",
    ),
    refused(
        Opt,
        "engine",
        "belongs to TLS; for the kernel's part of TLS set ktls in a study",
    ),
    refused(
        Opt,
        "cipher",
        "belongs to TLS; for the kernel's part of TLS set ktls in a study",
    ),
    refused(
        Opt,
        "method",
        "belongs to TLS; for the kernel's part of TLS set ktls in a study",
    ),
    refused(Opt, "sctp_unordered", SCTP),
    refused(Opt, "sctp_nodelay", SCTP),
    refused(Opt, "async", "belongs to uDAPL, and tcpcost measures TCP"),
    refused(Opt, "subtype", "belongs to uDAPL, and tcpcost measures TCP"),
    refused(
        Opt,
        "waittype",
        "belongs to uDAPL, and tcpcost measures TCP",
    ),
    refused(Opt, "waitfor", "belongs to uDAPL, and tcpcost measures TCP"),
    honoured(Protocol, "tcp", "the kernel's TCP"),
    refused(Protocol, "udp", "tcpcost measures TCP"),
    refused(Protocol, "sctp", "tcpcost measures TCP"),
    refused(
        Protocol,
        "ssl",
        "tcpcost measures TCP; for the kernel's part of TLS set ktls in a study",
    ),
    refused(Protocol, "rds", "tcpcost measures TCP"),
    refused(Protocol, "vsock", "tcpcost measures TCP"),
    refused(
        Protocol,
        "udapl",
        "tcpcost measures TCP, and uperf itself has no uDAPL any more",
    ),
];
