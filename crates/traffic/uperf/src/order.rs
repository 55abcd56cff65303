//! Work of threads at either end: groups of transactions of flowops (uperf's `workorder.c`).

use tcpcost_study::{UperfFlowop, UperfGroup, UperfKind, UperfProfile};

/// Group of threads that do the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Name in the output; not sent.
    pub name: String,
    pub number: u32,
    pub threads: u32,
    /// uperf would start processes.
    pub is_processes: bool,
    pub transactions: Vec<Transaction>,
}

/// Flowops that are done again and again: for a time, or so many times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    pub iterations: u64,
    /// 0 if the number of passes ends it.
    pub duration_ns: u64,
    /// Passes per second, 0 for no limit.
    pub rate: u32,
    pub flowops: Vec<Flowop>,
}

/// Kind of a flowop, by its number in uperf's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read = 1,
    Write = 2,
    Connect = 3,
    Disconnect = 4,
    Accept = 5,
    Nop = 6,
    Think = 7,
    Send = 8,
    Receive = 9,
    Sendfilev = 10,
    Sendfile = 11,
}

impl Kind {
    pub fn of(number: u32) -> Option<Kind> {
        const ALL: [Kind; 11] = [
            Kind::Read,
            Kind::Write,
            Kind::Connect,
            Kind::Disconnect,
            Kind::Accept,
            Kind::Nop,
            Kind::Think,
            Kind::Send,
            Kind::Receive,
            Kind::Sendfilev,
            Kind::Sendfile,
        ];
        ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Word of a profile.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Connect => "connect",
            Kind::Disconnect => "disconnect",
            Kind::Accept => "accept",
            Kind::Nop => "nop",
            Kind::Think => "think",
            Kind::Send => "send",
            Kind::Receive => "recv",
            Kind::Sendfilev => "sendfilev",
            Kind::Sendfile => "sendfile",
        }
    }

    /// Kind at the other end.
    fn opposite(self) -> Kind {
        match self {
            Kind::Read => Kind::Write,
            Kind::Write | Kind::Sendfile | Kind::Sendfilev => Kind::Read,
            Kind::Send => Kind::Receive,
            Kind::Receive => Kind::Send,
            Kind::Accept => Kind::Connect,
            Kind::Connect => Kind::Accept,
            same => same,
        }
    }
}

/// Operation of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flowop {
    pub kind: Kind,
    /// Bytes of a message.
    pub size: u32,
    /// Least and most bytes of a message whose size is drawn.
    pub random: Option<(u32, u32)>,
    /// Bytes that a slave takes with a read, 0 for the message's.
    pub read_size: u32,
    /// Port at which the other end listens, 0 for any.
    pub port: u16,
    pub nodelay: bool,
    pub can_fail: bool,
    pub is_busy: bool,
    pub files: u32,
    pub duration_ns: u64,
    /// SO_SNDBUF and SO_RCVBUF, bytes, 0 for the system's.
    pub window: u32,
    pub count: u32,
    pub timeout_ns: u64,
    /// Number of its connection, 0 for the one without a number.
    pub conn: u32,
    pub congestion_control: String,
    pub folder: String,
    pub host: String,
}

/// Bytes of a read at the other end of a sendfile.
const SENDFILE_READ: u32 = 64 << 10;

impl Flowop {
    pub fn new(kind: Kind) -> Flowop {
        Flowop {
            kind,
            size: 0,
            random: None,
            read_size: 0,
            port: 0,
            nodelay: false,
            can_fail: false,
            is_busy: false,
            files: 1,
            duration_ns: 0,
            window: 0,
            count: 1,
            timeout_ns: 0,
            conn: 0,
            congestion_control: String::new(),
            folder: String::new(),
            host: String::new(),
        }
    }

    /// Bytes of its largest message.
    pub fn largest(&self) -> u32 {
        match self.random {
            Some((least, most)) if (1..=most).contains(&least) => most,
            Some(_) => 0,
            None => self.size,
        }
    }

    fn of(flowop: &UperfFlowop) -> Result<Flowop, String> {
        let options = &flowop.options;
        let kind = match (flowop.kind, flowop.name) {
            (UperfKind::Read, "recv") => Kind::Receive,
            (UperfKind::Write, "send") => Kind::Send,
            (UperfKind::Read, _) => Kind::Read,
            (UperfKind::Write, _) => Kind::Write,
            (UperfKind::Connect, _) => Kind::Connect,
            (UperfKind::Accept, _) => Kind::Accept,
            (UperfKind::Disconnect, _) => Kind::Disconnect,
            (UperfKind::Sendfile, _) => Kind::Sendfile,
            (UperfKind::Sendfilev, _) => Kind::Sendfilev,
            (UperfKind::Think, _) => Kind::Think,
            (UperfKind::Nop, _) => Kind::Nop,
        };
        let ns = |time: Option<std::time::Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let text = |value: &Option<tcpcost_study::UperfValue>| {
            value
                .as_ref()
                .map_or(String::new(), |value| value.text.clone())
        };
        let size = options.size;
        let is_drawn = |size: &tcpcost_study::MessageSize| size.least < size.most;
        let read = Flowop {
            size: size.map_or(0, |size| size.most),
            random: size.filter(is_drawn).map(|size| (size.least, size.most)),
            read_size: options.read_bytes.unwrap_or(0),
            port: options.port,
            nodelay: options.nodelay,
            can_fail: options.can_fail,
            is_busy: options.is_busy,
            files: options.files,
            duration_ns: ns(options.time),
            window: options.window.unwrap_or(0),
            count: options.count,
            timeout_ns: ns(options.timeout),
            conn: options.conn,
            congestion_control: options.congestion_control.clone().unwrap_or_default(),
            folder: text(&options.folder),
            host: text(&options.host),
            ..Flowop::new(kind)
        };
        let moves = matches!(kind, Kind::Read | Kind::Write | Kind::Send | Kind::Receive);
        if moves && read.largest() == 0 {
            return Err(format!("{}: no size", flowop.name));
        }
        if matches!(kind, Kind::Connect | Kind::Accept) && read.host.is_empty() {
            return Err(format!("{}: no remotehost", flowop.name));
        }
        Ok(read)
    }

    /// Flowop of the other end, with uperf's changes for reads of another size.
    fn opposite(&self) -> Flowop {
        let mut other = self.clone();
        if matches!(self.kind, Kind::Sendfile | Kind::Sendfilev) {
            other.size = SENDFILE_READ;
        }
        other.kind = self.kind.opposite();
        other
    }
}

impl Group {
    /// Groups of a profile.
    ///
    /// # Errors
    /// A flowop lacks what it needs.
    pub fn of(profile: &UperfProfile) -> Result<Vec<Group>, String> {
        let groups = profile.groups.iter().enumerate();
        groups
            .map(|(number, group)| Group::one(number, group))
            .collect()
    }

    fn one(number: usize, group: &UperfGroup) -> Result<Group, String> {
        let transactions = group.transactions.iter().map(|transaction| {
            let flowops = transaction.flowops.iter().map(Flowop::of);
            Ok(Transaction {
                iterations: transaction.iterations.into(),
                duration_ns: transaction
                    .duration
                    .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
                rate: transaction.rate.unwrap_or(0),
                flowops: flowops.collect::<Result<_, String>>()?,
            })
        });
        Ok(Group {
            name: group.name.clone().unwrap_or(format!("Group{number}")),
            number: u32::try_from(number).unwrap_or(u32::MAX),
            threads: group.threads,
            is_processes: group.is_processes,
            transactions: transactions.collect::<Result<_, String>>()?,
        })
    }

    /// Hosts that the group needs, each once, in their order.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = Vec::new();
        for flowop in self.flowops() {
            let opens = matches!(flowop.kind, Kind::Connect | Kind::Accept);
            if opens && !hosts.contains(&flowop.host) {
                hosts.push(flowop.host.clone());
            }
        }
        hosts
    }

    pub fn flowops(&self) -> impl Iterator<Item = &Flowop> {
        self.transactions
            .iter()
            .flat_map(|transaction| &transaction.flowops)
    }

    /// Bytes of a thread's buffer, at least uperf's.
    pub fn buffer(&self) -> usize {
        let sizes = self.flowops().map(Flowop::largest);
        sizes.max().unwrap_or(0).max(8192) as usize
    }

    /// Group of the slave at `host`.
    pub fn opposite(&self, host: &str) -> Group {
        let mut other = self.clone();
        for transaction in &mut other.transactions {
            for flowop in &mut transaction.flowops {
                *flowop = flowop.opposite();
                if !flowop.host.is_empty() && flowop.host != host {
                    flowop.kind = Kind::Nop;
                }
                if flowop.read_size > flowop.size && flowop.size > 0 {
                    if flowop.count > 1 {
                        let bytes = u64::from(flowop.size) * u64::from(flowop.count);
                        let count = bytes / u64::from(flowop.read_size);
                        flowop.count = u32::try_from(count).unwrap_or(u32::MAX);
                    }
                    flowop.size = flowop.read_size;
                }
            }
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_a_kind_is_that_kind() {
        for number in 1..=11 {
            assert_eq!(Kind::of(number).unwrap() as u32, number);
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!(Kind::of(12), None);
    }

    #[test]
    fn the_other_end_does_the_opposite_and_nothing_for_another_host() {
        let host = |kind, host: &str| Flowop {
            host: host.to_string(),
            ..Flowop::new(kind)
        };
        let flowops = vec![
            host(Kind::Connect, "a"),
            host(Kind::Accept, "b"),
            Flowop {
                size: 100,
                ..Flowop::new(Kind::Write)
            },
            Flowop {
                size: 1024,
                read_size: 4096,
                count: 16,
                ..Flowop::new(Kind::Send)
            },
            Flowop::new(Kind::Sendfile),
            Flowop::new(Kind::Disconnect),
        ];
        let group = Group {
            threads: 2,
            transactions: vec![Transaction {
                iterations: 1,
                flowops,
                ..Transaction::default()
            }],
            ..Group::default()
        };
        assert_eq!(group.hosts(), ["a", "b"]);
        let other = group.opposite("a");
        let flowops = &other.transactions[0].flowops;
        let kinds: Vec<Kind> = flowops.iter().map(|flowop| flowop.kind).collect();
        let expected = [
            Kind::Accept,
            Kind::Nop,
            Kind::Read,
            Kind::Receive,
            Kind::Read,
            Kind::Disconnect,
        ];
        assert_eq!(kinds, expected);
        assert_eq!((flowops[3].size, flowops[3].count), (4096, 4));
        assert_eq!(flowops[4].size, SENDFILE_READ);
    }
}
