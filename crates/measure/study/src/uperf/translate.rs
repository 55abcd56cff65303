//! Translation of a profile to a study: each group becomes a program.
//!
//! Operations that a profile does once, before its loop, are done before the traffic; its loop is
//! measured. A transaction that both connects and disconnects becomes a program that does so again
//! and again.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::UperfSurroundings;
use super::error::{Note, ProfileError};
use super::profile::{self, Flowop, Kind, Profile, Transaction, Value};
use crate::topology::Topology;
use tcpcost_knobs::{
    Bed, CloseBy, HostName, Knobs, MessageSize, Operation, PauseAt, Program, SendWith, Times,
};

/// Contents of the study file for a profile.
#[derive(Debug)]
pub(super) struct Study {
    pub(super) groups: Vec<Group>,
    pub(super) sockets: Sockets,
    /// Interval. `None` if no transaction has a duration.
    pub(super) duration: Option<Duration>,
    /// True if any group sends files, which blocking threads cannot do.
    pub(super) sends_files: bool,
    pub(super) notes: Vec<Note>,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) flows: u32,
    pub(super) program: Program,
    pub(super) write_bytes: u32,
    pub(super) read_bytes: u32,
    /// Passes per second of all flows together.
    pub(super) rate: Option<u64>,
}

/// Socket options that all connections share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sockets {
    pub(super) window: Option<u32>,
    pub(super) nodelay: bool,
    pub(super) congestion_control: Option<String>,
}

pub(super) fn study(
    profile: &Profile,
    surroundings: &UperfSurroundings<'_>,
) -> Result<Study, ProfileError> {
    let hosts = Hosts::new();
    let mut study = Study {
        groups: Vec::new(),
        sockets: Sockets::default(),
        duration: None,
        sends_files: false,
        notes: Vec::new(),
    };
    if let Some(group) = profile.groups.get(Knobs::GROUPS_MAX) {
        let most = Knobs::GROUPS_MAX;
        return Err(ProfileError::new(
            group.line,
            "group",
            format!("{most} are the most"),
        ));
    }
    let mut sockets: Option<(Sockets, usize)> = None;
    let mut timed: Option<Timed> = None;
    for (index, group) in profile.groups.iter().enumerate() {
        let mut translation = Translation {
            surroundings,
            hosts: &hosts,
            notes: &mut study.notes,
            names: Vec::new(),
            call_bytes: None,
            read_bytes: None,
        };
        let found = translation.group(group)?;
        let (call_bytes, read_bytes) = (translation.call_bytes, translation.read_bytes);
        for (own, line) in found.sockets {
            match &sockets {
                Some((first, at)) if *first != own => {
                    let what = format!(
                        "other options of sockets (wndsz, tcp_nodelay, cc) than in line {at}: all connections of a study have the same"
                    );
                    return Err(ProfileError::new(line, "flowop", what));
                }
                _ => sockets = Some((own, line)),
            }
        }
        match (found.timed, timed) {
            (Some((own, line)), Some((first, at))) if own != first => {
                let what =
                    format!("another duration than in line {at}: a trial has one for all groups");
                return Err(ProfileError::new(line, "transaction", what));
            }
            (own, first) => timed = first.or(own),
        }
        let program = Program::new(found.operations)
            .map_err(|error| ProfileError::new(group.line, "group", error.to_string()))?;
        let largest = program.largest();
        let largest_sent = largest[0].max(largest[1]).max(1);
        study.sends_files |= program.all().any(is_file);
        study.groups.push(Group {
            name: name(group, index, profile.groups.len(), &study.groups),
            flows: group.threads,
            program,
            write_bytes: call_bytes.unwrap_or(largest_sent),
            read_bytes: read_bytes.unwrap_or(largest_sent),
            rate: found
                .rate
                .map(|rate| u64::from(rate) * u64::from(group.threads)),
        });
    }
    let mut authors = study.groups.iter().map(|group| group.program.author());
    let first = authors.next();
    if authors.any(|author| Some(author) != first) {
        let text = "groups that accept and groups that connect: this side is the bed's server for the one and its client for the other";
        study.notes.push(Note {
            line: profile.groups[0].line,
            text: text.to_string(),
        });
    }
    study.sockets = sockets.map(|(sockets, _)| sockets).unwrap_or_default();
    study.duration = timed.map(|(duration, _)| duration);
    if study.sends_files {
        let text = "sendfile: by epoll, as threads that block have no sendfile here".to_string();
        let line = profile.groups[0].line;
        study.notes.push(Note { line, text });
    }
    Ok(study)
}

fn is_file(operation: &Operation) -> bool {
    let sendfile = Some(SendWith::Sendfile);
    matches!(operation, Operation::Send { with, .. } if *with == sendfile)
}

/// Name of a group in the study: the profile's if it is valid, else a number.
fn name(group: &profile::Group, index: usize, groups: usize, before: &[Group]) -> String {
    let given = group
        .name
        .as_deref()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let given = given.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let allowed = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    let given: String = given.chars().filter(allowed).take(HostName::MAX).collect();
    let is_free = |name: &str| before.iter().all(|group| group.name != name);
    match given.parse::<HostName>() {
        Ok(name) if !name.is_of_topology() && is_free(&given) => given,
        _ => {
            let digits = (groups - 1).to_string().len();
            format!("group-{index:0digits$}")
        }
    }
}

/// Duration of a transaction, and its line.
type Timed = (Duration, usize);

/// Translation of one group.
struct TranslatedGroup {
    operations: Vec<Operation>,
    sockets: Vec<(Sockets, usize)>,
    timed: Option<Timed>,
    rate: Option<u32>,
}

struct Translation<'a> {
    surroundings: &'a UperfSurroundings<'a>,
    hosts: &'a Hosts,
    notes: &'a mut Vec<Note>,
    /// Numbers that uperf gives to connections, in the order in which they are opened.
    names: Vec<u32>,
    /// Bytes of a call, if a sendfile sets them.
    call_bytes: Option<u32>,
    read_bytes: Option<u32>,
}

impl Translation<'_> {
    fn note(&mut self, line: usize, text: String) {
        let note = Note { line, text };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn group(&mut self, group: &profile::Group) -> Result<TranslatedGroup, ProfileError> {
        let done = |one: &&Transaction| one.iterations > 0 && !one.flowops.is_empty();
        let transactions: Vec<&Transaction> = group.transactions.iter().filter(done).collect();
        let all = || transactions.iter().flat_map(|one| &one.flowops);
        let opened: Vec<&Flowop> = all().filter(|one| opens(one)).collect();
        let Some(first) = opened.first() else {
            let what = "no connect and no accept: there is no connection to use";
            return Err(ProfileError::new(group.line, "group", what));
        };
        if let Some(other) = opened.iter().find(|one| one.kind != first.kind) {
            let what = format!(
                "accept and connect in one group (line {}): each strand does one of them",
                first.line
            );
            return Err(ProfileError::new(other.line, "flowop", what));
        }
        let mut sockets = Vec::new();
        for one in &opened {
            self.open(one)?;
            let own = Sockets {
                window: one.options.window,
                nodelay: one.options.nodelay,
                congestion_control: one.options.congestion_control.clone(),
            };
            sockets.push((own, one.line));
        }
        let both = |one: &&&Transaction| {
            let has = |kind: fn(&Flowop) -> bool| one.flowops.iter().any(kind);
            has(opens) && has(|one| one.kind == Kind::Disconnect)
        };
        let (operations, timed, rate) = match transactions.iter().find(both) {
            Some(one) => {
                let others = transactions
                    .iter()
                    .find(|other| !std::ptr::eq(**other, *one));
                if let Some(other) = others {
                    let what = format!(
                        "used in the same group as a transaction that connects and disconnects (line {}): only one of them per group",
                        one.line
                    );
                    return Err(ProfileError::new(other.line, "transaction", what));
                }
                let timed = one.duration.map(|duration| (duration, one.line));
                (self.coming_and_going(one)?, timed, one.rate)
            }
            None => {
                let (operations, timed) = self.standing(&transactions)?;
                (operations, timed, None)
            }
        };
        Ok(TranslatedGroup {
            operations,
            sockets,
            timed,
            rate,
        })
    }

    /// Checks a connect or an accept, and gives its connection the next number.
    fn open(&mut self, one: &Flowop) -> Result<(), ProfileError> {
        let options = &one.options;
        let wrong = |what: &str| Err(ProfileError::new(one.line, "flowop", what));
        if options.count != 1 {
            return wrong("opens several connections of one name: give each a conn of its own");
        }
        if self.names.contains(&options.conn) {
            return wrong("opens a connection of this name once more: give each a conn of its own");
        }
        if self.names.len() == usize::from(Program::CONNECTIONS_MAX) {
            return wrong("opens a 17th connection: 16 are the most of a thread");
        }
        let Some(host) = &options.host else {
            return wrong("no remotehost: it is remotehost=server, a host of the bed");
        };
        self.hosts.check(host)?;
        self.names.push(options.conn);
        Ok(())
    }

    /// Translates a transaction that connects and disconnects to a program that does so again and
    /// again.
    fn coming_and_going(&mut self, one: &Transaction) -> Result<Vec<Operation>, ProfileError> {
        let mut operations = Vec::new();
        let mut is_closed = false;
        for (index, flowop) in one.flowops.iter().enumerate() {
            let wrong = |what: &str| Err(ProfileError::new(flowop.line, "flowop", what));
            if is_closed {
                return wrong("comes after disconnect: a transaction that connects ends with it");
            }
            if opens(flowop) && index > 0 {
                return wrong(
                    "connects in the middle of a transaction that disconnects: such a transaction begins with connect, and has one connection",
                );
            }
            if index == 0 && !opens(flowop) {
                return wrong(
                    "comes before connect: a transaction that disconnects begins with connect",
                );
            }
            is_closed = flowop.kind == Kind::Disconnect;
            operations.extend(self.operations(flowop, false)?);
        }
        // After a failure of any flowop only a new connection helps.
        let any_can_fail = one.flowops.iter().any(|flowop| flowop.options.can_fail);
        if let Some(Operation::Connect { can_fail, .. }) = operations.first_mut() {
            *can_fail = any_can_fail;
        }
        Ok(operations)
    }

    /// Translates connections that are opened once, and a loop on them.
    fn standing(
        &mut self,
        transactions: &[&Transaction],
    ) -> Result<(Vec<Operation>, Option<Timed>), ProfileError> {
        let (mut opened, mut before, mut each) = (Vec::new(), Vec::new(), Vec::new());
        let mut timed: Option<Timed> = None;
        for transaction in transactions {
            let mut body = Vec::new();
            for flowop in &transaction.flowops {
                match flowop.kind {
                    // The end of the trial closes the connections.
                    Kind::Disconnect => {}
                    Kind::Connect | Kind::Accept => {
                        let is_once = transaction.iterations == 1 && transaction.duration.is_none();
                        if !is_once {
                            let what = "opens connections over and over and never closes one";
                            return Err(ProfileError::new(flowop.line, "flowop", what));
                        }
                        if !(body.is_empty() && each.is_empty() && before.is_empty()) {
                            let what = "connects when others have been at work: put it first";
                            return Err(ProfileError::new(flowop.line, "flowop", what));
                        }
                        opened.extend(self.operations(flowop, true)?);
                    }
                    _ if timed.is_some() && transaction.duration.is_none() => {
                        let text =
                            "is not done: the trial is over with the timed transaction before it";
                        self.note(flowop.line, text.to_string());
                    }
                    _ => body.extend(self.operations(flowop, true)?),
                }
            }
            if body.is_empty() {
                continue;
            }
            let at_rate = transaction.rate.map(u64::from);
            if let Some(duration) = transaction.duration {
                if let Some((_, line)) = timed {
                    let what = format!(
                        "a second duration in a group, after line {line}: the other side could not know when it begins; make two profiles of it"
                    );
                    return Err(ProfileError::new(transaction.line, "transaction", what));
                }
                timed = Some((duration, transaction.line));
                before.append(&mut each);
                each.push(Operation::Loop {
                    times: Times::Forever,
                    at_rate,
                    body,
                });
                continue;
            }
            match (transaction.iterations, at_rate) {
                (1, None) => each.extend(body),
                (count, at_rate) => each.push(Operation::Loop {
                    times: Times::Count(count),
                    at_rate,
                    body,
                }),
            }
        }
        if timed.is_none() {
            each = vec![match each.as_slice() {
                [] if opened.len() == 1 => {
                    let by = CloseBy::Listener;
                    opened.push(Operation::Close { by });
                    return Ok((opened, None));
                }
                // The only loop becomes the one that goes on.
                [Operation::Loop { at_rate, body, .. }] => Operation::Loop {
                    times: Times::Forever,
                    at_rate: *at_rate,
                    body: body.clone(),
                },
                _ => Operation::Loop {
                    times: Times::Forever,
                    at_rate: None,
                    body: each,
                },
            }];
        }
        opened.append(&mut before);
        opened.append(&mut each);
        Ok((opened, timed))
    }

    /// Translates a flowop. `stands`: true if the connections stay open.
    fn operations(&mut self, of: &Flowop, stands: bool) -> Result<Vec<Operation>, ProfileError> {
        let options = &of.options;
        let wrong = |what: &str| ProfileError::new(of.line, "flowop", what);
        let count = options.count;
        if count == 0 {
            return Ok(Vec::new());
        }
        if options.can_fail && stands {
            let text = "canfail: no effect on connections that stay open";
            self.note(of.line, text.to_string());
        }
        let conn = || {
            let at = self.names.iter().position(|name| *name == options.conn);
            let at = at.and_then(|at| u8::try_from(at).ok());
            at.ok_or_else(|| match options.conn {
                0 => wrong(
                    "uses the connection without a name, which nothing opens: give it its conn",
                ),
                name => wrong(&format!("uses conn={name}, which nothing opens")),
            })
        };
        let size = || {
            let size = options.size.ok_or_else(|| wrong("no size"))?;
            if !stands && size.least < size.most {
                return Err(wrong(
                    "size=rand(...) on connections that come and go: both ends draw the same only on connections that stay open",
                ));
            }
            Ok(size)
        };
        if let Some(bytes) = options.read_bytes {
            let all = self.read_bytes.unwrap_or(0);
            self.read_bytes = Some(bytes.max(all));
        }
        Ok(vec![match of.kind {
            Kind::Connect => Operation::Connect {
                conn: conn()?,
                can_fail: false,
            },
            Kind::Accept => Operation::Accept { conn: conn()? },
            Kind::Disconnect => Operation::Close {
                by: CloseBy::Listener,
            },
            Kind::Read => Operation::Receive {
                size: size()?,
                with: None,
                count,
                conn: conn()?,
            },
            Kind::Write => Operation::Send {
                size: size()?,
                with: None,
                count,
                conn: conn()?,
            },
            Kind::Sendfile | Kind::Sendfilev => {
                let conn = conn()?;
                let files = match of.kind {
                    Kind::Sendfilev => options.files.max(1),
                    _ => 1,
                };
                let bytes = self.file_bytes(of)?;
                if let Some(chunk) = options.size {
                    self.call_bytes = Some(chunk.most);
                }
                let count = count.checked_mul(files);
                Operation::Send {
                    size: MessageSize::exactly(bytes),
                    with: Some(SendWith::Sendfile),
                    count: count.ok_or_else(|| wrong("count times nfiles is too large"))?,
                    conn,
                }
            }
            Kind::Think => {
                let Some(time) = options.time else {
                    return Ok(vec![Operation::Nop]);
                };
                let time = time.checked_mul(count).filter(|time| *time <= TIME_MAX);
                let time = time.ok_or_else(|| wrong("thinks longer than an hour"))?;
                let at = PauseAt::Both;
                match options.is_busy {
                    true => Operation::Think { time, at },
                    false => Operation::Sleep { time, at },
                }
            }
            Kind::Nop => Operation::Nop,
        }])
    }

    /// Mean size of the files that a flowop sends, bytes.
    fn file_bytes(&mut self, of: &Flowop) -> Result<u32, ProfileError> {
        let wrong = |line: usize, what: String| ProfileError::new(line, "dir", what);
        let Some(Value { text, shown, line }) = &of.options.folder else {
            return Err(wrong(
                of.line,
                "which files? dir=FOLDER names them".to_string(),
            ));
        };
        let mut sizes = (self.surroundings.files)(Path::new(text))
            .map_err(|error| wrong(*line, format!("{shown}: {error}")))?;
        sizes.retain(|bytes| *bytes > 0);
        let sum: u64 = sizes.iter().sum();
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        let (Some(least), Some(most)) = (least, most) else {
            return Err(wrong(*line, format!("{shown}: no files in it")));
        };
        let mean = (sum / sizes.len() as u64).max(1);
        let mean = u32::try_from(mean)
            .ok()
            .filter(|mean| *mean <= Program::MESSAGE_MAX);
        let Some(mean) = mean else {
            return Err(wrong(
                *line,
                format!("{shown}: files of more than 64 MiB on average"),
            ));
        };
        if least != most {
            let text = format!(
                "dir: files of {least} to {most} bytes: each is sent as the mean, {mean} bytes, where uperf draws one"
            );
            self.note(*line, text);
        }
        Ok(mean)
    }
}

/// Limit, as for an operation of a program.
const TIME_MAX: Duration = Duration::from_secs(3600);

fn opens(one: &Flowop) -> bool {
    matches!(one.kind, Kind::Connect | Kind::Accept)
}

/// Addresses that a remotehost may be.
struct Hosts(BTreeSet<IpAddr>);

impl Hosts {
    fn new() -> Hosts {
        let beds = [Bed::Netns, Bed::Loopback];
        let default = |bed| Topology::of(bed, &Knobs::default()).unwrap_or_default();
        let topologies = beds.map(default);
        let links = topologies.into_iter().flat_map(|topology| topology.links);
        Hosts(
            links
                .flat_map(|link| [link.a.address, link.b.address])
                .collect(),
        )
    }

    fn check(&self, host: &Value) -> Result<(), ProfileError> {
        let text = host.text.to_ascii_lowercase();
        let is_known = match text.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.0.contains(&address),
            Err(_) => {
                text == "localhost" || text.parse::<HostName>().is_ok_and(HostName::is_of_topology)
            }
        };
        if is_known {
            return Ok(());
        }
        let of_bed: Vec<String> = self.0.iter().map(IpAddr::to_string).collect();
        let what = format!(
            "no host of the bed, and tcpcost run makes its hosts itself: expected server, client, localhost or {}",
            of_bed.join(", ")
        );
        let name = format!("remotehost {}", host.shown);
        Err(ProfileError::new(host.line, &name, what))
    }
}
