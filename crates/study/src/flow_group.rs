//! Groups of connections: several workloads in one trial, each with knobs of its own.
//!
//! A group is its knobs, by names with the group's before: `small.workload`, `small.flows`. What it does not set is as for
//! all groups (`[workload]`). Groups are in the order of their names, on every host and in every record.

use std::collections::BTreeSet;

use crate::choices::WorkloadKind;
use crate::host_name::HostName;
use crate::knob::{Knobs, split_host};
use crate::knobs::find;
use crate::settings::{SettingsError, WorkloadSettings};
use crate::side::Side;
use crate::traffic::Traffic;

/// A group of connections that do the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowGroup {
    /// Its name; `None` of the one group of a study that has no `[[group]]`.
    pub name: Option<HostName>,
    /// What its connections do.
    pub settings: WorkloadSettings,
    /// How often the host whose `settings` these are has its flows: once for each host that it talks with.
    pub times: usize,
}

impl FlowGroup {
    /// Whether a host opens connections of it.
    pub fn is_on(&self, host: HostName) -> bool {
        let on = self.settings.on;
        on.is_none_or(|on| host == on || host.set() == Some(on))
    }
}

impl Knobs {
    /// Most groups of a cell.
    pub const GROUPS_MAX: usize = 100;

    /// Names of the groups; none where the workload is one without a name.
    pub fn group_names(&self) -> BTreeSet<HostName> {
        let names = self.iter().filter_map(|(name, _)| group_of(name));
        names.map(|(group, _)| group).collect()
    }

    /// Of these the ones that are made: what a group does is among its knobs.
    pub(crate) fn made_groups(&self) -> BTreeSet<HostName> {
        let mut names = self.group_names();
        names.retain(|name| self.get(&format!("{name}.workload")).is_some());
        names
    }

    /// What holds for one group, under names without a group, what it has no use for included.
    pub(crate) fn at_group(&self, group: HostName) -> Knobs {
        let (mut all, mut own) = (self.clone(), Knobs::default());
        for (name, value) in self.iter() {
            let Some((of, rest)) = group_of(name) else {
                continue;
            };
            all.remove(name);
            if of == group {
                own.insert(rest, value.clone());
            }
        }
        all.with(&own)
    }

    /// The groups, defaults filled in.
    ///
    /// # Errors
    /// Knobs that contradict each other; a host that opens connections to nobody.
    pub fn groups(&self) -> Result<Vec<FlowGroup>, SettingsError> {
        let names = self.group_names();
        let mut groups = Vec::new();
        if names.is_empty() {
            groups.push(FlowGroup {
                name: None,
                settings: WorkloadSettings::from_knobs(self)?,
                times: 1,
            });
        }
        for name in names {
            let mut knobs = self.at_group(name);
            // Of what is set for all groups each takes what it has a use for.
            while let Some(unmet) = knobs.unmet().into_iter().next() {
                let own = format!("{name}.{}", unmet.knob);
                if self.get(&own).is_some() {
                    return Err(SettingsError(format!("{own}: {}", unmet.reason)));
                }
                knobs.remove(&unmet.knob);
            }
            let settings = WorkloadSettings::from_knobs(&knobs);
            let settings =
                settings.map_err(|SettingsError(text)| SettingsError(format!("{name}.{text}")))?;
            groups.push(FlowGroup {
                name: Some(name),
                settings,
                times: 1,
            });
        }
        if groups.len() > Self::GROUPS_MAX {
            let (most, text) = (Self::GROUPS_MAX, "group: a cell may have");
            return Err(SettingsError(format!("{text} {most} of them")));
        }
        self.check_hosts(&groups)?;
        Ok(groups)
    }

    /// Every host that can connect does, and `on` and `to` name hosts that can.
    fn check_hosts(&self, groups: &[FlowGroup]) -> Result<(), SettingsError> {
        let sides = self.sides();
        let of_side = |side| -> Vec<HostName> {
            let all = sides.iter();
            all.filter(|(_, of)| *of == Some(side))
                .map(|(host, _)| *host)
                .collect()
        };
        let (connecting, listening) = (of_side(Side::Connects), of_side(Side::Listens));
        let list = |hosts: &[HostName]| {
            let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
            names.join(", ")
        };
        for group in groups {
            let wrong = |key: &str, what: String| {
                let key = group
                    .name
                    .map_or_else(|| key.to_string(), |name| format!("{name}.{key}"));
                Err(SettingsError(format!("{key}: {what}")))
            };
            if !connecting.iter().any(|&host| group.is_on(host)) {
                return wrong(
                    "on",
                    format!("no host that connects; there are {}", list(&connecting)),
                );
            }
            let knobs = group
                .name
                .map_or_else(|| self.clone(), |name| self.at_group(name));
            let to = knobs.word("to").unwrap_or_default();
            if to != "all" && listening.len() > 1 {
                return wrong(
                    "to",
                    "several hosts listen, and the pattern says who connects to which".to_string(),
                );
            }
            if to != "all" && !listening.iter().any(|host| host.as_str() == to) {
                return wrong(
                    "to",
                    format!("no host that listens; there is {}", list(&listening)),
                );
            }
        }
        let idle = connecting
            .iter()
            .find(|&&host| !groups.iter().any(|group| group.is_on(host)));
        match idle {
            None => Ok(()),
            Some(host) => Err(SettingsError(format!(
                "on: {host} would have no connections: a group without on is on every host that connects"
            ))),
        }
    }

    /// Connections that a host opens, in all groups; what holds for the busiest of those that connect.
    pub fn flows(&self) -> u64 {
        let names = self.group_names();
        let own = |knobs: &Knobs| {
            let program = knobs.value("program");
            let each = program.as_ref().and_then(|program| program.program());
            let each = each.map_or(1, |program| program.connections() as u64);
            knobs.count("flows").unwrap_or(1) * each
        };
        if names.is_empty() {
            return own(self);
        }
        names.iter().map(|&name| own(&self.at_group(name))).sum()
    }

    /// Whether a side sends payload in any group.
    pub fn sends_from(&self, side: Side) -> bool {
        let of = |knobs: &Knobs| {
            let word = knobs.word("workload").unwrap_or_default();
            let program = knobs.value("program");
            match program.as_ref().and_then(|program| program.program()) {
                Some(program) if word == WorkloadKind::Program.word() => program.sends(side),
                _ => WorkloadKind::from_word(&word).is_some_and(|kind| kind.sends(side)),
            }
        };
        self.each_group(&of).any(|sends| sends)
    }

    /// Whether all connections are there before the traffic and stay.
    pub(crate) fn all_stand(&self) -> bool {
        let of = |knobs: &Knobs| {
            let word = knobs.word("workload").unwrap_or_default();
            let program = knobs.value("program");
            match program.as_ref().and_then(|program| program.program()) {
                Some(program) if word == WorkloadKind::Program.word() => program.stands(),
                _ => word != WorkloadKind::Crr.word(),
            }
        };
        self.each_group(&of).all(|stands| stands)
    }

    /// What all groups do; `None` where they do not do the same.
    pub fn workload_kind(&self) -> Option<WorkloadKind> {
        let of = |knobs: &Knobs| WorkloadKind::from_word(&knobs.word("workload")?);
        let mut kinds = self.each_group(&of);
        let first = kinds.next()??;
        kinds.all(|kind| kind == Some(first)).then_some(first)
    }

    /// The word of a group's workload that is no stream, where there is one: what holds for streams alone holds for all then.
    pub(crate) fn least_stream(&self) -> &'static str {
        let of = |knobs: &Knobs| WorkloadKind::from_word(&knobs.word("workload")?);
        let mut kinds = self.each_group(&of).flatten();
        let other = kinds.find(|kind| kind.has_transactions());
        other.unwrap_or(WorkloadKind::Stream).word()
    }

    /// Whether all groups' work is counted in transactions: each has responses.
    pub fn has_transactions(&self) -> bool {
        let of = |knobs: &Knobs| {
            let word = knobs.word("workload").unwrap_or_default();
            let program = knobs.value("program");
            match program.as_ref().and_then(|program| program.program()) {
                // One that only connects has nothing else to count.
                Some(program) if word == WorkloadKind::Program.word() => {
                    program.sends(Side::Connects) == program.sends(Side::Listens)
                }
                _ => WorkloadKind::from_word(&word).is_some_and(WorkloadKind::has_transactions),
            }
        };
        self.each_group(&of).all(|has| has)
    }

    /// Bytes that a transaction sends and receives, as the side that connects sees it, by group; only groups whose work is
    /// counted in transactions. Empty where knobs contradict each other.
    pub fn transaction_bytes(&self) -> Vec<(Option<HostName>, [f64; 2])> {
        let groups = self.groups().unwrap_or_default().into_iter();
        let of = |group: FlowGroup| {
            let settings = &group.settings;
            let bytes = match (settings.kind, &settings.program) {
                (WorkloadKind::Program, Some(program)) => {
                    let [sent, received] = program.bytes_of_round();
                    match program.author() {
                        Side::Connects => [sent, received],
                        Side::Listens => [received, sent],
                    }
                }
                (kind, _) if kind.has_transactions() => {
                    [settings.request_bytes, settings.response_bytes].map(|bytes| bytes as f64)
                }
                _ => return None,
            };
            Some((group.name, bytes))
        };
        groups.filter_map(of).collect()
    }

    /// The groups as a host has them: those that connect there, or at the host that listens those of all hosts that
    /// connect. What a host has no part in has no flows there; `times` is how often one that forwards has each.
    ///
    /// # Errors
    /// As of [`Knobs::groups`].
    pub fn groups_at(&self, host: HostName, times: usize) -> Result<Vec<FlowGroup>, SettingsError> {
        let talks = self.traffic();
        let side = self.side(host);
        let groups = self.groups()?.into_iter();
        let at_host = groups.map(|group| {
            let is_part =
                |talk: &&Traffic| group.is_on(talk.on) && (talk.on == host || talk.to == host);
            let times = match side {
                Some(_) => talks.iter().filter(is_part).count(),
                None => times,
            };
            let settings = group.settings.times(times);
            FlowGroup {
                settings,
                times,
                ..group
            }
        });
        Ok(at_host.collect())
    }

    /// Each host with its side.
    fn sides(&self) -> Vec<(HostName, Option<Side>)> {
        if let (true, Ok(arranged)) = (self.names_hosts(), self.arranged()) {
            let side = |host: &HostName| (*host, arranged.side(*host));
            return arranged.hosts.iter().map(side).collect();
        }
        let hosts = self.host_names().into_iter();
        hosts.map(|host| (host, self.side(host))).collect()
    }

    /// Who connects to whom: of named hosts by the pattern, else each that connects to the server.
    pub(crate) fn traffic(&self) -> Vec<Traffic> {
        if self.names_hosts() {
            return self
                .arranged()
                .map(|arranged| arranged.traffic)
                .unwrap_or_default();
        }
        let sides = self.sides().into_iter();
        let connecting = sides.filter(|(_, side)| *side == Some(Side::Connects));
        connecting
            .map(|(on, _)| Traffic {
                on,
                to: HostName::SERVER,
            })
            .collect()
    }

    fn each_group<T>(&self, of: &dyn Fn(&Knobs) -> T) -> impl Iterator<Item = T> + use<T> {
        let names = self.group_names();
        let all: Vec<T> = if names.is_empty() {
            vec![of(self)]
        } else {
            names.iter().map(|&name| of(&self.at_group(name))).collect()
        };
        all.into_iter()
    }
}

/// The group of a knob that is set for one, and the knob's name without it.
pub(crate) fn group_of(name: &str) -> Option<(HostName, &str)> {
    let (group, rest) = split_host(name);
    let group = group.filter(|_| find(rest).is_some_and(|knob| knob.per_group))?;
    Some((group, rest))
}

#[cfg(test)]
mod tests;
