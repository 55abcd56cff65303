//! Nodes that Slurm has allocated to the job of this process, and the host of each node.

use std::env;
use std::process::Command;

use anyhow::{Context, bail};
use tcpcost_console::exit::usage;
use tcpcost_study::{HostName, Reach, Topology};

/// Nodes of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// The job's id.
    pub job: String,
    /// Slurm's names of the nodes, in Slurm's order; at least one.
    pub nodes: Vec<String>,
    /// Group of each node in a heterogeneous job, in the order of `nodes`; empty for other jobs.
    pub groups: Vec<u32>,
}

impl Allocation {
    /// Returns the nodes of the job that this process is part of; `None` outside of a job.
    ///
    /// # Errors
    /// Slurm does not report the job's nodes.
    pub fn here() -> anyhow::Result<Option<Allocation>> {
        let Ok(job) = env::var("SLURM_JOB_ID") else {
            return Ok(None);
        };
        let list =
            |name: &str| env::var(name).with_context(|| format!("job {job}: {name} is not set"));
        let groups = env::var("SLURM_HET_SIZE")
            .ok()
            .and_then(|size| size.parse().ok());
        let (mut nodes, mut of_groups) = (Vec::new(), Vec::new());
        match groups {
            None => nodes = names(&list("SLURM_JOB_NODELIST")?)?,
            Some(groups) => {
                for group in 0..groups {
                    let of = names(&list(&format!("SLURM_JOB_NODELIST_HET_GROUP_{group}"))?)?;
                    of_groups.extend(of.iter().map(|_| group));
                    nodes.extend(of);
                }
            }
        }
        Ok(Some(Allocation {
            job,
            nodes,
            groups: of_groups,
        }))
    }

    /// Group of a node in a heterogeneous job; `None` in other jobs.
    pub fn group_of(&self, node: &str) -> Option<u32> {
        let place = self.nodes.iter().position(|own| own == node)?;
        self.groups.get(place).copied()
    }

    /// Names of hosts for the nodes, in their order: Slurm's names without the domain if all of them are valid and different,
    /// else `node1`, `node2`, …
    pub fn host_names(&self) -> Vec<HostName> {
        let names: Option<Vec<HostName>> = self.nodes.iter().map(|node| host_name(node)).collect();
        let is_each_once = |names: &Vec<HostName>| {
            let mut sorted = names.clone();
            sorted.sort_unstable();
            sorted.windows(2).all(|two| two[0] != two[1])
        };
        names.filter(is_each_once).unwrap_or_else(|| {
            let node: HostName = "node".parse().expect("a name");
            let numbered = |number| node.numbered(number).expect("eight digits are left");
            (1..=self.nodes.len()).map(numbered).collect()
        })
    }

    /// Places each host that is reached by Slurm on a node: the node that the study names, else the node with the host's name,
    /// else the next free node. Both halves of a host that connects and listens are on the same node.
    ///
    /// # Errors
    /// The job has too few nodes, or lacks a node that the study names.
    pub fn place(&self, topology: &mut Topology) -> anyhow::Result<()> {
        let job = &self.job;
        let mut left: Vec<&String> = self.nodes.iter().collect();
        let mut take = |is_it: &dyn Fn(&str) -> bool| {
            let found = left.iter().position(|node| is_it(node))?;
            Some(left.remove(found).clone())
        };
        let mut nodes: Vec<(HostName, String)> = Vec::new();
        for host in &topology.hosts {
            if let Reach::Slurm(Some(node)) = &host.reach {
                let found = take(&|own| own == node).ok_or_else(|| {
                    let there = self.nodes.join(" ");
                    usage(format!(
                        "{}: job {job} has no node {node} left for it; its nodes are {there}",
                        host.name
                    ))
                })?;
                nodes.push((host.name, found));
            }
        }
        let places = |host: HostName, nodes: &[(HostName, String)]| {
            let mut placed = nodes.iter();
            placed
                .find(|(placed, _)| *placed == host)
                .map(|(_, node)| node.clone())
        };
        let any = topology
            .hosts
            .iter()
            .filter(|host| host.reach == Reach::Slurm(None));
        let any: Vec<HostName> = any.map(|host| host.name).collect();
        let whole: Vec<HostName> = any
            .iter()
            .copied()
            .filter(|host| host.half_of().is_none())
            .collect();
        for &host in &whole {
            if let Some(node) = take(&|own| host_name(own) == Some(host)) {
                nodes.push((host, node));
            }
        }
        for &host in &whole {
            if places(host, &nodes).is_none() {
                let next = take(&|_| true).ok_or_else(|| {
                    let (nodes, hosts) = (self.nodes.len(), whole.len());
                    usage(format!(
                        "{host}: no node is left for it: job {job} has {nodes} for {hosts} hosts"
                    ))
                })?;
                nodes.push((host, next));
            }
        }
        for host in &mut topology.hosts {
            if let Reach::Slurm(pinned) = &host.reach {
                let placed = || places(host.name.half_of().unwrap_or(host.name), &nodes);
                let node = pinned.clone().or_else(placed);
                host.reach = Reach::Slurm(Some(node.expect("each has got one")));
            }
        }
        Ok(())
    }
}

/// Expands a list of nodes such as `cn[01-04,7]-ib` by scontrol; at least one name.
fn names(list: &str) -> anyhow::Result<Vec<String>> {
    let output = Command::new("scontrol")
        .args(["show", "hostnames", list])
        .output()
        .context("start scontrol")?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let said = text.lines().next().unwrap_or_default();
        bail!("scontrol show hostnames {list}: {said}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let nodes: Vec<String> = text.split_whitespace().map(String::from).collect();
    if nodes.is_empty() {
        bail!("scontrol show hostnames {list}: no names");
    }
    Ok(nodes)
}

/// Name of a host for a node, without the domain; `None` if no host can have that name.
fn host_name(node: &str) -> Option<HostName> {
    let short = node.split('.').next().unwrap_or_default();
    short.to_ascii_lowercase().parse().ok()
}

#[cfg(test)]
mod tests {
    use tcpcost_study::{Bed, Study};

    use super::*;

    fn allocation(names: &[&str]) -> Allocation {
        Allocation {
            job: "17".to_string(),
            nodes: names.iter().map(|name| name.to_string()).collect(),
            groups: Vec::new(),
        }
    }

    #[test]
    fn hosts_are_called_as_their_nodes_are_where_they_can_be() {
        let names = |of: &[&str]| {
            let names = allocation(of).host_names();
            names.iter().map(HostName::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(&["cn-001", "CN2.example.org"]), ["cn-001", "cn2"]);
        assert_eq!(names(&["a.x", "a.y"]), ["node1", "node2"]);
        assert_eq!(names(&["n1", "compute-node-0001"]), ["node1", "node2"]);
    }

    fn placed(hosts: &str, nodes: &[&str]) -> Result<Vec<String>, String> {
        placed_in(&allocation(nodes), hosts)
    }

    fn placed_in(allocation: &Allocation, hosts: &str) -> Result<Vec<String>, String> {
        let study = Study::parse("x", hosts, "x.toml").unwrap();
        let mut topology = Topology::of(Bed::Hosts, &study.cells[0].knobs).unwrap();
        let placed = allocation.place(&mut topology);
        placed.map_err(|error| error.to_string())?;
        let each = topology.hosts.iter();
        Ok(each
            .map(|host| format!("{}={}", host.name, host.reach))
            .collect())
    }

    #[test]
    fn each_host_has_a_node_of_its_own() {
        let pair = "[hosts]\nclient = \"slurm\"\nserver = \"slurm\"\n";
        assert_eq!(
            placed(pair, &["n1", "n2", "n3"]).unwrap(),
            ["client=slurm:n1", "server=slurm:n2"]
        );
        let named = "[hosts]\n\"n[1-2]\" = \"slurm\"\n";
        assert_eq!(
            placed(named, &["n2", "n1"]).unwrap(),
            ["n1=slurm:n1", "n2=slurm:n2"]
        );
        let pinned = "[hosts]\nclient = \"slurm\"\nserver = \"slurm:n1\"\n";
        assert_eq!(
            placed(pinned, &["n1", "n2"]).unwrap(),
            ["client=slurm:n2", "server=slurm:n1"]
        );
        let mixed = "[hosts]\nclient = \"local\"\nserver = \"slurm\"\n";
        assert_eq!(
            placed(mixed, &["n1"]).unwrap(),
            ["client=local", "server=slurm:n1"]
        );
        let ring = "[hosts]\n\"n[1-2]\" = \"slurm\"\n[bed]\npattern = \"ring\"\n";
        let halves = [
            "n1=slurm:n1",
            "n2=slurm:n2",
            "in-n1=slurm:n1",
            "in-n2=slurm:n2",
        ];
        assert_eq!(placed(ring, &["n1", "n2"]).unwrap(), halves);
    }

    #[test]
    fn a_node_that_is_missing_is_told_by_name() {
        let pair = "[hosts]\nclient = \"slurm\"\nserver = \"slurm\"\n";
        let error = placed(pair, &["n1"]).unwrap_err();
        assert_eq!(
            error,
            "server: no node is left for it: job 17 has 1 for 2 hosts"
        );
        let pinned = "[hosts]\nclient = \"slurm\"\nserver = \"slurm:n9\"\n";
        let error = placed(pinned, &["n1", "n2"]).unwrap_err();
        assert_eq!(
            error,
            "server: job 17 has no node n9 left for it; its nodes are n1 n2"
        );
    }
}
