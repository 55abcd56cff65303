//! Warnings of many trials, one line for each code: the number of trials, the range of extents, and the worst
//! text.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{HostName, Warning, WarningCode};

use crate::derive::number::{show, trials};

/// Warnings of one code. Warnings of the code `other` are grouped only if they differ in nothing but numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Warned {
    /// Code of the warnings.
    pub code: WarningCode,
    /// Number of trials.
    pub count: usize,
    /// Text of the worst warning, or of the last one if none has an extent.
    text: String,
    /// Smallest and largest extent, in the unit of [`WarningCode::unit`]; `None` if none has one.
    pub range: Option<(f64, f64)>,
    /// Number of trials in which each host was named.
    pub hosts: BTreeMap<HostName, usize>,
    /// Worst extent and its text, for each host that was named with an extent.
    worst_of: BTreeMap<HostName, (f64, String)>,
    /// Texts that differ from `text`.
    others: BTreeSet<String>,
}

/// Limit on the hosts that a line lists.
const HOSTS_LISTED: usize = 5;

/// Groups the warnings of each trial by code. A trial with a warning about each of both ends counts once.
pub(crate) fn warned<'a>(trials: impl Iterator<Item = &'a [Warning]>) -> Vec<Warned> {
    let mut all: Vec<Warned> = Vec::new();
    for warnings in trials {
        let mut of_trial = Vec::new();
        for warning in warnings {
            add(&mut of_trial, Warned::new(warning), |_, _| 1);
        }
        for warned in of_trial {
            add(&mut all, warned, |one, other| one + other);
        }
    }
    all.sort_by_key(|warned| warned.code);
    all
}

/// Merges the warnings of several cells by code.
pub(crate) fn merge<'a>(warnings: impl Iterator<Item = &'a Warned>) -> Vec<Warned> {
    let mut all = Vec::new();
    for warned in warnings {
        add(&mut all, warned.clone(), |one, other| one + other);
    }
    all.sort_by_key(|warned| warned.code);
    all
}

/// Adds `more` to the entry of its kind. `count` combines two numbers of trials.
fn add(all: &mut Vec<Warned>, more: Warned, count: fn(usize, usize) -> usize) {
    match all.iter_mut().find(|seen| seen.is_like(&more)) {
        Some(seen) => seen.add(more, count),
        None => all.push(more),
    }
}

impl Warned {
    fn new(warning: &Warning) -> Warned {
        let worst = |extent: f64| (extent, warning.text.clone());
        let worst = warning.extent.map(worst);
        let hosts = warning.hosts.iter();
        Warned {
            code: warning.code,
            count: 1,
            text: warning.text.clone(),
            range: warning.extent.map(|extent| (extent, extent)),
            hosts: warning.hosts.iter().map(|&host| (host, 1)).collect(),
            worst_of: hosts
                .filter_map(|&host| Some((host, worst.clone()?)))
                .collect(),
            others: BTreeSet::new(),
        }
    }

    /// True if both are of one kind. Texts of one code differ only in numbers, except those of `other`, whose
    /// words are compared.
    fn is_like(&self, other: &Warned) -> bool {
        let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        let is_other = self.code == WarningCode::Other;
        self.code == other.code && (!is_other || words(&self.text) == words(&other.text))
    }

    fn add(&mut self, more: Warned, count: fn(usize, usize) -> usize) {
        self.others.extend(more.others);
        let sign = if self.code.less_is_worse() { -1.0 } else { 1.0 };
        for (host, (extent, text)) in more.worst_of {
            let known = self.worst_of.get(&host);
            if known.is_none_or(|(known, _)| sign * extent > sign * known) {
                self.worst_of.insert(host, (extent, text));
            }
        }
        let worst = |of: (f64, f64)| f64::max(sign * of.0, sign * of.1);
        let is_worse = match (self.range, more.range) {
            (Some(known), Some(new)) => worst(new) > worst(known),
            (known, new) => known.is_none() || new.is_some(),
        };
        let lesser = if is_worse {
            std::mem::replace(&mut self.text, more.text)
        } else {
            more.text
        };
        self.others.insert(lesser);
        self.others.remove(&self.text);
        self.range = match (self.range, more.range) {
            (Some(known), Some(new)) => Some((known.0.min(new.0), known.1.max(new.1))),
            (known, new) => known.or(new),
        };
        self.count = count(self.count, more.count);
        for (host, trials) in more.hosts {
            let known = self.hosts.entry(host).or_default();
            *known = count(*known, trials).max(trials);
        }
    }

    /// Text of the worst warning. If several hosts were named, the worst of the host that was named most
    /// often, because a host that was named by chance needs no attention.
    pub fn text(&self) -> &str {
        let frequent = self.frequent().filter(|_| self.hosts.len() > 1);
        let of_host = frequent.and_then(|host| self.worst_of.get(&host));
        of_host.map_or(&self.text, |(_, text)| text)
    }

    /// Host that was named in most trials, the first if several are equal.
    fn frequent(&self) -> Option<HostName> {
        let hosts = self.hosts.iter().rev();
        hosts
            .max_by_key(|(_, trials)| **trials)
            .map(|(host, _)| *host)
    }

    /// Sentence such as `7 trials, 60.9 to 96.4 % of the rate; the worst: only 60.9 of …`.
    pub fn sentence(&self) -> String {
        let mut line = trials(self.count);
        if self.hosts.len() > 1 {
            line += &format!(" ({})", self.hosts_by_count());
        }
        let range = self.range.zip(self.code.unit());
        let range = range.map(|((least, most), unit)| (show(least), show(most), unit));
        match range.filter(|(least, most, _)| least != most) {
            Some((least, most, unit)) => {
                let whose = self.frequent().filter(|_| self.hosts.len() > 1);
                let whose = whose.map_or(String::new(), |host| format!(" of {host}"));
                line += &format!(", {least} to {most} {unit}; the worst{whose}");
            }
            None if !self.others.is_empty() => {
                line += &format!(", one of {} texts", 1 + self.others.len());
            }
            None => {}
        }
        format!("{line}: {}", self.text())
    }

    /// Text such as `n3 in 12, n2 in 1`, most frequent first.
    fn hosts_by_count(&self) -> String {
        let mut hosts: Vec<(&HostName, usize)> = self.hosts.iter().map(|(h, &n)| (h, n)).collect();
        hosts.sort_by_key(|&(_, trials)| std::cmp::Reverse(trials));
        let listed = hosts.iter().take(HOSTS_LISTED);
        let mut parts: Vec<String> = listed
            .map(|(host, trials)| format!("{host} in {trials}"))
            .collect();
        if hosts.len() > HOSTS_LISTED {
            parts.push(format!("{} more hosts", hosts.len() - HOSTS_LISTED));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(trials: &[&[Warning]]) -> Vec<String> {
        let all = warned(trials.iter().copied());
        all.iter().map(Warned::sentence).collect()
    }

    #[test]
    fn the_worst_is_shown_with_the_range() {
        let warning = |code, extent: f64| Warning::new(code, format!("{extent}")).extent(extent);
        let rate = |extent| [warning(WarningCode::RateMissed, extent)];
        let steal = |extent| [warning(WarningCode::Steal, extent)];
        let told = sentences(&[
            &rate(96.4),
            &rate(60.87),
            &rate(90.0),
            &steal(1.25),
            &steal(32.5),
            &steal(2.0),
        ]);
        let expected = [
            "3 trials, 1.25 to 32.5 %; the worst: 32.5",
            "3 trials, 60.9 to 96.4 % of the rate; the worst: 60.87",
        ];
        assert_eq!(told, expected);
        assert_eq!(sentences(&[&steal(32.5)]), ["1 trial: 32.5"]);
        // Old records have no extents.
        let old = |text: &str| [Warning::new(WarningCode::Steal, text)];
        let told = sentences(&[&old("1 %"), &old("32 %"), &old("2 %")]);
        assert_eq!(told, ["3 trials, one of 3 texts: 2 %"]);
    }

    #[test]
    fn hosts_are_told_by_their_counts() {
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let slow = |text: &str, extent, hosts: &[&str]| {
            let hosts = hosts.iter().map(|name| host(name)).collect();
            let warning = Warning::new(WarningCode::Straggler, text);
            [warning.extent(extent).of(hosts)]
        };
        let often = slow("n3 40 %", 40.0, &["n3"]);
        let once = slow("n2 6 %", 6.0, &["n2"]);
        let told = sentences(&[&often, &often, &once]);
        let expected =
            "3 trials (n3 in 2, n2 in 1), 6.00 to 40.0 % of the median; the worst of n3: n3 40 %";
        assert_eq!(told, [expected]);
        let cells = [
            warned([&often[..]].into_iter()),
            warned([&once[..]].into_iter()),
        ];
        let merged = merge(cells.iter().flatten());
        assert_eq!((merged.len(), merged[0].count), (1, 2));
        assert_eq!(merged[0].hosts, [(host("n2"), 1), (host("n3"), 1)].into());
    }

    #[test]
    fn a_trial_that_warns_of_both_its_ends_is_one_trial() {
        let warning = |host, extent| {
            let warning = Warning::new(WarningCode::Preempted, format!("the {host}'s"));
            warning.extent(extent).of(vec![host])
        };
        let [client, server] = HostName::PAIR;
        let trial = [warning(client, 300.0), warning(server, 900.0)];
        let told = sentences(&[&trial, &trial[..1]]);
        let expected = "2 trials (client in 2, server in 1), 300 to 900 times a second; the worst of client: the client's";
        assert_eq!(told, [expected]);
    }

    #[test]
    fn other_warnings_are_folded_if_they_differ_in_nothing_but_numbers() {
        let other = |text: &str| [Warning::new(WarningCode::Other, text)];
        let told = sentences(&[
            &other("no steering"),
            &other("no eBPF"),
            &other("CPU 0 was not idle (9.5 %)"),
            &other("CPU 1 was not idle (12.0 %)"),
            &other("no steering"),
        ]);
        let expected = [
            "2 trials: no steering",
            "1 trial: no eBPF",
            "2 trials, one of 2 texts: CPU 1 was not idle (12.0 %)",
        ];
        assert_eq!(told, expected);
    }
}
