//! Who connects to whom among the hosts that a study names.

use crate::host_name::HostName;
use crate::rounds::round;
use crate::side::Side;
use crate::traffic::Traffic;
use crate::words::words;

words! {
    /// Who connects to whom.
    Pattern {
        /// What the names and their numbers suggest.
        Auto = "auto",
        /// Each host that connects has a host that listens to itself.
        Pairs = "pairs",
        /// All but one connect to that one.
        ManyToOne = "many-to-one",
        /// One connects to all others.
        OneToMany = "one-to-many",
        /// Each connects to each.
        AllToAll = "all-to-all",
        /// Each connects to the next, the last to the first.
        Ring = "ring",
        /// In each repetition other pairs, until every host has met every other.
        Rounds = "rounds",
    }
}

/// The hosts of a trial in the order of its phases, and their traffic. A machine that does both, connects and listens, is
/// two hosts: itself, and the one that listens, by a name with [`LISTENING`] before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Arranged {
    pub(crate) hosts: Vec<HostName>,
    pub(crate) traffic: Vec<Traffic>,
}

/// Before the name of a machine's listening half.
const LISTENING: &str = "in-";

impl HostName {
    /// Of a machine that both connects and listens: the host that listens there.
    fn listening(self) -> Result<HostName, String> {
        let name = format!("{LISTENING}{self}");
        let too_long = |_| format!("{self} listens, too, as {name}, which is too long a name");
        name.parse().map_err(too_long)
    }

    /// The host whose listening half this is, by its name.
    pub fn half_of(self) -> Option<HostName> {
        self.as_str().strip_prefix(LISTENING)?.parse().ok()
    }
}

impl Arranged {
    /// The pattern among these hosts, which are in order.
    ///
    /// # Errors
    /// In one line: there is no such pattern among so many.
    pub(crate) fn new(pattern: Pattern, named: &[HostName]) -> Result<Arranged, String> {
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
                "{half} is the name of a listening half: call the host otherwise"
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
                    // Each begins with its neighbour, so that not all go to the first at once.
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

    /// The pairs of a round. Of an odd number of hosts one has no traffic.
    pub(crate) fn in_round(named: &[HostName], number: usize) -> Arranged {
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

    /// Which side of its connections a host is.
    pub(crate) fn side(&self, host: HostName) -> Option<Side> {
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
