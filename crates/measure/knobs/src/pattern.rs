//! Patterns of connections among the hosts that a study names.

use crate::host_name::HostName;
use crate::knob_error::KnobError;
use crate::rounds::round;
use crate::side::Side;
use crate::traffic::Traffic;
use crate::words::words;

words! {
    /// Pattern of connections: which host connects to which.
    Pattern {
        /// Pattern that the names and their numbers suggest.
        Auto = "auto",
        /// Pairs: each host that connects has a listening host of its own.
        Pairs = "pairs",
        /// All hosts but one connect to that one.
        ManyToOne = "many-to-one",
        /// One host connects to all others.
        OneToMany = "one-to-many",
        /// Each host connects to each other.
        AllToAll = "all-to-all",
        /// Each host connects to the next, the last to the first.
        Ring = "ring",
        /// Pairs that differ in each repetition, until every host has met every other.
        Rounds = "rounds",
    }
}

/// Hosts of a trial in the order of its phases, and their traffic. A machine that both connects and
/// listens is two hosts: itself, and a listening half, whose name begins with `in-`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Arranged {
    /// Hosts, in the order in which the phases of a trial go through them.
    pub hosts: Vec<HostName>,
    /// Pairs of hosts that talk.
    pub traffic: Vec<Traffic>,
}

/// Prefix of the name of a machine's listening half.
const LISTENING: &str = "in-";

impl HostName {
    /// Name of the listening half of this machine.
    fn listening(self) -> Result<HostName, KnobError> {
        let name = format!("{LISTENING}{self}");
        let too_long = |_| {
            wrong(format!(
                "{self} listens, too, as {name}, which is too long a name"
            ))
        };
        name.parse().map_err(too_long)
    }

    /// Host whose listening half this is. `None` if it is no listening half.
    pub fn half_of(self) -> Option<HostName> {
        self.as_str().strip_prefix(LISTENING)?.parse().ok()
    }
}

/// Creates the error of a pattern.
fn wrong(reason: impl Into<String>) -> KnobError {
    KnobError::new("pattern", reason)
}

impl Arranged {
    /// Arranges these hosts, which are sorted, by a pattern.
    ///
    /// # Errors
    /// The pattern does not allow this number of hosts.
    pub fn new(pattern: Pattern, named: &[HostName]) -> Result<Arranged, KnobError> {
        let count = named.len();
        if count < 2 {
            return Err(wrong(format!(
                "two hosts at least take part, and {count} is named"
            )));
        }
        if let Some(half) = named.iter().find(|name| name.half_of().is_some()) {
            return Err(wrong(format!(
                "{half} is the name of a listening half: rename the host"
            )));
        }
        if pattern == Pattern::Rounds {
            return Ok(Arranged::in_round(named, 0));
        }
        let of = |host: HostName| -> Vec<HostName> {
            let names = named.iter().copied();
            names.filter(|name| name.is_one_of(host)).collect()
        };
        let (clients, servers) = (of(HostName::CLIENT), of(HostName::SERVER));
        let mut hosts = named.to_vec();
        let has_sides = !clients.is_empty() && !servers.is_empty();
        let traffic = if has_sides && clients.len() + servers.len() == count {
            of_sides(pattern, &clients, &servers)?
        } else if matches!(pattern, Pattern::AllToAll | Pattern::Ring) {
            let listening: Result<Vec<HostName>, KnobError> =
                named.iter().map(|host| host.listening()).collect();
            let listening = listening?;
            hosts.extend(&listening);
            of_halves(pattern, named, &listening)
        } else {
            of_equals(pattern, named)?
        };
        Ok(Arranged { hosts, traffic })
    }

    /// Arranges the pairs of a round. If the number of hosts is odd, one has no traffic.
    pub fn in_round(named: &[HostName], number: usize) -> Arranged {
        let pairs = round(named.len(), number).into_iter();
        Arranged {
            hosts: named.to_vec(),
            traffic: pairs.map(|(on, to)| pair(&named[on], &named[to])).collect(),
        }
    }

    /// Side of a host. `None` if it has no traffic.
    pub fn side(&self, host: HostName) -> Option<Side> {
        self.traffic.iter().find_map(|traffic| match host {
            _ if traffic.on == host => Some(Side::Connects),
            _ if traffic.to == host => Some(Side::Listens),
            _ => None,
        })
    }
}

/// Traffic of clients with servers.
fn of_sides(
    pattern: Pattern,
    clients: &[HostName],
    servers: &[HostName],
) -> Result<Vec<Traffic>, KnobError> {
    let (here, there) = (clients.len(), servers.len());
    let differ = format!("there are {here} clients and {there} servers");
    let word = pattern.word();
    match pattern {
        Pattern::Auto | Pattern::Pairs if here == there => Ok(clients
            .iter()
            .zip(servers)
            .map(|(on, to)| pair(on, to))
            .collect()),
        Pattern::Auto if here == 1 || there == 1 => Ok(each_with_each(clients, servers)),
        Pattern::ManyToOne if there == 1 => Ok(each_with_each(clients, servers)),
        Pattern::OneToMany if here == 1 => Ok(each_with_each(clients, servers)),
        Pattern::AllToAll => Ok(each_with_each(clients, servers)),
        Pattern::Ring => Err(wrong(format!(
            "{word} is of hosts that are all alike, not of clients and servers"
        ))),
        Pattern::Auto => Err(wrong(format!("{differ}: say which pattern"))),
        _ => Err(wrong(format!("{differ}, which is no {word}"))),
    }
}

/// Traffic of hosts that are all alike, each of which either connects or listens.
fn of_equals(pattern: Pattern, named: &[HostName]) -> Result<Vec<Traffic>, KnobError> {
    let (first, others) = named.split_at(1);
    match pattern {
        Pattern::ManyToOne => Ok(each_with_each(others, first)),
        Pattern::OneToMany => Ok(each_with_each(first, others)),
        _ if named.len().is_multiple_of(2) => {
            Ok(named.chunks(2).map(|two| pair(&two[0], &two[1])).collect())
        }
        _ => Err(wrong(format!(
            "pairs are of an even number of hosts, and there are {}",
            named.len()
        ))),
    }
}

/// Traffic of hosts that both connect and listen. Each begins with its neighbour, so that not all
/// connect to the first at once.
fn of_halves(pattern: Pattern, named: &[HostName], listening: &[HostName]) -> Vec<Traffic> {
    let count = named.len();
    let last = if pattern == Pattern::Ring {
        1
    } else {
        count - 1
    };
    let from = |place: usize| {
        (1..=last).map(move |step| pair(&named[place], &listening[(place + step) % count]))
    };
    (0..count).flat_map(from).collect()
}

fn each_with_each(clients: &[HostName], servers: &[HostName]) -> Vec<Traffic> {
    let each = |on| servers.iter().map(move |to| pair(on, to));
    clients.iter().flat_map(each).collect()
}

fn pair(on: &HostName, to: &HostName) -> Traffic {
    Traffic { on: *on, to: *to }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(pattern: Pattern, names: &[&str]) -> Result<String, KnobError> {
        let names: Vec<HostName> = names.iter().map(|name| name.parse().unwrap()).collect();
        let traffic = Arranged::new(pattern, &names)?.traffic;
        let each = traffic
            .iter()
            .map(|traffic| format!("{}>{}", traffic.on, traffic.to));
        Ok(each.collect::<Vec<_>>().join(" "))
    }

    fn check(pattern: Pattern, names: &[&str], expected: &str) {
        assert_eq!(
            arranged(pattern, names).as_deref(),
            Ok(expected),
            "{pattern:?} {names:?}"
        );
    }

    #[test]
    fn clients_connect_to_servers() {
        let four = ["client1", "client2", "server1", "server2"];
        check(Pattern::Auto, &["client", "server"], "client>server");
        check(Pattern::Auto, &four, "client1>server1 client2>server2");
        check(
            Pattern::Auto,
            &["client1", "client2", "server"],
            "client1>server client2>server",
        );
        check(
            Pattern::OneToMany,
            &["client", "server1", "server2"],
            "client>server1 client>server2",
        );
        check(
            Pattern::AllToAll,
            &four,
            "client1>server1 client1>server2 client2>server1 client2>server2",
        );
        assert!(arranged(Pattern::ManyToOne, &four).is_err());
        assert!(
            arranged(
                Pattern::Auto,
                &["client1", "client2", "client3", "server1", "server2"]
            )
            .is_err()
        );
    }

    #[test]
    fn hosts_that_are_alike_connect_by_their_order() {
        let four = ["n1", "n2", "n3", "n4"];
        check(Pattern::Auto, &four, "n1>n2 n3>n4");
        check(Pattern::ManyToOne, &four, "n2>n1 n3>n1 n4>n1");
        check(Pattern::OneToMany, &four[..3], "n1>n2 n1>n3");
        check(Pattern::Ring, &four[..3], "n1>in-n2 n2>in-n3 n3>in-n1");
        check(
            Pattern::AllToAll,
            &four[..3],
            "n1>in-n2 n1>in-n3 n2>in-n3 n2>in-n1 n3>in-n1 n3>in-n2",
        );
        check(Pattern::Rounds, &four, "n1>n4 n2>n3");
        check(Pattern::Rounds, &four[..3], "n2>n3");
        for (pattern, names) in [(Pattern::Pairs, &four[..3]), (Pattern::Ring, &four[..1])] {
            assert!(arranged(pattern, names).is_err(), "{names:?}");
        }
        assert!(
            arranged(Pattern::Ring, &["node-number", "n2"]).is_err(),
            "in-node-number"
        );
    }

    #[test]
    fn a_listening_half_knows_its_machine() {
        let host: HostName = "in-n3".parse().unwrap();
        assert_eq!(host.half_of(), Some("n3".parse().unwrap()));
        assert_eq!(HostName::CLIENT.half_of(), None);
    }
}
