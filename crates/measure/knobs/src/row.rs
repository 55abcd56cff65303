//! Contents of a knob's row: accepted values, what the knob belongs to, its support in each TCP,
//! and what else it needs. The rows are below `knobs/`; the parser, the defaults and
//! `docs/study-file.md` are made from them.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::host_reach::Reach;
use crate::kernel_name::DeviceName;
use crate::program::{LIST, Program};
use crate::raw::Raw;
use crate::units;
use crate::value::Value;

/// Table of a study file that a knob belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTable {
    /// `[workload]`: the traffic.
    Workload,
    /// `[bed]`: the path, with its offloads and sysctls.
    Bed,
}

/// Kind of values that a knob accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number in this range.
    Count(u64, u64),
    /// A size in bytes in this range.
    Bytes(u64, u64),
    /// A rate in bits per second.
    BitRate,
    /// Rate in events per second.
    EventRate,
    /// Time in this range, milliseconds.
    Time(u64, u64),
    /// Share, written as a percentage.
    Share,
    /// Switch: on or off.
    Switch,
    /// Word of this list.
    Choice(&'static [&'static str]),
    /// List of CPU numbers.
    Cpus,
    /// Text of any form.
    Text,
    /// Way to reach a host ([`Reach`]).
    Reach,
    /// Name of a device.
    Device,
    /// An IP address.
    Address,
    /// A range of TCP ports.
    Ports,
    /// Program of each connection.
    Program,
}

impl ValueKind {
    /// Converts a value to the number that [`KernelSupport::Sysctl`] starts from: a switch is 0 or 1, a
    /// word its index. `None` for other values.
    pub fn number(self, value: &Value) -> Option<u64> {
        match (self, value) {
            (_, Value::Switch(on)) => Some(u64::from(*on)),
            (ValueKind::Choice(words), Value::Word(word)) => {
                let place = words.iter().position(|known| known == word)?;
                u64::try_from(place).ok()
            }
            (_, value) => value.whole(),
        }
    }

    /// True if a list in a file is one value.
    pub fn is_list(self) -> bool {
        matches!(self, ValueKind::Cpus | ValueKind::Program)
    }
}

/// Row of a knob: its name, its place in a file, its values and its default.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Name in `[vary]`, `[[cells]]`, records and tables.
    pub name: &'static str,
    /// Key in its own table. It differs from `name` only for `kind`.
    pub key: &'static str,
    /// Table that it belongs to.
    pub table: FileTable,
    /// Part of the trial that it belongs to, and its support in each TCP.
    pub applies_to: AppliesTo,
    /// Kind of its values.
    pub kind: ValueKind,
    /// Word that is accepted in addition to `kind`, such as `"auto"`. Usually it changes nothing.
    pub or_word: Option<&'static str>,
    /// Default, as written in a study file.
    pub default: &'static str,
    /// True if `client.NAME` and `server.NAME` set one end only.
    pub per_end: bool,
    /// True if `GROUP.NAME`, or the key in a `[[group]]`, sets one group of connections only.
    pub per_group: bool,
    /// Conditions under which it has an effect. All of them must hold.
    pub needs: &'static [Need],
    /// Description in one sentence: meaning, unit, reason of the default.
    pub doc: &'static str,
}

pub(crate) const fn workload(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        name,
        key: name,
        table: FileTable::Workload,
        applies_to: AppliesTo::Workload,
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
    kind: ValueKind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        table: FileTable::Bed,
        applies_to: AppliesTo::Host,
        ..workload(name, kind, default, doc)
    }
}

/// Row of a knob of each end's device or route, which is left alone unless set.
pub(crate) const fn link(
    name: &'static str,
    kind: ValueKind,
    kernel: KernelSupport,
    doc: &'static str,
) -> Knob {
    Knob {
        applies_to: AppliesTo::Link(kernel, UserSupport::Unsupported(KERNELS_DEVICE)),
        or_word: Some("leave"),
        per_end: true,
        ..bed(name, kind, "leave", doc)
    }
}

/// Row of a property of the wire for what an end sends.
pub(crate) const fn wire(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    doc: &'static str,
) -> Knob {
    Knob {
        applies_to: AppliesTo::Link(KernelSupport::Wire, UserSupport::Wire),
        default,
        per_end: true,
        ..bed(name, kind, default, doc)
    }
}

pub(crate) const WIRES: &str = "a wire with delay and loss joins hosts of `netns`, and the pair of `tap` or `memory`: the loopback hands a packet over in the call that sends it, and a relay by our own TCP has its devices to itself";

/// Row of a policy of an end's TCP; `default` is that of its stack.
pub(crate) const fn tcp(
    name: &'static str,
    kind: ValueKind,
    kernel: KernelSupport,
    user: UserKnob,
    doc: &'static str,
) -> Knob {
    Knob {
        applies_to: AppliesTo::Tcp(kernel, UserSupport::Supported(user)),
        or_word: Some("default"),
        per_end: true,
        ..bed(name, kind, "default", doc)
    }
}

const KERNELS_DEVICE: &str =
    "offloads, routes, bottlenecks and sysctls are of a kernel's end alone: set them there";

impl Knob {
    /// Sets the needs of the row.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Knob {
        Knob { needs, ..self }
    }

    /// Makes the row one of a knob that each group of connections may have for itself.
    pub(crate) const fn of_group(self) -> Knob {
        Knob {
            per_group: true,
            ..self
        }
    }

    /// Description of accepted values, for an error message.
    pub fn expected(&self) -> String {
        let kind = match self.kind {
            ValueKind::Count(lo, hi) => format!("a whole number from {lo} to {hi}"),
            ValueKind::Bytes(lo, hi) => format!(
                "a size such as \"64KiB\" (B, KiB, MiB, GiB), {} to {}",
                units::show_bytes(lo),
                units::show_bytes(hi)
            ),
            ValueKind::BitRate => units::BIT_RATE.to_string(),
            ValueKind::EventRate => "a rate such as \"10000/s\"".to_string(),
            ValueKind::Time(lo, hi) => {
                format!("a time such as \"40ms\" (ns, us, ms, s), {lo}ms to {hi}ms")
            }
            ValueKind::Share => "a percentage such as \"0.1%\", up to 50%".to_string(),
            ValueKind::Switch => "\"on\" or \"off\"".to_string(),
            ValueKind::Choice(words) => {
                format!(
                    "one of {}",
                    words
                        .iter()
                        .map(|w| format!("\"{w}\""))
                        .collect::<Vec<_>>()
                        .join(", ")
                )
            }
            ValueKind::Cpus => "a list of CPU numbers such as [0, 2]".to_string(),
            ValueKind::Text => "a text or a number".to_string(),
            ValueKind::Reach => Reach::EXPECTED.to_string(),
            ValueKind::Device => "a device's name such as \"eth0\"".to_string(),
            ValueKind::Address => "an address such as \"192.0.2.1\"".to_string(),
            ValueKind::Ports => format!("{} such as \"5000-5015\"", units::PORTS),
            ValueKind::Program => LIST.to_string(),
        };
        match self.or_word {
            Some(word) => format!("{kind}, or \"{word}\""),
            None => kind,
        }
    }

    /// Error message for a value that the knob does not accept, with the accepted ones. `name`:
    /// full name of the knob.
    pub fn refusal(&self, name: &str, raw: &Raw) -> String {
        if let (ValueKind::Program, Raw::List(_)) = (self.kind, raw)
            && let Err(wrong) = Program::read(raw)
        {
            return wrong.to_string();
        }
        let several = match (self.kind, raw) {
            (ValueKind::Cpus, Raw::List(items)) => {
                items.iter().any(|item| matches!(item, Raw::List(_)))
            }
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
            (ValueKind::Bytes(..), Raw::Text(text)) => units::bytes(text).err(),
            (ValueKind::BitRate, Raw::Text(text)) => units::bits_per_s(text).err(),
            _ => None,
        };
        match unit.map(|unit| unit.note) {
            None | Some("") => format!("expected {}", self.expected()),
            Some(note) => format!("expected {}; {note}", self.expected()),
        }
    }

    /// Parses a value. `None` if the knob does not accept it; [`Knob::expected`] describes the
    /// accepted values.
    pub fn read(&self, raw: &Raw) -> Option<Value> {
        if let (Raw::Text(text), Some(word)) = (raw, self.or_word)
            && text == word
        {
            return Some(Value::Word(word.to_string()));
        }
        match (self.kind, raw) {
            (ValueKind::Count(lo, hi), Raw::Integer(n)) => {
                let n = u64::try_from(*n).ok()?;
                (lo..=hi).contains(&n).then_some(Value::Count(n))
            }
            (ValueKind::Bytes(lo, hi), Raw::Integer(_) | Raw::Text(_)) => {
                let bytes = match raw {
                    Raw::Integer(n) => u64::try_from(*n).ok()?,
                    Raw::Text(text) => units::bytes(text).ok()?,
                    _ => return None,
                };
                (lo..=hi).contains(&bytes).then_some(Value::Bytes(bytes))
            }
            (ValueKind::BitRate, Raw::Text(text)) => {
                units::bits_per_s(text).ok().map(Value::BitsPerS)
            }
            (ValueKind::EventRate, Raw::Text(text)) => units::per_s(text).ok().map(Value::PerS),
            (ValueKind::Time(lo, hi), Raw::Text(text)) => units::duration(text)
                .ok()
                .filter(|time| {
                    (Duration::from_millis(lo)..=Duration::from_millis(hi)).contains(time)
                })
                .map(Value::Time),
            (ValueKind::Share, Raw::Text(text)) => units::share(text).ok().map(Value::Share),
            (ValueKind::Switch, Raw::Boolean(on)) => Some(Value::Switch(*on)),
            (ValueKind::Switch, Raw::Text(text)) => match text.as_str() {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            (ValueKind::Choice(words), Raw::Text(text)) => words
                .contains(&text.as_str())
                .then(|| Value::Word(text.clone())),
            (ValueKind::Cpus, Raw::List(items)) if !items.is_empty() => items
                .iter()
                .map(|item| match item {
                    Raw::Integer(n) => usize::try_from(*n).ok(),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .map(Value::Cpus),
            (ValueKind::Program, Raw::List(_)) => Program::read(raw).ok().map(Value::Program),
            (ValueKind::Reach, Raw::Text(text)) => {
                let reach = text.parse::<Reach>().ok();
                // Hosts in one process are those of the bed `memory`.
                let reach = reach.filter(|reach| *reach != Reach::Memory);
                reach.map(|reach| Value::Word(reach.to_string()))
            }
            (ValueKind::Device, Raw::Text(text)) => {
                let device = text.parse::<DeviceName>().ok();
                device.map(|device| Value::Word(device.into()))
            }
            (ValueKind::Address, Raw::Text(text)) => {
                let address = text.parse::<IpAddr>().ok();
                address.map(|address| Value::Word(address.to_string()))
            }
            (ValueKind::Ports, Raw::Text(text)) => {
                let (first, last) = units::ports(text)?;
                Some(Value::Word(format!("{first}-{last}")))
            }
            (ValueKind::Text, Raw::Integer(n)) => Some(Value::Word(n.to_string())),
            (ValueKind::Text, Raw::Text(text))
                if !text.is_empty() && !text.contains(['\n', '\0']) =>
            {
                Some(Value::Word(text.clone()))
            }
            _ => None,
        }
    }

    /// Value of the knob if no study sets it.
    pub fn default_value(&self) -> Value {
        let raw = self
            .default
            .parse()
            .map_or_else(|_| Raw::Text(self.default.to_string()), Raw::Integer);
        self.read(&raw)
            .expect("each row's default is a value of its own kind (a test reads them all)")
    }
}

/// Choice of our own TCP that is a knob. `tcpcost_stack` applies each of them in one `match`.
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
    WindowRestart,
    TailLossProbe,
    MtuProbing,
    HyStart,
    Dscp,
    BusyPoll,
    ReceiveBatch,
}

/// Part of a trial that a knob belongs to.
#[derive(Debug, Clone, Copy)]
pub enum AppliesTo {
    /// Traffic.
    Workload,
    /// Hosts: their TCP, their CPUs, and how they are connected.
    Host,
    /// Link as an end sees it: device, route, queue.
    Link(KernelSupport, UserSupport),
    /// TCP of an end.
    Tcp(KernelSupport, UserSupport),
}

/// Support of a knob at an end of the kernel's TCP.
#[derive(Debug, Clone, Copy)]
pub enum KernelSupport {
    /// Property of its device, which the host's own loopback has, too. The text of this and of the
    /// next two says how it is set.
    Device(&'static str),
    /// Property that only a device of the bed's own has, because the loopback's serves others: a
    /// route's metric, a qdisc, steering, an eBPF program.
    OwnDevice(&'static str),
    /// Property that a device of the bed's own or of a named host has, but the loopback does not.
    RealDevice(&'static str),
    /// Wire between a pair: one of our own, or the kernel's netem.
    Wire,
    /// Sysctl of this name. The function makes the number to write from the knob's
    /// ([`ValueKind::number`]).
    Sysctl(&'static str, fn(u64) -> u64),
    /// Sysctl by its own name.
    AnySysctl,
    /// Socket option of this name, set after the connection is made.
    SocketOption(&'static str),
    /// Fixed at this word; then the reason why no other is available.
    Fixed(&'static str, &'static str),
    /// Policies, each as [`AckKind::in_kernel`](crate::AckKind::in_kernel) says.
    AckPolicies,
    /// No support, with the reason.
    Unsupported(&'static str),
}

/// Support of a knob at an end of our own TCP.
#[derive(Debug, Clone, Copy)]
pub enum UserSupport {
    /// Supported by this choice.
    Supported(UserKnob),
    /// Wire in front of its device, as between two ends of the kernel's TCP.
    Wire,
    /// No support, with the reason.
    Unsupported(&'static str),
}

/// Condition under which a knob has an effect.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Ends for which the condition is checked.
    pub ends: CheckedEnds,
    /// Values of the knob that have the condition. Empty: all values.
    pub when: &'static [&'static str],
    /// Conditions, one of which must hold. Empty: these values are not available.
    pub any_of: &'static [KnobCondition],
    /// Reason, if the conditions alone do not show it.
    pub why: &'static str,
    /// True if a cell without it is refused, although the knob is common to all cells: with the
    /// default it would measure something else.
    pub is_strict: bool,
}

/// Ends for which a [`Need`] is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedEnds {
    /// Every end. A study file alone decides these needs, so its parser refuses violations.
    Every,
    /// Ends of the kernel's TCP. A violation skips the trial.
    Kernel,
    /// Ends of our own TCP. A violation skips the trial.
    User,
    /// Ends of our own TCP that send payload. A violation skips the trial.
    UserSender,
    /// Ends of our own TCP that receive payload. A violation skips the trial.
    UserReceiver,
}

/// Condition on another knob.
#[derive(Debug, Clone, Copy)]
pub struct KnobCondition {
    /// Name of the other knob.
    pub knob: &'static str,
    /// Required value.
    pub required: Required,
}

/// Required value of a knob.
#[derive(Debug, Clone, Copy)]
pub enum Required {
    /// Word of this list.
    OneOf(&'static [&'static str]),
    /// Word that is not in this list.
    NoneOf(&'static [&'static str]),
    /// Word for which the function returns true.
    Satisfies(fn(&str) -> bool),
    /// Value for which the function returns true. The text describes such a value.
    ValueSatisfies(fn(&Value) -> bool, &'static str),
    /// Value that changes something.
    Set,
    /// Value that changes nothing, or none.
    Unset,
    /// Value at least as large as the value of the knob that needs it.
    AtLeast,
}

impl Need {
    /// Creates a need of every value, at every end.
    pub(crate) const fn any_of(any_of: &'static [KnobCondition]) -> Need {
        Need {
            ends: CheckedEnds::Every,
            when: &[],
            any_of,
            why: "",
            is_strict: false,
        }
    }

    /// Creates a need of these values, without which a cell is refused.
    pub(crate) const fn strict(
        when: &'static [&'static str],
        any_of: &'static [KnobCondition],
    ) -> Need {
        Need {
            when,
            is_strict: true,
            ..Need::any_of(any_of)
        }
    }

    /// Restricts the need to these ends.
    pub(crate) const fn at(self, ends: CheckedEnds) -> Need {
        Need { ends, ..self }
    }

    /// Restricts the need to these values.
    pub(crate) const fn when(self, when: &'static [&'static str]) -> Need {
        Need { when, ..self }
    }

    /// Adds the reason.
    pub(crate) const fn because(self, why: &'static str) -> Need {
        Need { why, ..self }
    }
}

pub(crate) const fn is(knob: &'static str, words: &'static [&'static str]) -> KnobCondition {
    KnobCondition {
        knob,
        required: Required::OneOf(words),
    }
}

pub(crate) const fn is_not(knob: &'static str, words: &'static [&'static str]) -> KnobCondition {
    KnobCondition {
        knob,
        required: Required::NoneOf(words),
    }
}

pub(crate) const fn requires(knob: &'static str, required: Required) -> KnobCondition {
    KnobCondition { knob, required }
}

impl Knob {
    /// Choice of our own TCP that the knob is. `None` if it is none.
    pub fn user_choice(&self) -> Option<UserKnob> {
        match self.applies_to {
            AppliesTo::Link(_, UserSupport::Supported(which))
            | AppliesTo::Tcp(_, UserSupport::Supported(which)) => Some(which),
            _ => None,
        }
    }

    /// True if it is a setting of an end's device.
    pub fn is_of_device(&self) -> bool {
        let is_device = matches!(
            self.applies_to,
            AppliesTo::Link(
                KernelSupport::Device(_)
                    | KernelSupport::OwnDevice(_)
                    | KernelSupport::RealDevice(_),
                _
            )
        );
        is_device && self.per_end
    }

    /// True if a value changes nothing.
    pub fn leaves_alone(&self, value: &Value) -> bool {
        self.or_word.is_some_and(|word| value.to_string() == word)
    }
}

impl fmt::Display for KernelSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelSupport::Device(what) => f.write_str(what),
            KernelSupport::OwnDevice(what) => write!(f, "{what} (`netns`, `tap`)"),
            KernelSupport::RealDevice(what) => write!(f, "{what} (`netns`, `tap`, `hosts`)"),
            KernelSupport::Wire => f.write_str("a wire of ours (`netns`, `tap`)"),
            KernelSupport::Sysctl(name, _) => write!(f, "sysctl `{name}`"),
            KernelSupport::AnySysctl => f.write_str("sysctl"),
            KernelSupport::SocketOption(name) => write!(f, "`{name}`"),
            KernelSupport::Fixed(word, why) => write!(f, "`{word}` alone: {why}"),
            KernelSupport::AckPolicies => f.write_str("`linux-like`, `every`"),
            KernelSupport::Unsupported(why) => write!(f, "no: {why}"),
        }
    }
}

impl fmt::Display for UserSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserSupport::Supported(_) => f.write_str("yes"),
            UserSupport::Wire => f.write_str("yes, no relay"),
            UserSupport::Unsupported(_) => f.write_str("no"),
        }
    }
}
