//! `[hosts]` of a study file: who takes part, and how each is reached. Each entry is knobs of a host: `reach`, `device`,
//! `address` and whatever else a host has, so that a command line can set them as well (`--set client.reach=ssh:alpha`).

use std::ops::RangeInclusive;

use toml::de::DeValue;

use crate::host_name::HostName;
use crate::knobs::KNOBS;
use crate::parse::{Section, StudyError};
use crate::raw::{Raw, raw};
use crate::row::Group;

use super::cells::{Base, KnobPlace};

/// Reads it. A key may be a range such as `"node[1-16]"`; each `[1-16]` of its values is counted along.
pub(super) fn hosts(mut section: Section<'_>, base: &mut Base) -> Result<(), StudyError> {
    for (key, span, value) in section.rest() {
        let wrong = |what: String| section.error(span.clone(), &key, what);
        let range = Range::of(&key).map_err(wrong)?;
        let settings: Vec<(String, Raw)> = match value.get_ref() {
            DeValue::String(reach) => vec![("reach".to_string(), Raw::Text(reach.to_string()))],
            DeValue::Table(_) => match raw(value.get_ref()) {
                Raw::Table(entries) => entries,
                _ => unreachable!("a table is one"),
            },
            _ => {
                let expected = "expected how it is reached, such as \"ssh:alpha\", or { reach = \"ssh:alpha\", device = \"eth0\" }";
                return Err(section.error(value.span(), &key, expected));
            }
        };
        if !settings.iter().any(|(name, _)| name == "reach") {
            return Err(section.error(
                value.span(),
                &key,
                "reach is missing, such as \"ssh:alpha\"",
            ));
        }
        for number in range.numbers() {
            let name = range.text(&key, number).map_err(wrong)?;
            let host: HostName = name
                .parse()
                .map_err(|error| wrong(format!("{name} is {error}")))?;
            if base.knobs.get(&format!("{host}.reach")).is_some() {
                return Err(wrong(format!("{host} is named twice")));
            }
            for (knob, value) in &settings {
                let row = KNOBS.iter().find(|row| row.key == knob);
                if !row.is_some_and(|row| row.per_end && row.group == Group::Bed) {
                    return Err(wrong(format!(
                        "{knob} is no knob of a host; `tcpcost knobs` lists them"
                    )));
                }
                let value = match value {
                    Raw::Text(text) => Raw::Text(range.text(text, number).map_err(wrong)?),
                    other => other.clone(),
                };
                let full = format!("{host}.{knob}");
                base.knobs
                    .set_raw(&full, &value)
                    .map_err(|error| wrong(format!("{knob}: {}", error.expected)))?;
                base.places.push(KnobPlace {
                    knob: full,
                    key: section.full(&key),
                    span: span.clone(),
                });
            }
        }
    }
    Ok(())
}

/// More is a slip: an agent each, which the command holds a pipe to.
const HOSTS_MAX: u32 = 1000;

/// The numbers of a key such as `node[1-16]`; a key without any stands for itself.
struct Range(Option<RangeInclusive<u32>>);

impl Range {
    fn of(key: &str) -> Result<Range, String> {
        let Some((_, inside, _)) = bracket(key) else {
            return Ok(Range(None));
        };
        let range = numbers(inside)
            .filter(|range| !range.is_empty() && range.end() - range.start() < HOSTS_MAX)
            .ok_or_else(|| format!("expected a range such as [1-16], of {HOSTS_MAX} at most"))?;
        Ok(Range(Some(range)))
    }

    fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        self.0.clone().unwrap_or(0..=0)
    }

    /// A text with its range counted along to where the key's is at this number.
    fn text(&self, text: &str, number: u32) -> Result<String, String> {
        let (Some(own), Some((before, inside, after))) = (&self.0, bracket(text)) else {
            return Ok(text.to_string());
        };
        let Some(range) = numbers(inside) else {
            return Ok(text.to_string()); // An IPv6 address, say.
        };
        if range.clone().count() != own.clone().count() {
            return Err(format!("[{inside}] is not as many as the key's"));
        }
        let number = range.start() + (number - own.start());
        // As many digits as the range is written with: node[01-16].
        let width = inside.split_once('-').map_or(0, |(first, _)| first.len());
        Ok(format!("{before}{number:0width$}{after}"))
    }
}

/// What is before, in and after the first brackets.
fn bracket(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('[')?;
    let (inside, after) = rest.split_once(']')?;
    Some((before, inside, after))
}

fn numbers(inside: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = inside.split_once('-')?;
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use crate::{Bed, HostName, Reach, Study, Topology};

    fn topology(hosts: &str) -> Topology {
        let study = Study::parse("x", hosts, "x.toml").unwrap();
        Topology::of(Bed::Hosts, &study.cells[0].knobs).unwrap()
    }

    fn error(hosts: &str) -> String {
        Study::parse("x", hosts, "x.toml").unwrap_err().to_string()
    }

    #[test]
    fn two_hosts_by_ssh_are_a_client_and_a_server() {
        let text = "[hosts]\nclient = \"ssh:alpha\"\nserver = { reach = \"local\", device = \"eth0\", address = \"192.0.2.2\", mtu = 9000 }\n";
        let study = Study::parse("x", text, "x.toml").unwrap();
        let knobs = &study.cells[0].knobs;
        assert_eq!(
            knobs.value_at(HostName::SERVER, "mtu").unwrap().to_string(),
            "9000B"
        );
        let topology = topology(text);
        let reach = |host| topology.host(host).unwrap().reach.clone();
        assert_eq!(reach(HostName::CLIENT), Reach::Ssh("alpha".to_string()));
        assert_eq!(reach(HostName::SERVER), Reach::Local);
        let link = &topology.links[0];
        assert_eq!(
            (link.a.device.as_str(), link.b.device.as_str()),
            ("", "eth0")
        );
        assert_eq!(link.b.address.to_string(), "192.0.2.2");
        assert!(link.a.address.is_unspecified());
    }

    #[test]
    fn a_range_makes_a_host_of_each_number() {
        let topology = topology(
            "[hosts]\n\"client[1-15]\" = \"ssh:lab[01-15].example\"\nserver = \"ssh:big\"\n[bed]\nclients.mtu = 9000\n",
        );
        assert_eq!(topology.hosts.len(), 16);
        assert_eq!(topology.traffic.len(), 15);
        let reach = |name: &str| {
            topology
                .host(name.parse().unwrap())
                .unwrap()
                .reach
                .to_string()
        };
        assert_eq!(reach("client1"), "ssh:lab01.example");
        assert_eq!(reach("client15"), "ssh:lab15.example");
    }

    #[test]
    fn hosts_that_are_wrong_are_told_by_name() {
        for (hosts, expected) in [
            (
                "[hosts]\nclient = \"telnet:a\"\nserver = \"local\"\n",
                "expected \"local\", \"netns\"",
            ),
            ("[hosts]\nclient = \"local\"\n", "two hosts at least"),
            (
                "[hosts]\nclient = { device = \"eth0\" }\nserver = \"local\"\n",
                "reach is missing",
            ),
            (
                "[hosts]\nclient = { reach = \"local\", flows = 2 }\n",
                "flows is no knob of a host",
            ),
            (
                "[hosts]\nclient = { reach = \"local\", device = \"../x\" }\nserver = \"local\"\n",
                "a device's name",
            ),
            ("[hosts]\n\"n[1-3]\" = \"slurm\"\n", "even number of hosts"),
            ("[hosts]\n\"n[1-4]\" = \"ssh:a[1-3]\"\n", "not as many"),
            ("[hosts]\n\"n[4-1]\" = \"slurm\"\n", "expected a range"),
            ("[hosts]\nClient = \"local\"\n", "no name of a host"),
            (
                "[hosts]\nn1 = \"local\"\n\"n[1-2]\" = \"local\"\n",
                "named twice",
            ),
            ("[bed]\nreach = \"local\"\n", "of each host by its name"),
            ("[bed]\npattern = \"ring\"\n", "needs reach"),
        ] {
            let error = error(hosts);
            assert!(error.contains(expected), "{hosts}: {error}");
        }
    }
}
