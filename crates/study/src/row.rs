//! What a knob's row can say: what it takes, what it belongs to, how each TCP has it, what else it needs. The rows are in
//! `knobs.rs`; parsing, defaults and `docs/study-file.md` are made from them.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::host_reach::Reach;
use crate::kernel_name::DeviceName;
use crate::program::{LIST, Program};
use crate::raw::Raw;
use crate::units;
use crate::value::Value;

/// The table of a study file a knob belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// `[workload]`: what traffic.
    Workload,
    /// `[bed]`: over which path, with which offloads and sysctls.
    Bed,
}

/// What values a knob takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in this range.
    Count(u64, u64),
    /// A size in bytes in this range.
    Bytes(u64, u64),
    /// A rate in bits per second.
    BitRate,
    /// Events per second.
    EventRate,
    /// A span of time in this range, milliseconds.
    Time(u64, u64),
    /// A share, written as a percentage.
    Share,
    /// On or off.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of CPU numbers.
    Cpus,
    /// Any text.
    Text,
    /// How a host is reached ([`Reach`]).
    Reach,
    /// A device's name.
    Device,
    /// An IP address.
    Address,
    /// A range of TCP ports.
    Ports,
    /// What each connection does.
    Program,
}

impl Kind {
    /// A value as the number that [`Kernel::Sysctl`] begins with: a switch is 0 or 1, a word its place.
    pub fn number(self, value: &Value) -> Option<u64> {
        match (self, value) {
            (_, Value::Switch(on)) => Some(u64::from(*on)),
            (Kind::Choice(words), Value::Word(word)) => {
                let place = words.iter().position(|known| known == word)?;
                u64::try_from(place).ok()
            }
            (_, value) => value.whole(),
        }
    }
}

/// One knob: its name, where it is set, what it takes and what it is when nobody sets it.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// The name in `[vary]`, `[[cells]]`, records and tables.
    pub name: &'static str,
    /// The key in its own table; differs from `name` only for `kind`.
    pub key: &'static str,
    /// The table.
    pub group: Group,
    /// What it belongs to, and how each TCP has it.
    pub of: Of,
    /// What it takes.
    pub kind: Kind,
    /// A word that is accepted beside `kind`, such as `"auto"`; also the way to say "untouched".
    pub or_word: Option<&'static str>,
    /// The default, as written in a study file.
    pub default: &'static str,
    /// Whether `client.NAME` and `server.NAME` set one end only.
    pub per_end: bool,
    /// Whether `GROUP.NAME`, or the key in its `[[group]]`, sets one group of connections only.
    pub per_group: bool,
    /// What else must be so for it to be of use; all of these.
    pub needs: &'static [Need],
    /// One sentence: meaning, unit, why this default.
    pub doc: &'static str,
}

pub(crate) const fn workload(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        name,
        key: name,
        group: Group::Workload,
        of: Of::Workload,
        kind,
        or_word: None,
        default,
        per_end: false,
        per_group: false,
        needs: &[],
        doc,
    }
}

pub(crate) const fn bed(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        group: Group::Bed,
        of: Of::Host,
        ..workload(name, kind, default, doc)
    }
}

/// A knob of each end's device or route, untouched unless set.
pub(crate) const fn link(
    name: &'static str,
    kind: Kind,
    kernel: Kernel,
    doc: &'static str,
) -> Knob {
    Knob {
        of: Of::Link(kernel, User::No(KERNELS_DEVICE)),
        or_word: Some("leave"),
        per_end: true,
        ..bed(name, kind, "leave", doc)
    }
}

/// A property of the wire for what an end sends.
pub(crate) const fn wire(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        of: Of::Link(Kernel::Wire, User::Wire),
        default,
        per_end: true,
        ..bed(name, kind, default, doc)
    }
}

pub(crate) const WIRES: &str = "a wire with delay and loss joins hosts of `netns`, and the pair of `tap` or `memory`: the loopback hands a packet over in the call that sends it, and a relay by our own TCP has its devices to itself";

/// A policy of an end's TCP; `default` is its stack's own.
pub(crate) const fn tcp(
    name: &'static str,
    kind: Kind,
    kernel: Kernel,
    user: UserKnob,
    doc: &'static str,
) -> Knob {
    Knob {
        of: Of::Tcp(kernel, User::Has(user)),
        or_word: Some("default"),
        per_end: true,
        ..bed(name, kind, "default", doc)
    }
}

const KERNELS_DEVICE: &str =
    "offloads, routes, bottlenecks and sysctls are of a kernel's end alone: set them there";

impl Knob {
    /// The row with what it needs.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Knob {
        Knob { needs, ..self }
    }

    /// The row of a knob that each group of connections may have for itself.
    pub(crate) const fn of_group(self) -> Knob {
        Knob {
            per_group: true,
            ..self
        }
    }

    /// What this knob takes, in words for an error.
    pub fn expected(&self) -> String {
        let kind = match self.kind {
            Kind::Count(lo, hi) => format!("a whole number from {lo} to {hi}"),
            Kind::Bytes(lo, hi) => format!(
                "a size such as \"64KiB\" (B, KiB, MiB, GiB), {} to {}",
                units::show_bytes(lo),
                units::show_bytes(hi)
            ),
            Kind::BitRate => units::BIT_RATE.to_string(),
            Kind::EventRate => "a rate such as \"10000/s\"".to_string(),
            Kind::Time(lo, hi) => {
                format!("a time such as \"40ms\" (ns, us, ms, s), {lo}ms to {hi}ms")
            }
            Kind::Share => "a percentage such as \"0.1%\", up to 50%".to_string(),
            Kind::Switch => "\"on\" or \"off\"".to_string(),
            Kind::Choice(words) => {
                format!(
                    "one of {}",
                    words
                        .iter()
                        .map(|w| format!("\"{w}\""))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            Kind::Cpus => "a list of CPU numbers such as [0, 2]".to_string(),
            Kind::Text => "a text or a number".to_string(),
            Kind::Reach => Reach::EXPECTED.to_string(),
            Kind::Device => "a device's name such as \"eth0\"".to_string(),
            Kind::Address => "an address such as \"192.0.2.1\"".to_string(),
            Kind::Ports => format!("{} such as \"5000-5015\"", units::PORTS),
            Kind::Program => LIST.to_string(),
        };
        match self.or_word {
            Some(word) => format!("{kind}, or \"{word}\""),
            None => kind,
        }
    }

    /// Why a value is not one of this knob's, and what is. `name` is its full name.
    pub(crate) fn refusal(&self, name: &str, raw: &Raw) -> String {
        if let (Kind::Program, Raw::List(_)) = (self.kind, raw)
            && let Err(wrong) = Program::read(raw)
        {
            return wrong;
        }
        let several = match (self.kind, raw) {
            (Kind::Cpus, Raw::List(items)) => items.iter().any(|item| matches!(item, Raw::List(_))),
            (_, Raw::List(_)) => true,
            _ => false,
        };
        if several {
            let quote = if name.contains('.') { "\"" } else { "" };
            return format!(
                "expected one value: a list of values to compare goes under [vary], as {quote}{name}{quote} = {raw}"
            );
        }
        let unit = match (self.kind, raw) {
            (Kind::Bytes(..), Raw::Text(text)) => units::bytes(text).err(),
            (Kind::BitRate, Raw::Text(text)) => units::bits_per_s(text).err(),
            _ => None,
        };
        match unit.map(|unit| unit.note) {
            None | Some("") => format!("expected {}", self.expected()),
            Some(note) => format!("expected {}; {note}", self.expected()),
        }
    }

    /// Reads a value. `None` where it is not one of this knob's; [`Knob::expected`] says what is.
    pub(crate) fn read(&self, raw: &Raw) -> Option<Value> {
        if let (Raw::Text(text), Some(word)) = (raw, self.or_word)
            && text == word
        {
            return Some(Value::Word(word.to_string()));
        }
        match (self.kind, raw) {
            (Kind::Count(lo, hi), Raw::Integer(n)) => {
                let n = u64::try_from(*n).ok()?;
                (lo..=hi).contains(&n).then_some(Value::Count(n))
            }
            (Kind::Bytes(lo, hi), Raw::Integer(_) | Raw::Text(_)) => {
                let bytes = match raw {
                    Raw::Integer(n) => u64::try_from(*n).ok()?,
                    Raw::Text(text) => units::bytes(text).ok()?,
                    _ => return None,
                };
                (lo..=hi).contains(&bytes).then_some(Value::Bytes(bytes))
            }
            (Kind::BitRate, Raw::Text(text)) => units::bits_per_s(text).ok().map(Value::BitsPerS),
            (Kind::EventRate, Raw::Text(text)) => units::per_s(text).ok().map(Value::PerS),
            (Kind::Time(lo, hi), Raw::Text(text)) => units::duration(text)
                .ok()
                .filter(|time| {
                    (Duration::from_millis(lo)..=Duration::from_millis(hi)).contains(time)
                })
                .map(Value::Time),
            (Kind::Share, Raw::Text(text)) => units::share(text).ok().map(Value::Share),
            (Kind::Switch, Raw::Boolean(on)) => Some(Value::Switch(*on)),
            (Kind::Switch, Raw::Text(text)) => match text.as_str() {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            (Kind::Choice(words), Raw::Text(text)) => words
                .contains(&text.as_str())
                .then(|| Value::Word(text.clone())),
            (Kind::Cpus, Raw::List(items)) if !items.is_empty() => items
                .iter()
                .map(|item| match item {
                    Raw::Integer(n) => usize::try_from(*n).ok(),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(Value::Cpus),
            (Kind::Program, Raw::List(_)) => Program::read(raw).ok().map(Value::Program),
            (Kind::Reach, Raw::Text(text)) => {
                let reach = text.parse::<Reach>().ok();
                // Hosts of one process are those of the bed `memory`.
                let reach = reach.filter(|reach| *reach != Reach::Memory);
                reach.map(|reach| Value::Word(reach.to_string()))
            }
            (Kind::Device, Raw::Text(text)) => {
                let device = text.parse::<DeviceName>().ok();
                device.map(|device| Value::Word(device.into()))
            }
            (Kind::Address, Raw::Text(text)) => {
                let address = text.parse::<IpAddr>().ok();
                address.map(|address| Value::Word(address.to_string()))
            }
            (Kind::Ports, Raw::Text(text)) => {
                let (first, last) = units::ports(text)?;
                Some(Value::Word(format!("{first}-{last}")))
            }
            (Kind::Text, Raw::Integer(n)) => Some(Value::Word(n.to_string())),
            (Kind::Text, Raw::Text(text)) if !text.is_empty() && !text.contains(['\n', '\0']) => {
                Some(Value::Word(text.clone()))
            }
            _ => None,
        }
    }

    /// The value when no study sets it.
    pub fn default_value(&self) -> Value {
        let raw = self
            .default
            .parse()
            .map_or_else(|_| Raw::Text(self.default.to_string()), Raw::Integer);
        self.read(&raw)
            .expect("each row's default is a value of its own kind (a test reads them all)")
    }
}

/// A choice of our own TCP that is a knob. `tcpcost_stack` makes each of them in one `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is its row's")]
pub enum UserKnob {
    Mtu,
    AckPolicy,
    AckSegments,
    AckDelay,
    AckLimitInitial,
    AckLimitMax,
    CompSackNr,
    CompSackDelay,
    BacklogAckDefer,
    SegmentationRules,
    TailSplit,
    TsoWinDivisor,
    SuperSegment,
    TsoMinSegs,
    WholeSuperSegments,
    Pacing,
    PacingRate,
    InitialWindow,
    WindowGrowth,
    TailLossProbe,
    MtuProbing,
    HyStart,
    Dscp,
    BusyPoll,
    ReceiveBatch,
}

/// What a knob belongs to.
#[derive(Debug, Clone, Copy)]
pub enum Of {
    /// The traffic.
    Workload,
    /// The hosts: which TCP, which CPUs, joined how.
    Host,
    /// The link as an end sees it: device, route, queue.
    Link(Kernel, User),
    /// An end's TCP.
    Tcp(Kernel, User),
}

/// How an end of the kernel's TCP has a knob.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    /// A property of its device, which the host's own loopback has, too.
    Device,
    /// An offload of its device, by this knob's name.
    Offload,
    /// What a device of the bed's own has alone, because the loopback's serves others: a route's
    /// metric, a queueing discipline, steering, an eBPF program.
    OwnDevice(&'static str),
    /// What a device of the bed's own or of a named host has, and the loopback has not.
    RealDevice(&'static str),
    /// The wire between a pair, one of our own or the kernel's netem.
    Wire,
    /// A sysctl of this name; the number that is written, out of the knob's ([`Kind::number`]).
    Sysctl(&'static str, fn(u64) -> u64),
    /// A sysctl by its own name.
    AnySysctl,
    /// A socket option of this name, set once a connection stands.
    SocketOption(&'static str),
    /// It is always as this word says; why nothing else can be had.
    Always(&'static str, &'static str),
    /// As [`AckKind::in_kernel`](crate::AckKind::in_kernel) says of each.
    AckPolicies,
    /// It has none: why.
    No(&'static str),
}

/// How an end of our own TCP has a knob.
#[derive(Debug, Clone, Copy)]
pub enum User {
    /// By this choice.
    Has(UserKnob),
    /// In front of its device, as it is between two of the kernel's.
    Wire,
    /// It has none: why.
    No(&'static str),
}

/// What else must be so for a knob to be of use.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Which ends it is asked of.
    pub at: At,
    /// The values of the knob that need it; all where there are none.
    pub when: &'static [&'static str],
    /// One of these must hold; where there are none, these values cannot be had.
    pub any: &'static [Term],
    /// Why, where the need does not tell by itself.
    pub why: &'static str,
}

/// Which ends a [`Need`] is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Every end: what a study file can say by itself, so that its parser refuses what does not.
    Every,
    /// Ends of the kernel's TCP: else a skip.
    Kernel,
    /// Ends of our own TCP: else a skip.
    User,
    /// Ends of our own TCP that send payload: else a skip.
    UserSender,
    /// Ends of our own TCP that receive payload: else a skip.
    UserReceiver,
}

/// A condition on another knob.
#[derive(Debug, Clone, Copy)]
pub struct Term {
    /// The other knob.
    pub knob: &'static str,
    /// What it must be.
    pub is: Is,
}

/// What a knob must be.
#[derive(Debug, Clone, Copy)]
pub enum Is {
    /// One of these values.
    In(&'static [&'static str]),
    /// None of these values.
    NotIn(&'static [&'static str]),
    /// One of its words of which this is true.
    That(fn(&str) -> bool),
    /// Set to something.
    Set,
    /// Left alone.
    Unset,
    /// As large as the knob that needs it, at least.
    AtLeast,
}

impl Need {
    /// Needed by every value, at every end.
    pub(crate) const fn of(any: &'static [Term]) -> Need {
        Need {
            at: At::Every,
            when: &[],
            any,
            why: "",
        }
    }

    /// The same at these ends alone.
    pub(crate) const fn at(self, at: At) -> Need {
        Need { at, ..self }
    }

    /// The same of these values alone.
    pub(crate) const fn when(self, when: &'static [&'static str]) -> Need {
        Need { when, ..self }
    }

    /// The same, with its reason.
    pub(crate) const fn because(self, why: &'static str) -> Need {
        Need { why, ..self }
    }
}

pub(crate) const fn is(knob: &'static str, words: &'static [&'static str]) -> Term {
    Term {
        knob,
        is: Is::In(words),
    }
}

pub(crate) const fn is_not(knob: &'static str, words: &'static [&'static str]) -> Term {
    Term {
        knob,
        is: Is::NotIn(words),
    }
}

pub(crate) const fn that(knob: &'static str, is: Is) -> Term {
    Term { knob, is }
}

impl Knob {
    /// The choice of our own TCP that it is.
    pub fn user_choice(&self) -> Option<UserKnob> {
        match self.of {
            Of::Link(_, User::Has(which)) | Of::Tcp(_, User::Has(which)) => Some(which),
            _ => None,
        }
    }

    /// Whether a value leaves things as they are.
    pub fn leaves_alone(&self, value: &Value) -> bool {
        self.or_word.is_some_and(|word| value.to_string() == word)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Device => f.write_str("device"),
            Kernel::Offload => f.write_str("ethtool"),
            Kernel::OwnDevice(what) => write!(f, "{what} (`netns`, `tap`)"),
            Kernel::RealDevice(what) => write!(f, "{what} (`netns`, `tap`, `hosts`)"),
            Kernel::Wire => f.write_str("a wire of ours (`netns`, `tap`)"),
            Kernel::Sysctl(name, _) => write!(f, "sysctl `{name}`"),
            Kernel::AnySysctl => f.write_str("sysctl"),
            Kernel::SocketOption(name) => write!(f, "`{name}`"),
            Kernel::Always(word, why) => write!(f, "`{word}` alone: {why}"),
            Kernel::AckPolicies => f.write_str("`linux-like`, `every`"),
            Kernel::No(why) => write!(f, "no: {why}"),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            User::Has(_) => f.write_str("yes"),
            User::Wire => f.write_str("yes, no relay"),
            User::No(_) => f.write_str("no"),
        }
    }
}
