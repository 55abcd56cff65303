//! Patterns of connections among the hosts that a study names.

use crate::host_name::HostName;
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
    fn listening(self) -> Result<HostName, String> {
        let name = format!("{LISTENING}{self}");
        let too_long = |_| format!("{self} listens, too, as {name}, which is too long a name");
        name.parse().map_err(too_long)
    }

    /// Host whose listening half this is. `None` if it is no listening half.
    pub fn half_of(self) -> Option<HostName> {
        self.as_str().strip_prefix(LISTENING)?.parse().ok()
    }
}

impl Arranged {
    /// Arranges these hosts, which are sorted, by a pattern.
    ///
    /// # Errors
    /// One line: the pattern does not allow this number of hosts.
    pub fn new(pattern: Pattern, named: &[HostName]) -> Result<Arranged, String> {
        let of = |host: HostName| named.iter().filter(move |name| name.is_one_of(host));
        let clients: Vec<HostName> = of(HostName::CLIENT).copied().collect();
        let servers: Vec<HostName> = of(HostName::SERVER).copied().collect();
        let count = named.len();
        if count < 2 {
            return Err(format!(
                "two hosts at least take part, and {count} is named"
            ));
        }
        if let Some(half) = named.iter().find(|name| name.half_of().is_some()) {
            return Err(format!(
                "{half} is the name of a listening half: rename the host"
            ));
        }
        if pattern == Pattern::Rounds {
            return Ok(Arranged::in_round(named, 0));
        }
        let mut traffic = Vec::new();
        let mut connect = |on: &HostName, to: &HostName| traffic.push(Traffic { on: *on, to: *to });
        let word = pattern.word();
        if clients.len() + servers.len() == count && !clients.is_empty() && !servers.is_empty() {
            let numbers = (clients.len(), servers.len());
            let (here, there) = numbers;
            let differ = format!("there are {here} clients and {there} servers");
            match pattern {
                Pattern::Auto | Pattern::Pairs if here == there => {
                    clients
                        .iter()
                        .zip(&servers)
                        .for_each(|(on, to)| connect(on, to));
                }
                Pattern::Auto | Pattern::ManyToOne if there == 1 => {
                    clients.iter().for_each(|on| connect(on, &servers[0]));
                }
                Pattern::Auto | Pattern::OneToMany if here == 1 => {
                    servers.iter().for_each(|to| connect(&clients[0], to));
                }
                Pattern::AllToAll => {
                    for on in &clients {
                        servers.iter().for_each(|to| connect(on, to));
                    }
                }
                Pattern::Ring => {
                    return Err(format!(
                        "{word} is of hosts that are all alike, not of clients and servers"
                    ));
                }
                Pattern::Auto => return Err(format!("{differ}: say which pattern")),
                _ => return Err(format!("{differ}, which is no {word}")),
            }
            return Ok(Arranged {
                hosts: named.to_vec(),
                traffic,
            });
        }
        let (first, others) = named.split_first().expect("there are two");
        match pattern {
            Pattern::Auto | Pattern::Pairs if count.is_multiple_of(2) => {
                named.chunks(2).for_each(|pair| connect(&pair[0], &pair[1]));
            }
            Pattern::Auto | Pattern::Pairs => {
                return Err(format!(
                    "pairs are of an even number of hosts, and there are {count}"
                ));
            }
            Pattern::ManyToOne => others.iter().for_each(|on| connect(on, first)),
            Pattern::OneToMany => others.iter().for_each(|to| connect(first, to)),
            Pattern::Rounds => unreachable!("said above"),
            Pattern::AllToAll | Pattern::Ring => {
                let listening: Result<Vec<HostName>, String> =
                    named.iter().map(|host| host.listening()).collect();
                let listening = listening?;
                for (place, on) in named.iter().enumerate() {
                    // Each host begins with its neighbour, so that not all connect to the first at
                    // once.
                    let steps = if pattern == Pattern::Ring {
                        1..2
                    } else {
                        1..count
                    };
                    steps.for_each(|step| connect(on, &listening[(place + step) % count]));
                }
                let hosts = named.iter().copied().chain(listening).collect();
                return Ok(Arranged { hosts, traffic });
            }
        }
        Ok(Arranged {
            hosts: named.to_vec(),
            traffic,
        })
    }

    /// Arranges the pairs of a round. If the number of hosts is odd, one has no traffic.
    pub fn in_round(named: &[HostName], number: usize) -> Arranged {
        let pairs = round(named.len(), number).into_iter();
        Arranged {
            hosts: named.to_vec(),
            traffic: pairs
                .map(|(on, to)| Traffic {
                    on: named[on],
                    to: named[to],
                })
                .collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn arranged(pattern: Pattern, names: &[&str]) -> Result<String, String> {
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
