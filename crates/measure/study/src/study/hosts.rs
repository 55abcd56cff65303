//! `[hosts]` of a study file: the hosts that take part, and the way to reach each. An entry
//! consists of knobs of a host (`reach`, `device`, `address` and others), so that a command line
//! can set them as well (`--set client.reach=ssh:alpha`).

use std::ops::RangeInclusive;

use toml::de::DeValue;

use crate::parse::{Section, StudyError};
use crate::raw::{Raw, raw};
use tcpcost_knobs::{FileTable, HostName, KNOBS, Reach};

use super::cells::{CommonKnobs, KnobPlace};

/// Reads `[hosts]`. Returns the hosts that stand for all nodes of a job, if the key is `"*"`.
///
/// A key may contain a range, such as `"node[1-16]"`; the numbers in each `[1-16]` of its values
/// advance with it.
pub(super) fn hosts(
    mut section: Section<'_>,
    base: &mut CommonKnobs,
) -> Result<Option<[HostName; 2]>, StudyError> {
    let mut every_node = false;
    let entries = section.rest();
    let count = entries.len();
    for (key, span, value) in entries {
        let wrong = |what: String| section.error(span.clone(), &key, what);
        if key == EVERY_NODE && count > 1 {
            return Err(wrong(
                "every node of a job is a host: name no others".to_string(),
            ));
        }
        every_node |= key == EVERY_NODE;
        let hosts = match key.as_str() {
            EVERY_NODE => PLACEHOLDERS,
            named => named,
        };
        let range = Range::of(hosts).ok_or_else(|| {
            wrong(format!(
                "expected a range such as [1-16], of {HOSTS_MAX} at most"
            ))
        })?;
        let wrong_length = |inside: &str| wrong(format!("[{inside}] is not as many as the key's"));
        let settings: Vec<(String, Raw)> = match value.get_ref() {
            DeValue::String(reach) => vec![("reach".to_string(), Raw::Text(reach.to_string()))],
            DeValue::Table(_) => match raw(value.get_ref()) {
                Raw::Table(entries) => entries,
                _ => unreachable!("a table is one"),
            },
            _ => {
                let expected = "expected a reach, such as \"ssh:alpha\", or { reach = \"ssh:alpha\", device = \"eth0\" }";
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
            let name = range.text(hosts, number).map_err(wrong_length)?;
            let host: HostName = name
                .parse()
                .map_err(|error| wrong(format!("{name} is {error}")))?;
            if base.knobs.get(&format!("{host}.reach")).is_some() {
                return Err(wrong(format!("{host} is named twice")));
            }
            for (knob, value) in &settings {
                let row = KNOBS.iter().find(|row| row.key == knob);
                if !row.is_some_and(|row| row.per_end && row.table == FileTable::Bed) {
                    return Err(wrong(format!(
                        "{knob} is no knob of a host; `tcpcost study knobs` lists them"
                    )));
                }
                let value = match value {
                    Raw::Text(text) => Raw::Text(range.text(text, number).map_err(wrong_length)?),
                    other => other.clone(),
                };
                let full = format!("{host}.{knob}");
                base.knobs
                    .set_raw(&full, &value)
                    .map_err(|error| wrong(format!("{knob}: {}", error.reason)))?;
                base.places.push(KnobPlace {
                    knob: full,
                    key: section.full(&key),
                    span: span.clone(),
                });
            }
        }
    }
    let placed = PLACED.map(|name| name.parse().expect("a name"));
    let is_slurm = base.knobs.reach(placed[0]) == Some(Reach::Slurm(None));
    match every_node {
        false => Ok(None),
        true if is_slurm => Ok(Some(placed)),
        true => Err(section.error(
            0..0,
            EVERY_NODE,
            "expected \"slurm\": only a job's nodes are known in advance",
        )),
    }
}

/// Key for all nodes of a job. Their names are known only within the job.
const EVERY_NODE: &str = "*";
/// Hosts in place of the nodes, so that a file can be checked without a job.
const PLACEHOLDERS: &str = "node[1-2]";
const PLACED: [&str; 2] = ["node1", "node2"];

/// Limit of hosts. More is a mistake: each has an agent, to which the command holds a pipe.
const HOSTS_MAX: u32 = 1000;

/// Range of numbers in a key such as `node[1-16]`. `None` for a key without a range.
struct Range(Option<RangeInclusive<u32>>);

impl Range {
    /// Range of a key. `None` if it is no range, or has more than [`HOSTS_MAX`] numbers.
    fn of(key: &str) -> Option<Range> {
        let Some((_, inside, _)) = bracket(key) else {
            return Some(Range(None));
        };
        let range = numbers(inside)?;
        let is_sound = !range.is_empty() && range.end() - range.start() < HOSTS_MAX;
        is_sound.then_some(Range(Some(range)))
    }

    fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        self.0.clone().unwrap_or(0..=0)
    }

    /// Text with its range replaced by the number at the same position as `number` in the key's
    /// range.
    ///
    /// The error is a range of another length.
    fn text<'t>(&self, text: &'t str, number: u32) -> Result<String, &'t str> {
        let (Some(own), Some((before, inside, after))) = (&self.0, bracket(text)) else {
            return Ok(text.to_string());
        };
        let Some(range) = numbers(inside) else {
            return Ok(text.to_string()); // The brackets may belong to an IPv6 address.
        };
        if range.clone().count() != own.clone().count() {
            return Err(inside);
        }
        let number = range.start() + (number - own.start());
        // Numbers have the width of the range's first number: node[01-16].
        let width = inside.split_once('-').map_or(0, |(first, _)| first.len());
        Ok(format!("{before}{number:0width$}{after}"))
    }
}

/// Splits a text at the first pair of brackets: before, inside, after. `None` without brackets.
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
            ("[bed]\nreach = \"local\"\n", "belongs to a named host"),
            ("[bed]\npattern = \"ring\"\n", "needs reach"),
            (
                "[hosts]\n\"*\" = \"slurm\"\nclient = \"local\"\n",
                "name no others",
            ),
            ("[hosts]\n\"*\" = \"local\"\n", "expected \"slurm\""),
        ] {
            let error = error(hosts);
            assert!(error.contains(expected), "{hosts}: {error}");
        }
    }

    #[test]
    fn every_node_of_a_job_is_a_host_once_the_job_is_known() {
        let text = "[hosts]\n\"*\" = { reach = \"slurm\", device = \"ib0\" }\n[bed]\npattern = \"rounds\"\n";
        let mut study = Study::parse("x", text, "x.toml").unwrap();
        assert!(study.awaits_nodes());
        let names: Vec<HostName> = ["n1", "n2", "n10"]
            .map(|name| name.parse().unwrap())
            .to_vec();
        study.expand_nodes(&names).unwrap();
        assert!(!study.awaits_nodes());
        assert_eq!(study.only_hosts().unwrap(), names);
        let whole = Topology::of(Bed::Hosts, &study.cells[0].knobs).unwrap();
        assert_eq!(whole.hosts.len(), 3);
        assert!(
            whole
                .links
                .iter()
                .all(|link| link.a.device == "ib0" && link.b.device == "ib0")
        );
        let knobs = &study.cells[0].knobs;
        let pairs: Vec<String> = (0..3)
            .map(|number| {
                let round = Topology::in_repetition(Bed::Hosts, knobs, number).unwrap();
                let talking = round.without_resting(knobs);
                assert_eq!((talking.hosts.len(), talking.links.len()), (2, 1));
                format!("{}>{}", talking.traffic[0].on, talking.traffic[0].to)
            })
            .collect();
        assert_eq!(pairs, ["n2>n10", "n10>n1", "n1>n2"]);
    }

    #[test]
    fn a_study_of_namespaces_can_have_its_hosts_on_nodes() {
        let text =
            "[bed]\nkind = \"netns\"\ntopology = \"star\"\nclients = 3\n\"clients.mtu\" = 9000\n";
        let mut study = Study::parse("x", text, "x.toml").unwrap();
        study.reach_hosts(&Reach::Slurm(None)).unwrap();
        let topology = Topology::of(Bed::Hosts, &study.cells[0].knobs).unwrap();
        assert_eq!((topology.hosts.len(), topology.traffic.len()), (4, 3));
        assert!(
            topology
                .hosts
                .iter()
                .all(|host| host.reach == Reach::Slurm(None))
        );
    }
}
