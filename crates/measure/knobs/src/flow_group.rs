//! Groups of connections: several workloads in one trial, each with its own knobs.
//!
//! A group consists of its knobs, whose names begin with the group's: `small.workload`,
//! `small.flows`. Knobs that it does not set are those of all groups (`[workload]`). Groups are in
//! the order of their names, on every host and in every record.

use std::collections::BTreeSet;

use crate::choices::WorkloadKind;
use crate::host_name::HostName;
use crate::knob::{Knobs, split_host};
use crate::knobs::find;
use crate::settings::{SettingsError, WorkloadSettings};
use crate::side::Side;
use crate::traffic::Traffic;

/// Group of connections with the same workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowGroup {
    /// Name. `None` for the only group of a study without `[[group]]`.
    pub name: Option<HostName>,
    /// Workload of its connections.
    pub settings: WorkloadSettings,
    /// Number of times that the host of these `settings` has the group's flows: once for each host
    /// that it talks with.
    pub times: usize,
}

impl FlowGroup {
    /// True if a host opens connections of the group.
    pub fn is_on(&self, host: HostName) -> bool {
        let on = self.settings.on;
        on.is_none_or(|on| host == on || host.set() == Some(on))
    }
}

impl Knobs {
    /// Limit of groups in a cell.
    pub const GROUPS_MAX: usize = 100;

    /// Names of the groups. Empty if there is only one workload, without a name.
    pub fn group_names(&self) -> BTreeSet<HostName> {
        let names = self.iter().filter_map(|(name, _)| group_of(name));
        names.map(|(group, _)| group).collect()
    }

    /// Names of the groups whose workload is set: only those are made.
    pub fn made_groups(&self) -> BTreeSet<HostName> {
        let mut names = self.group_names();
        names.retain(|name| self.get(&format!("{name}.workload")).is_some());
        names
    }

    /// Knobs of one group, under names without the group's, including knobs that do not apply to
    /// it.
    pub fn at_group(&self, group: HostName) -> Knobs {
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

    /// Groups, with defaults filled in.
    ///
    /// # Errors
    /// Knobs that contradict each other; a host that connects to no other.
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
            // Each group takes from the knobs of all groups only those that apply to it.
            while let Some(unmet) = knobs.unmet().into_iter().next() {
                let own = format!("{name}.{}", unmet.knob);
                if self.get(&own).is_some() || unmet.is_refused {
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

    /// Checks that every host that can connect does, and that `on` and `to` name suitable hosts.
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
                    "several hosts listen: the pattern sets which host connects to which"
                        .to_string(),
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

    /// Connections that a host opens, over all groups; for the busiest of the hosts that connect.
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

    /// True if a side sends payload in any group.
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

    /// True if all connections are made before the traffic and stay open.
    pub fn all_stand(&self) -> bool {
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

    /// Workload of all groups. `None` if they differ.
    pub fn workload_kind(&self) -> Option<WorkloadKind> {
        let of = |knobs: &Knobs| WorkloadKind::from_word(&knobs.word("workload")?);
        let mut kinds = self.each_group(&of);
        let first = kinds.next()??;
        kinds.all(|kind| kind == Some(first)).then_some(first)
    }

    /// True if the work of all groups is counted in transactions: each has responses.
    pub fn has_transactions(&self) -> bool {
        let of = |knobs: &Knobs| {
            let word = knobs.word("workload").unwrap_or_default();
            let program = knobs.value("program");
            match program.as_ref().and_then(|program| program.program()) {
                // A program in which only the connecting side sends has no responses.
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

    /// Groups as they are on a host: on a host that connects its own, on a host that listens those
    /// of all hosts that connect to it. A group in which the host has no part has no flows there.
    /// `times`: number of times that a forwarding host has each group.
    ///
    /// # Errors
    /// Those of [`Knobs::groups`].
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

    /// Hosts with their sides.
    fn sides(&self) -> Vec<(HostName, Option<Side>)> {
        if let (true, Ok(arranged)) = (self.names_hosts(), self.arranged()) {
            let side = |host: &HostName| (*host, arranged.side(*host));
            return arranged.hosts.iter().map(side).collect();
        }
        let hosts = self.host_names().into_iter();
        hosts.map(|host| (host, self.side(host))).collect()
    }

    /// Pairs of hosts that talk: for named hosts by the pattern, else each connecting host with the
    /// server.
    pub fn traffic(&self) -> Vec<Traffic> {
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

/// Splits a knob's name into its group and the rest. `None` if it is not set for a group.
pub fn group_of(name: &str) -> Option<(HostName, &str)> {
    let (group, rest) = split_host(name);
    let group = group.filter(|_| find(rest).is_some_and(|knob| knob.per_group))?;
    Some((group, rest))
}
