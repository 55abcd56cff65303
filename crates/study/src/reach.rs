//! What a knob belongs to, how each TCP has it, and what else it needs: the part of its row that
//! decides whether it is applied, skipped or refused.
//!
//! A value that leaves things alone (`leave`, `default`, `auto`, …) reaches nothing and needs nothing.

use std::fmt;

use crate::ack_policies::AckKind;
use crate::host_name::HostName;
use crate::knob::{Knobs, split_host};
use crate::registry::{Kind, Knob, find};
use crate::value::Value;

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
    /// A sysctl of this name; the number that is written, out of the knob's (a switch is 0 or 1).
    Sysctl(&'static str, fn(u64) -> u64),
    /// A sysctl by its own name.
    AnySysctl,
    /// A socket option of this name, set once a connection stands.
    SocketOption(&'static str),
    /// It is always as this word says; why nothing else can be had.
    Always(&'static str, &'static str),
    /// As [`AckKind::in_kernel`] says of each.
    AckPolicies,
    /// It has none: why.
    No(&'static str),
}

/// How an end of our own TCP has a knob.
#[derive(Debug, Clone, Copy)]
pub enum User {
    /// By this choice.
    Has(UserKnob),
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

    /// The need with the ends and values that it is of.
    pub(crate) fn in_table(&self) -> String {
        let mut text = String::new();
        if !self.when.is_empty() {
            text += &format!("`{}`: ", self.when.join("`, `"));
        }
        text += match self.at {
            At::Every => "",
            At::Kernel => "the kernel's TCP: ",
            At::User => "our TCP: ",
            At::UserSender => "our TCP, where it sends: ",
        };
        if self.any.is_empty() {
            return format!("{text}not had, {}", self.why);
        }
        text + self.to_string().trim_start_matches("needs ")
    }

    /// Whether it is met at an end by a knob of this value.
    fn is_met(&self, knobs: &Knobs, host: HostName, value: &Value) -> bool {
        let word = value.to_string();
        let is_asked = match self.at {
            At::Every => true,
            At::Kernel => !knobs.is_user(host),
            At::User => knobs.is_user(host),
            At::UserSender => knobs.is_user(host) && knobs.sends(host),
        };
        let is_meant = self.when.is_empty() || self.when.contains(&word.as_str());
        !is_asked || !is_meant || self.any.iter().any(|term| term.holds(knobs, host, value))
    }
}

impl fmt::Display for Need {
    /// `needs rate` or the like, with the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<String> = self.any.iter().map(ToString::to_string).collect();
        if terms.is_empty() {
            return f.write_str(self.why);
        }
        write!(f, "needs {}", terms.join(" or "))?;
        if !self.why.is_empty() {
            write!(f, ": {}", self.why)?;
        }
        Ok(())
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

impl Term {
    fn holds(&self, knobs: &Knobs, host: HostName, of: &Value) -> bool {
        let row = find(self.knob).expect("rows name rows: a test reads them all");
        let value = knobs
            .value_at(host, self.knob)
            .expect("rows have defaults, and none names a sysctl");
        let word = value.to_string();
        match self.is {
            Is::In(words) => words.contains(&word.as_str()),
            Is::NotIn(words) => !words.contains(&word.as_str()),
            Is::That(is_so) => is_so(&word),
            Is::Set => !row.leaves_alone(&value),
            Is::Unset => row.leaves_alone(&value),
            Is::AtLeast => value.number() >= of.number(),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.knob;
        let list = |words: &[&str]| {
            let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            quoted.join(" or ")
        };
        match self.is {
            Is::In(words) => write!(f, "{name} = {}", list(words)),
            Is::NotIn(words) => write!(f, "{name} other than {}", list(words)),
            Is::That(is_so) => {
                let words = match find(name).map(|row| row.kind) {
                    Some(Kind::Choice(words)) => words,
                    _ => &[],
                };
                let so: Vec<&str> = words.iter().copied().filter(|word| is_so(word)).collect();
                write!(f, "{name} = {}", list(&so))
            }
            Is::Set => write!(f, "{name}"),
            Is::Unset => write!(f, "no {name}"),
            Is::AtLeast => write!(f, "as many {name} at least"),
        }
    }
}

impl Kernel {
    /// Why an end of the kernel's TCP cannot have this value; `None` where it can. `owned`: its
    /// device is the bed's own.
    fn refuses(&self, knobs: &Knobs, value: &Value, owned: bool) -> Option<String> {
        match self {
            Kernel::Device | Kernel::Offload | Kernel::Sysctl(..) | Kernel::AnySysctl => None,
            Kernel::OwnDevice(_) => (!owned).then(|| OWN_DEVICE.to_string()),
            Kernel::SocketOption(_) => (knobs.word("workload").as_deref() == Some("crr"))
                .then(|| "of connections that stand, so not of crr".to_string()),
            Kernel::Always(word, why) => (value.to_string() != *word).then(|| why.to_string()),
            Kernel::AckPolicies => {
                let kind = AckKind::from_word(&value.to_string());
                match kind.map(AckKind::in_kernel) {
                    Some(None) => Some(format!("the kernel's TCP has no policy \"{value}\"")),
                    Some(Some(kernel)) => kernel.refuses(knobs, value, owned),
                    None => None,
                }
            }
            Kernel::No(why) => Some(why.to_string()),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Device => f.write_str("device"),
            Kernel::Offload => f.write_str("ethtool"),
            Kernel::OwnDevice(what) => write!(f, "{what} (`netns`, `tap`)"),
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
            User::No(_) => f.write_str("no"),
        }
    }
}

/// Of the loopback.
const OWN_DEVICE: &str =
    "of a bed's own device alone (netns, tap): the host's loopback serves others too";

/// A knob that is set and cannot be had, or not so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{knob}: {reason}")]
pub struct Unavailable {
    /// Its name, with that of the end where it is about one.
    pub knob: String,
    /// Why, one line.
    pub reason: String,
}

/// A knob that is set without what it needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{knob}: {reason}")]
pub struct Unmet {
    /// Its name as it is set.
    pub knob: String,
    /// What it needs.
    pub reason: String,
    /// Whether another end, for which it is set as well, has what it needs.
    pub elsewhere: bool,
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

/// A knob that is set, and the hosts that it holds for.
struct Setting<'a> {
    name: &'a str,
    value: &'a Value,
    row: Knob,
    hosts: Vec<HostName>,
}

impl Knobs {
    /// What is set and not to leave things alone.
    fn settings(&self) -> impl Iterator<Item = Setting<'_>> {
        let all = self.host_names();
        self.iter().filter_map(move |(name, value)| {
            let (_, rest) = split_host(name);
            let row = find(rest)?;
            let holds = |host: &HostName| self.name_for(*host, rest).as_deref() == Some(name);
            let hosts = all.iter().copied().filter(holds).collect();
            (!row.leaves_alone(value)).then_some(Setting {
                name,
                value,
                row,
                hosts,
            })
        })
    }

    /// Whether this host is of our own TCP.
    pub fn is_user(&self, host: HostName) -> bool {
        self.value_at(host, "stack") == Some(Value::Word("user".to_string()))
    }

    fn sends(&self, host: HostName) -> bool {
        let word = self.word("workload").unwrap_or_default();
        let kind = crate::WorkloadKind::from_word(&word);
        let side = self.side(host);
        kind.zip(side).is_some_and(|(kind, side)| kind.sends(side))
    }

    /// The knobs that are set without what they need: a study file that says so is wrong.
    pub fn unmet(&self) -> Vec<Unmet> {
        let mut all = Vec::new();
        for setting in self.settings() {
            let needs = setting.row.needs.iter();
            for need in needs.filter(|need| need.at == At::Every) {
                let is_met = |host: &&HostName| need.is_met(self, **host, setting.value);
                let (with, without): (Vec<&HostName>, Vec<&HostName>) =
                    setting.hosts.iter().partition(is_met);
                let Some(host) = without.first() else {
                    continue;
                };
                let elsewhere = !with.is_empty();
                let mut reason = need.to_string();
                if let Some(other) = with.first() {
                    let name = split_host(setting.name).1;
                    reason += &format!(
                        ", which the {host} has not; to set the other end alone: {other}.{name}"
                    );
                }
                all.push(Unmet {
                    knob: setting.name.to_string(),
                    reason,
                    elsewhere,
                });
                break;
            }
        }
        all
    }

    /// The first knob that is set for this end and that its TCP, or its device, cannot have.
    /// `owned`: its device is the bed's own.
    ///
    /// # Errors
    /// That knob, and why.
    pub fn available_at(&self, host: HostName, owned: bool) -> Result<(), Unavailable> {
        for setting in self.settings() {
            if !setting.hosts.contains(&host) {
                continue;
            }
            let (row, value) = (setting.row, setting.value);
            let of_stack = match row.of {
                Of::Workload | Of::Host => None,
                Of::Link(kernel, user) | Of::Tcp(kernel, user) => match user {
                    _ if !self.is_user(host) => kernel.refuses(self, value, owned),
                    User::Has(_) => None,
                    // What all hosts share is there if one of them has it.
                    User::No(_)
                        if !row.per_end
                            && self.host_names().iter().any(|&other| !self.is_user(other)) =>
                    {
                        None
                    }
                    User::No(why) => Some(why.to_string()),
                },
            };
            let unmet = || {
                let needs = row.needs.iter();
                let mut needs = needs.filter(|need| need.at != At::Every);
                needs.find(|need| !need.is_met(self, host, value))
            };
            if let Some(reason) = of_stack.or_else(|| unmet().map(ToString::to_string)) {
                let name = row.name_at(split_host(setting.name).1, host);
                return Err(Unavailable { knob: name, reason });
            }
        }
        Ok(())
    }

    /// The rows of what is set for this end and not to leave things alone; a sysctl has none.
    pub fn set_at(&self, host: HostName) -> Vec<&'static Knob> {
        let set = |row: &&Knob| {
            let mut settings = self.settings();
            settings.any(|setting| setting.row.name == row.name && setting.hosts.contains(&host))
        };
        crate::KNOBS.iter().filter(set).collect()
    }

    /// The choices of our own TCP at this end, in the order of the rows.
    pub fn user_choices(&self, host: HostName) -> impl Iterator<Item = (UserKnob, Value)> {
        crate::KNOBS.iter().filter_map(move |row| {
            let which = row.user_choice()?;
            let value = self.value_at(host, row.name)?;
            (!row.leaves_alone(&value)).then_some((which, value))
        })
    }

    /// The sysctls of this end that are rows or are set by name: dotted name and value.
    pub fn kernel_sysctls(&self, host: HostName) -> std::collections::BTreeMap<String, String> {
        let of_rows = crate::KNOBS.iter().filter_map(|row| {
            let (Of::Link(kernel, _) | Of::Tcp(kernel, _)) = row.of else {
                return None;
            };
            let Kernel::Sysctl(name, write) = kernel else {
                return None;
            };
            let number = match self.value_at(host, row.name)? {
                Value::Switch(on) => u64::from(on),
                Value::Count(number) | Value::Bytes(number) => number,
                _ => return None,
            };
            Some((name.to_string(), write(number).to_string()))
        });
        of_rows.chain(self.sysctls(host)).collect()
    }
}

impl Knob {
    /// Its name, with the end's where it is a knob of one.
    fn name_at(&self, name: &str, host: HostName) -> String {
        if self.per_end {
            format!("{host}.{name}")
        } else {
            name.to_string()
        }
    }
}

pub use crate::knobs::UserKnob;

#[cfg(test)]
mod tests;
