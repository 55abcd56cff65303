//! Decision whether a knob that is set is applied, skipped or refused, from its row: what each TCP
//! supports, and what else the knob needs.
//!
//! A value that changes nothing (`leave`, `default`, `auto`, …) affects no end and needs nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ack_policies::AckKind;
use crate::choices::Carrier;
use crate::flow_group::group_of;
use crate::host_name::HostName;
use crate::knob::{Knobs, split_host};
use crate::knob_error::KnobError;
use crate::knobs::{KNOBS, find};
use crate::program::{Operation, Program};
use crate::relay_mode::RelayMode;
use crate::row::{
    AppliesTo, CheckedEnds, KernelSupport, Knob, KnobCondition, Need, Required, UserKnob,
    UserSupport, ValueKind, WIRES,
};
use crate::value::Value;
use crate::wire::WireSettings;

/// Owner of a trial's devices, which decides what may be set and how it is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceOwner {
    /// Bed: the devices end with it.
    Bed,
    /// Loopback of the command's machine, which serves all.
    Loopback,
    /// Host: its own device, which other programs on the host may use, too.
    Host,
}

impl Need {
    /// Text of the need for a table, with the ends and values that it is for.
    pub(crate) fn in_table(&self) -> String {
        let mut text = String::new();
        if !self.when.is_empty() {
            text += &format!("`{}`: ", self.when.join("`, `"));
        }
        text += match self.ends {
            CheckedEnds::Every => "",
            CheckedEnds::Kernel => "the kernel's TCP: ",
            CheckedEnds::User => "our TCP: ",
            CheckedEnds::UserSender => "our TCP, where it sends: ",
            CheckedEnds::UserReceiver => "our TCP, where it receives: ",
        };
        if self.any_of.is_empty() {
            return format!("{text}not had, {}", self.why);
        }
        text + self.to_string().trim_start_matches("needs ")
    }

    /// True if a knob of this value has what it needs at a host.
    fn is_met(&self, knobs: &Knobs, host: HostName, value: &Value) -> bool {
        let word = value.to_string();
        let is_asked = match self.ends {
            CheckedEnds::Every => true,
            CheckedEnds::Kernel => !knobs.is_user(host),
            CheckedEnds::User => knobs.is_user(host),
            CheckedEnds::UserSender => knobs.is_user(host) && knobs.sends(host, false),
            CheckedEnds::UserReceiver => knobs.is_user(host) && knobs.sends(host, true),
        };
        let is_meant = self.when.is_empty() || self.when.contains(&word.as_str());
        !is_asked
            || !is_meant
            || self
                .any_of
                .iter()
                .any(|term| term.holds(knobs, host, value))
    }
}

impl fmt::Display for Need {
    /// Formats as `needs rate` or similar, with the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms: Vec<String> = self.any_of.iter().map(ToString::to_string).collect();
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

impl KnobCondition {
    fn holds(&self, knobs: &Knobs, host: HostName, of: &Value) -> bool {
        let row = find(self.knob).expect("rows name rows: a test reads them all");
        let value = knobs
            .value_at(host, self.knob)
            .expect("rows have defaults, and none names a sysctl");
        let word = value.to_string();
        match self.required {
            Required::OneOf(words) => words.contains(&word.as_str()),
            Required::NoneOf(words) => !words.contains(&word.as_str()),
            Required::Satisfies(is_so) => is_so(&word),
            Required::ValueSatisfies(is_so, _) => is_so(&value),
            Required::Set => !row.leaves_alone(&value),
            Required::Unset => row.leaves_alone(&value),
            Required::AtLeast => value.number() >= of.number(),
        }
    }
}

impl fmt::Display for KnobCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.knob;
        let list = |words: &[&str]| {
            let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            quoted.join(" or ")
        };
        match self.required {
            Required::OneOf(words) => write!(f, "{name} = {}", list(words)),
            Required::NoneOf(words) => write!(f, "{name} other than {}", list(words)),
            Required::Satisfies(is_so) => {
                let words = match find(name).map(|row| row.kind) {
                    Some(ValueKind::Choice(words)) => words,
                    _ => &[],
                };
                let so: Vec<&str> = words.iter().copied().filter(|word| is_so(word)).collect();
                write!(f, "{name} = {}", list(&so))
            }
            Required::ValueSatisfies(_, what) => write!(f, "{name} {what}"),
            Required::Set => write!(f, "{name}"),
            Required::Unset => write!(f, "no {name}"),
            Required::AtLeast => write!(f, "at least as many {name}"),
        }
    }
}

impl KernelSupport {
    /// Reason why a device of this owner cannot have the property. `None` if it can.
    fn refused_by(&self, owner: DeviceOwner) -> Option<&'static str> {
        match (self, owner) {
            (KernelSupport::OwnDevice(_) | KernelSupport::RealDevice(_), DeviceOwner::Loopback) => {
                Some(OWN_DEVICE)
            }
            (KernelSupport::OwnDevice(_), DeviceOwner::Host) => Some(OTHERS_DEVICE),
            _ => None,
        }
    }

    /// Reason why an end of the kernel's TCP cannot have this value. `None` if it can. `owner`:
    /// owner of its device.
    fn refuses(&self, knobs: &Knobs, value: &Value, owner: DeviceOwner) -> Option<String> {
        match self {
            KernelSupport::Sysctl(..) | KernelSupport::AnySysctl => None,
            KernelSupport::Device(_)
            | KernelSupport::OwnDevice(_)
            | KernelSupport::RealDevice(_) => self.refused_by(owner).map(str::to_string),
            KernelSupport::Wire if owner != DeviceOwner::Bed || !knobs.can_have_wires() => {
                Some(WIRES.to_string())
            }
            KernelSupport::Wire if value.to_string() == Carrier::Netem.word() => {
                let (knob, why) = WireSettings::not_netems(knobs)?;
                Some(format!("{knob} {why}"))
            }
            KernelSupport::Wire => None,
            KernelSupport::SocketOption(_) => (!knobs.all_stand())
                .then(|| "only for connections that stay open, so not for crr".to_string()),
            KernelSupport::Fixed(word, why) => {
                (value.to_string() != *word).then(|| why.to_string())
            }
            KernelSupport::AckPolicies => {
                let kind = AckKind::from_word(&value.to_string());
                match kind.map(AckKind::in_kernel) {
                    Some(None) => Some(format!("the kernel's TCP has no policy \"{value}\"")),
                    Some(Some(kernel)) => kernel.refuses(knobs, value, owner),
                    None => None,
                }
            }
            KernelSupport::Unsupported(why) => Some(why.to_string()),
        }
    }
}

/// Reason for the loopback.
const OWN_DEVICE: &str =
    "only for a bed's own device (netns, tap): other programs use the host's loopback, too";

/// Reason for a device that existed before.
const OTHERS_DEVICE: &str = "only for a bed's own device (netns, tap): other programs use a host's device, too, and so does the connection to the host";

/// Knob that is set without what it needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{knob}: {reason}")]
pub struct Unmet {
    /// Name as it is set.
    pub knob: String,
    /// Description of what it needs.
    pub reason: String,
    /// True if it must not be left out of the cell instead: the need is strict, or another end,
    /// for which the knob is set as well, has what it needs.
    pub is_refused: bool,
}

/// Knob that is set, with the hosts that it applies to.
struct Setting<'a> {
    name: &'a str,
    value: &'a Value,
    row: Knob,
    hosts: Vec<HostName>,
    /// Group of connections that it is set for by name. `None` for all groups.
    group: Option<HostName>,
}

impl Knobs {
    /// Knobs whose values change something.
    fn settings(&self) -> impl Iterator<Item = Setting<'_>> {
        // With a hundred hosts, each with knobs of its own, every host is asked only for its own
        // knobs.
        let all = self.host_names().into_iter();
        let all: Vec<(HostName, Vec<HostName>)> =
            all.map(|host| (host, Knobs::narrow(host))).collect();
        self.iter().filter_map(move |(name, value)| {
            let (of, rest) = split_host(name);
            let row = find(rest)?;
            if row.leaves_alone(value) {
                return None;
            }
            let group = group_of(name).map(|(group, _)| group);
            let holds = |(host, narrow): &&(HostName, Vec<HostName>)| {
                group.is_some()
                    || (of.is_none_or(|of| narrow.contains(&of))
                        && self.name_for(*host, rest).as_deref() == Some(name))
            };
            let hosts = all.iter().filter(holds).map(|(host, _)| *host).collect();
            Some(Setting {
                name,
                value,
                row,
                hosts,
                group,
            })
        })
    }

    /// Mode of the relay in the middle of a chain. `None`: the host there forwards packets.
    pub fn relay_mode(&self) -> Option<RelayMode> {
        RelayMode::from_word(&self.word("relay_mode")?)
    }

    /// True if this host uses our own TCP.
    pub fn is_user(&self, host: HostName) -> bool {
        match host {
            HostName::RELAY => self.relay_mode().is_some_and(RelayMode::is_user),
            _ => self.value_at(host, "stack") == Some(Value::Word("user".to_string())),
        }
    }

    /// True if there may be delay and loss between the hosts. With our own TCP that is possible
    /// only in front of the device of a pair.
    fn can_have_wires(&self) -> bool {
        let is_pair = self.word("topology").as_deref() == Some("pair");
        is_pair || !self.host_names().iter().any(|&host| self.is_user(host))
    }

    fn sends(&self, host: HostName, is_peer: bool) -> bool {
        if host == HostName::RELAY {
            return true; // It sends to one side what it received from the other.
        }
        let side = self.side(host);
        side.is_some_and(|side| self.sends_from(if is_peer { side.peer() } else { side }))
    }

    /// Knobs against which the needs of a knob are checked: those of each group that it is for.
    fn views(&self, setting: &Setting<'_>) -> Vec<Cow<'_, Knobs>> {
        let groups = self.group_names();
        if groups.is_empty() {
            return vec![Cow::Borrowed(self)];
        }
        if !setting.row.per_group {
            let view = |group| {
                let mut knobs = self.at_group(group);
                knobs.insert("flows", Value::Count(self.flows()));
                Cow::Owned(knobs)
            };
            return groups.into_iter().map(view).collect();
        }
        let rest = split_host(setting.name).1;
        let is_for = |group: &HostName| match setting.group {
            Some(own) => own == *group,
            None => self.get(&format!("{group}.{rest}")).is_none(),
        };
        let groups = groups.into_iter().filter(is_for);
        let views = groups.map(|group| Cow::Owned(self.at_group(group)));
        views.collect()
    }

    /// Knobs that are set without what they need, which is an error of the study file.
    pub fn unmet(&self) -> Vec<Unmet> {
        let mut all = Vec::new();
        for setting in self.settings() {
            let needs = setting.row.needs.iter();
            let mut needs = needs
                .filter(|need| need.ends == CheckedEnds::Every)
                .peekable();
            if needs.peek().is_none() {
                continue;
            }
            let views = self.views(&setting);
            for need in needs {
                let is_met = |host: &&HostName| {
                    let met = |knobs: &Cow<'_, Knobs>| need.is_met(knobs, **host, setting.value);
                    // A knob that the groups share is for each of them.
                    if setting.row.per_group {
                        views.iter().any(met)
                    } else {
                        views.iter().all(met)
                    }
                };
                let (with, without): (Vec<&HostName>, Vec<&HostName>) =
                    setting.hosts.iter().partition(is_met);
                let Some(host) = without.first() else {
                    continue;
                };
                let is_refused = need.is_strict || !with.is_empty();
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
                    is_refused,
                });
                break;
            }
        }
        all
    }

    /// Checks that the TCP or the device of this end supports all knobs that are set for it.
    /// `owner`: owner of its device.
    ///
    /// # Errors
    /// The first unsupported knob, with the reason.
    pub fn available_at(&self, host: HostName, owner: DeviceOwner) -> Result<(), KnobError> {
        for setting in self.settings() {
            if !setting.hosts.contains(&host) {
                continue;
            }
            let (row, value) = (setting.row, setting.value);
            let of_stack = match row.applies_to {
                AppliesTo::Workload | AppliesTo::Host => None,
                AppliesTo::Link(kernel, user) | AppliesTo::Tcp(kernel, user) => match user {
                    _ if !self.is_user(host) => kernel.refuses(self, value, owner),
                    UserSupport::Supported(_) => None,
                    UserSupport::Wire => (!self.can_have_wires()).then(|| WIRES.to_string()),
                    // A knob that all hosts share is available if one of them supports it.
                    UserSupport::Unsupported(_)
                        if !row.per_end
                            && self.host_names().iter().any(|&other| !self.is_user(other)) =>
                    {
                        None
                    }
                    UserSupport::Unsupported(why) => Some(why.to_string()),
                },
            };
            let unmet = || {
                let needs = row.needs.iter();
                let mut needs = needs.filter(|need| need.ends != CheckedEnds::Every);
                needs.find(|need| !need.is_met(self, host, value))
            };
            let of_program = || {
                let program = value.program()?;
                self.unavailable_call(host, program)
            };
            let of_needs = || unmet().map(ToString::to_string);
            if let Some(reason) = of_stack.or_else(of_needs).or_else(of_program) {
                let name = row.name_at(split_host(setting.name).1, host);
                return Err(KnobError::new(name, reason));
            }
        }
        Ok(())
    }

    /// Reason why this end's TCP does not support a call of a program. `None` if it supports all.
    fn unavailable_call(&self, host: HostName, program: &Program) -> Option<String> {
        let refuses = |knob: &str, word: &str| {
            let row = find(knob)?;
            let value = Value::Word(word.to_string());
            let mut needs = row.needs.iter();
            let unmet = needs.find(|need| !need.is_met(self, host, &value))?;
            Some(format!("{knob} \"{word}\": {unmet}"))
        };
        program.all().find_map(|operation| match operation {
            Operation::Send { with, .. } => refuses("send_with", with.as_ref()?.word()),
            Operation::Receive { with, .. } => refuses("receive_with", with.as_ref()?.word()),
            _ => None,
        })
    }

    /// Rows of the knobs whose values change something at this end. Sysctls have no rows.
    pub fn set_at(&self, host: HostName) -> Vec<&'static Knob> {
        let settings = self.settings();
        let own = settings.filter(|setting| setting.hosts.contains(&host));
        let set: BTreeSet<&str> = own.map(|setting| setting.row.name).collect();
        let rows = KNOBS.iter();
        rows.filter(|row| set.contains(row.name)).collect()
    }

    /// Choices of our own TCP at this end, in the order of the rows.
    pub fn user_choices(&self, host: HostName) -> impl Iterator<Item = (UserKnob, Value)> {
        KNOBS.iter().filter_map(move |row| {
            let which = row.user_choice()?;
            let value = self.value_at(host, row.name)?;
            (!row.leaves_alone(&value)).then_some((which, value))
        })
    }

    /// Sysctls of this end, from rows or set by name: dotted names and values.
    pub fn kernel_sysctls(&self, host: HostName) -> std::collections::BTreeMap<String, String> {
        let of_rows = KNOBS.iter().filter_map(|row| {
            let (AppliesTo::Link(kernel, _) | AppliesTo::Tcp(kernel, _)) = row.applies_to else {
                return None;
            };
            let KernelSupport::Sysctl(name, write) = kernel else {
                return None;
            };
            let number = row.kind.number(&self.value_at(host, row.name)?)?;
            Some((name.to_string(), write(number).to_string()))
        });
        of_rows.chain(self.sysctls(host)).collect()
    }
}

impl Knob {
    /// Reason why a device of this owner cannot have the knob. `None` if it can.
    pub fn refused_by(&self, owner: DeviceOwner) -> Option<&'static str> {
        match self.applies_to {
            AppliesTo::Link(kernel, _) => kernel.refused_by(owner),
            _ => None,
        }
    }

    /// Text of the knob's needs for a table.
    pub fn needs_text(&self) -> String {
        let texts: Vec<String> = self.needs.iter().map(Need::in_table).collect();
        texts.join("; ")
    }

    /// Name, with the host's if the knob is for one end.
    fn name_at(&self, name: &str, host: HostName) -> String {
        if self.per_end {
            format!("{host}.{name}")
        } else {
            name.to_string()
        }
    }
}

#[cfg(test)]
mod tests;
