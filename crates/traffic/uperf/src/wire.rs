//! Messages of uperf's control protocol: C structures of a 64-bit little-endian machine, at fixed offsets (uperf 1.0.8,
//! `handshake.h`, `workorder.h`, `strand.h`, `common.h`, `goodbye.h`).
//!
//! The master connects once for each group and host. It sends [`Hello`] of phase 1, and of phase 2 with the group. The slave
//! answers with the ports of its threads. Then [`Command`]s begin each transaction, and a [`Goodbye`] ends the run.

use std::io::{self, Read, Write};

use tcpcost_counts::Printable;

use crate::order::{Flowop, Group, Kind, Transaction};

/// Version of the data in 1.0.8. Other versions have other structures.
const VERSION: &str = "0.3.1";
const MAGIC: &str = "0xbadcafedeadbeef";
const COMMAND_MAGIC: &str = "uperf_command";
const GOODBYE_MAGIC: &str = "So Long, and Thanks for All the Fish";
/// Value of `endian` on a machine of the same byte order.
const ENDIAN: u32 = 0xbadc;
/// Number of TCP among the protocols.
pub const TCP: usize = 1;
/// Number of protocols (`NUM_PROTOCOLS`).
const PROTOCOLS: usize = 8;

/// Limits on what a slave takes from the network.
pub mod limit {
    /// Threads of a group.
    pub const THREADS: u32 = 30_000;
    /// Transactions of a group (`NUM_BARRIER`).
    pub const TRANSACTIONS: u32 = 100;
    /// Flowops of a transaction.
    pub const FLOWOPS: u32 = 10_000;
    /// Bytes of a message.
    pub const MESSAGE: u32 = 64 << 20;
}

/// Structure of `N` bytes.
struct Record<const N: usize>([u8; N]);

impl<const N: usize> Record<N> {
    fn new() -> Record<N> {
        Record([0; N])
    }

    fn receive(from: &mut impl Read) -> io::Result<Record<N>> {
        let mut record = Record::new();
        from.read_exact(&mut record.0)?;
        Ok(record)
    }

    fn put(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
        self
    }

    fn put_long(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
        self
    }

    /// Writes text into a field of `width` bytes, the last of which stays 0.
    fn put_text(mut self, at: usize, width: usize, text: &str) -> Self {
        let fits = text.len().min(width - 1);
        self.0[at..at + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self
    }

    fn int(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn text(&self, at: usize, width: usize) -> String {
        let field = &self.0[at..at + width];
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(width);
        Printable::from(&*String::from_utf8_lossy(&field[..end])).to_string()
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Message of the master in both phases (`hs_phase1_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// 1 or 2.
    pub phase: u32,
    /// Number of [`Ports`] that follow the group.
    pub ports: u32,
    /// Not 0 for each protocol that the group uses.
    pub protocols: [u32; PROTOCOLS],
}

const HELLO: usize = 352;

impl Hello {
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut record = Record::<HELLO>::new()
            .put_text(0, 32, MAGIC)
            .put(32, ENDIAN)
            .put(36, self.phase)
            .put(40, self.ports)
            .put_text(80, 16, VERSION);
        for (number, is_used) in self.protocols.iter().enumerate() {
            record = record.put(48 + 4 * number, *is_used);
        }
        to.write_all(&record.0)
    }

    /// Receives a message.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is of no uperf 1.0.8 on a little-endian machine; the text says why.
    pub fn receive(from: &mut impl Read) -> io::Result<Hello> {
        let record = Record::<HELLO>::receive(from)?;
        if record.text(0, 32) != MAGIC {
            return Err(wrong("Wrong magic"));
        }
        if record.int(32) == ENDIAN.swap_bytes() {
            return Err(wrong("masters of another byte order are not supported"));
        }
        let version = record.text(80, 16);
        if version != VERSION {
            return Err(wrong(format!(
                "data version {version}: only {VERSION} (uperf 1.0.8) is supported"
            )));
        }
        Ok(Hello {
            phase: record.int(36),
            ports: record.int(40),
            protocols: std::array::from_fn(|number| record.int(48 + 4 * number)),
        })
    }
}

/// Answer of the slave (`hs_phase1_ack_t`): nothing, or what is wrong.
pub type Ack = Result<(), String>;

const ACK: usize = 192;

fn ack_record<const N: usize>(ack: &Ack) -> Record<N> {
    let record = Record::new();
    match ack {
        Ok(()) => record.put_text(0, 64, "OK"),
        Err(why) => record.put_text(0, 64, "Not OK").put_text(64, 128, why),
    }
}

fn ack_of<const N: usize>(record: &Record<N>) -> Ack {
    match record.text(0, 64).as_str() {
        "OK" => Ok(()),
        _ => Err(record.text(64, 128)),
    }
}

pub fn send_ack(to: &mut impl Write, ack: &Ack) -> io::Result<()> {
    to.write_all(&ack_record::<ACK>(ack).0)
}

/// Text in a first answer that says OK, which uperf's master does not read: this slave's threads may be late for a
/// transaction.
const WAITS: &str = "waits for late threads";

/// Sends a slave's first answer.
pub fn send_welcome(to: &mut impl Write) -> io::Result<()> {
    let record = ack_record::<ACK>(&Ok(())).put_text(64, 128, WAITS);
    to.write_all(&record.0)
}

/// Receives a slave's first answer: whether it waits for threads that are late for a transaction. uperf's own interrupts them, and they
/// omit the transaction.
pub fn receive_welcome(from: &mut impl Read) -> io::Result<Result<bool, String>> {
    let record = Record::<ACK>::receive(from)?;
    Ok(ack_of(&record).map(|()| record.text(64, 128) == WAITS))
}

pub fn receive_ack(from: &mut impl Read) -> io::Result<Ack> {
    Ok(ack_of(&Record::<ACK>::receive(from)?))
}

/// Answer to a group (`hs_phase2_ack_t`): the number of [`Ports`] that follow.
pub fn send_group_ack(to: &mut impl Write, ack: &Result<u32, String>) -> io::Result<()> {
    let (ack, ports) = match ack {
        Ok(ports) => (Ok(()), *ports),
        Err(why) => (Err(why.clone()), 0),
    };
    to.write_all(&ack_record::<{ ACK + 4 }>(&ack).put(ACK, ports).0)
}

pub fn receive_group_ack(from: &mut impl Read) -> io::Result<Result<u32, String>> {
    let record = Record::<{ ACK + 4 }>::receive(from)?;
    Ok(ack_of(&record).map(|()| record.int(ACK)))
}

const PORTS: usize = 288;

/// Sends the port of TCP of each thread (`slave_info_t`).
pub fn send_ports(to: &mut impl Write, ports: &[u16]) -> io::Result<()> {
    let mut all = Vec::with_capacity(ports.len() * PORTS);
    for port in ports {
        let record = Record::<PORTS>::new().put(256 + 4 * TCP, u32::from(*port));
        all.extend_from_slice(&record.0);
    }
    to.write_all(&all)
}

/// Receives the port of TCP of each thread.
pub fn receive_ports(from: &mut impl Read, count: u32) -> io::Result<Vec<u16>> {
    let port = |_| {
        let record = Record::<PORTS>::receive(from)?;
        let port = record.int(256 + 4 * TCP);
        u16::try_from(port).map_err(|_| wrong(format!("port {port}")))
    };
    (0..count).map(port).collect()
}

const GROUP: usize = 24;
const TRANSACTION: usize = 168;
const FLOWOP: usize = 944;

/// Bits of a flowop's flags.
mod flag {
    pub const NODELAY: u32 = 1 << 1;
    pub const CAN_FAIL: u32 = 1 << 2;
    pub const IDLE: u32 = 1 << 4;
    pub const BUSY: u32 = 1 << 5;
    pub const RANDOM: u32 = 1 << 6;
}

/// Sends a group with its transactions and their flowops.
pub fn send_group(to: &mut impl Write, group: &Group) -> io::Result<()> {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut all = Vec::new();
    let record = Record::<GROUP>::new()
        .put(0, ENDIAN)
        .put(4, if group.is_processes { 1 << 1 } else { 1 << 2 })
        .put(8, group.threads)
        .put(12, count(group.transactions.len()))
        .put(20, group.number);
    all.extend_from_slice(&record.0);
    for (number, transaction) in group.transactions.iter().enumerate() {
        let record = Record::<TRANSACTION>::new()
            .put(0, count(transaction.flowops.len()))
            .put(4, count(number))
            .put(16, transaction.rate)
            .put_long(24, transaction.iterations)
            .put_long(32, transaction.duration_ns);
        all.extend_from_slice(&record.0);
        for (number, flowop) in transaction.flowops.iter().enumerate() {
            all.extend_from_slice(&flowop_record(flowop, count(number)).0);
        }
    }
    to.write_all(&all)
}

fn flowop_record(flowop: &Flowop, number: u32) -> Record<FLOWOP> {
    let mut flags = 0;
    let mut set = |is_set: bool, bit: u32| flags |= if is_set { bit } else { 0 };
    set(flowop.nodelay, flag::NODELAY);
    set(flowop.can_fail, flag::CAN_FAIL);
    set(flowop.kind == Kind::Think && !flowop.is_busy, flag::IDLE);
    set(flowop.is_busy, flag::BUSY);
    set(flowop.random.is_some(), flag::RANDOM);
    let (least, most) = flowop.random.unwrap_or_default();
    Record::new()
        .put(0, flowop.size)
        .put(4, least)
        .put(8, most)
        .put(12, flowop.read_size)
        .put(16, TCP as u32)
        .put(20, u32::from(flowop.port))
        .put(24, flags)
        .put(28, flowop.files)
        .put_long(32, flowop.duration_ns)
        .put_long(40, u64::from(flowop.window))
        .put_long(48, u64::from(flowop.count))
        .put_long(56, 1) // repeat
        .put_long(64, 1) // batch_size
        .put_long(72, flowop.timeout_ns)
        .put_text(144, 32, &flowop.congestion_control)
        .put_text(208, 128, &flowop.folder)
        .put_text(336, 256, &flowop.host)
        .put(928, flowop.kind as u32)
        .put(932, flowop.conn)
        .put(944 - 8, 0) // statid1
        .put(944 - 4, number) // errors: no use
}

/// Receives a group. Values that make no sense are errors.
pub fn receive_group(from: &mut impl Read) -> io::Result<Group> {
    let record = Record::<GROUP>::receive(from)?;
    let (threads, transactions) = (record.int(8), record.int(12));
    let at_most = |what: &str, count: u32, limit: u32| match count <= limit {
        true => Ok(()),
        false => Err(wrong(format!("{count} {what}: {limit} is the most"))),
    };
    at_most("threads", threads, limit::THREADS)?;
    at_most("transactions", transactions, limit::TRANSACTIONS)?;
    let mut group = Group {
        is_processes: record.int(4) & 1 << 1 != 0,
        threads,
        number: record.int(20),
        ..Group::default()
    };
    for _ in 0..transactions {
        let record = Record::<TRANSACTION>::receive(from)?;
        let flowops = record.int(0);
        at_most("flowops", flowops, limit::FLOWOPS)?;
        let flowops = (0..flowops).map(|_| flowop_of(&Record::receive(from)?));
        group.transactions.push(Transaction {
            rate: record.int(16),
            iterations: record.long(24),
            duration_ns: record.long(32),
            flowops: flowops.collect::<io::Result<_>>()?,
        });
    }
    Ok(group)
}

fn flowop_of(record: &Record<FLOWOP>) -> io::Result<Flowop> {
    let flags = record.int(24);
    let has = |bit: u32| flags & bit != 0;
    let (least, most) = (record.int(4), record.int(8));
    let kind = record.int(928);
    let kind = Kind::of(kind).ok_or_else(|| wrong(format!("flowop {kind}: no such number")))?;
    let count = record.long(48);
    let flowop = Flowop {
        size: record.int(0),
        random: has(flag::RANDOM).then_some((least, most)),
        read_size: record.int(12),
        port: u16::try_from(record.int(20)).map_err(|_| wrong("a port above 65535"))?,
        nodelay: has(flag::NODELAY),
        can_fail: has(flag::CAN_FAIL),
        is_busy: has(flag::BUSY),
        files: record.int(28),
        duration_ns: record.long(32),
        window: u32::try_from(record.long(40)).map_err(|_| wrong("a window above 4 GiB"))?,
        count: u32::try_from(count).map_err(|_| wrong(format!("count {count}")))?,
        timeout_ns: record.long(72),
        congestion_control: record.text(144, 32),
        folder: record.text(208, 128),
        host: record.text(336, 256),
        conn: record.int(932),
        ..Flowop::new(kind)
    };
    let moves = [Kind::Read, Kind::Write, Kind::Send, Kind::Receive].contains(&kind);
    let is_tcp = record.int(16) == TCP as u32;
    let opens = [Kind::Connect, Kind::Accept].contains(&kind);
    if opens && !is_tcp {
        return Err(wrong("only TCP is supported"));
    }
    if moves && !(1..=limit::MESSAGE).contains(&flowop.largest()) {
        return Err(wrong(format!("a message of {} bytes", flowop.largest())));
    }
    Ok(flowop)
}

/// Command of the master to a slave (`uperf_command_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Begin the transaction of this number.
    Begin(u32),
    Abort,
    SendStats,
}

const COMMAND: usize = 72;

impl Command {
    pub fn send(self, to: &mut impl Write) -> io::Result<()> {
        let (number, value) = match self {
            Command::Begin(transaction) => (0, transaction),
            Command::Abort => (1, 0),
            Command::SendStats => (2, 0),
        };
        let record = Record::<COMMAND>::new().put_text(0, 64, COMMAND_MAGIC);
        to.write_all(&record.put(64, number).put(68, value).0)
    }

    pub fn receive(from: &mut impl Read) -> io::Result<Command> {
        let record = Record::<COMMAND>::receive(from)?;
        if record.text(0, 64) != COMMAND_MAGIC {
            return Err(wrong("Wrong command magic"));
        }
        match record.int(64) {
            0 => Ok(Command::Begin(record.int(68))),
            1 => Ok(Command::Abort),
            2 => Ok(Command::SendStats),
            number => Err(wrong(format!("command {number}"))),
        }
    }
}

/// Last message of a slave (`goodbye_t`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Goodbye {
    /// Error of the run. Empty after a run without errors.
    pub error: String,
    pub elapsed_ns: u64,
    pub bytes: u64,
    pub count: u64,
}

const GOODBYE: usize = 616;
const MESSAGE_ERROR: u64 = 0xaa;
const MESSAGE_INFO: u64 = 0xcc;

impl Goodbye {
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let (kind, text) = match self.error.as_str() {
            "" => (MESSAGE_INFO, "Success"),
            error => (MESSAGE_ERROR, error),
        };
        let record = Record::<GOODBYE>::new()
            .put_text(0, 64, GOODBYE_MAGIC)
            .put_long(64, kind)
            .put_long(72, self.elapsed_ns)
            .put_long(88, self.bytes)
            .put_long(96, self.count)
            .put_text(104, 512, text);
        to.write_all(&record.0)
    }

    pub fn receive(from: &mut impl Read) -> io::Result<Goodbye> {
        let record = Record::<GOODBYE>::receive(from)?;
        if record.text(0, 64) != GOODBYE_MAGIC {
            return Err(wrong("Wrong goodbye magic"));
        }
        Ok(Goodbye {
            error: match record.long(64) {
                MESSAGE_ERROR => record.text(104, 512),
                _ => String::new(),
            },
            elapsed_ns: record.long(72),
            bytes: record.long(88),
            count: record.long(96),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slave_that_waits_for_late_threads_says_so_in_its_first_answer() {
        let mut wire = Vec::new();
        send_welcome(&mut wire).unwrap();
        assert_eq!(
            receive_ack(&mut &wire[..]).unwrap(),
            Ok(()),
            "uperf's master"
        );
        assert_eq!(receive_welcome(&mut &wire[..]).unwrap(), Ok(true));
        for (ack, told) in [
            (Ok(()), Ok(false)),
            (Err("no".to_string()), Err("no".to_string())),
        ] {
            let mut wire = Vec::new();
            send_ack(&mut wire, &ack).unwrap();
            assert_eq!(
                receive_welcome(&mut &wire[..]).unwrap(),
                told,
                "uperf's slave"
            );
        }
    }

    #[test]
    fn what_is_sent_is_received() {
        let mut wire = Vec::new();
        let hello = Hello {
            phase: 2,
            ports: 3,
            protocols: [0, 1, 0, 0, 0, 0, 0, 0],
        };
        hello.send(&mut wire).unwrap();
        assert_eq!(wire.len(), HELLO);
        assert_eq!(Hello::receive(&mut &wire[..]).unwrap(), hello);
        wire.clear();
        send_group_ack(&mut wire, &Ok(7)).unwrap();
        send_ports(&mut wire, &[1, 65_535]).unwrap();
        let mut from = &wire[..];
        assert_eq!(receive_group_ack(&mut from).unwrap(), Ok(7));
        assert_eq!(receive_ports(&mut from, 2).unwrap(), [1, 65_535]);
        wire.clear();
        send_ack(&mut wire, &Err("no".to_string())).unwrap();
        assert_eq!(receive_ack(&mut &wire[..]).unwrap(), Err("no".to_string()));
        for command in [Command::Begin(9), Command::Abort, Command::SendStats] {
            wire.clear();
            command.send(&mut wire).unwrap();
            assert_eq!(Command::receive(&mut &wire[..]).unwrap(), command);
        }
        let goodbye = Goodbye {
            error: "lost".to_string(),
            elapsed_ns: 1 << 40,
            bytes: 2,
            count: 3,
        };
        wire.clear();
        goodbye.send(&mut wire).unwrap();
        assert_eq!(Goodbye::receive(&mut &wire[..]).unwrap(), goodbye);
    }

    #[test]
    fn a_group_is_received_as_it_was_sent() {
        let group = Group {
            threads: 5,
            number: 2,
            is_processes: true,
            transactions: vec![
                Transaction {
                    iterations: 1,
                    flowops: vec![Flowop {
                        host: "10.0.0.2".to_string(),
                        port: 30_001,
                        nodelay: true,
                        window: 50 << 10,
                        congestion_control: "cubic".to_string(),
                        ..Flowop::new(Kind::Accept)
                    }],
                    ..Transaction::default()
                },
                Transaction {
                    iterations: 1,
                    duration_ns: 30_000_000_000,
                    rate: 9,
                    flowops: vec![
                        Flowop {
                            size: 90,
                            count: 16,
                            conn: 4,
                            ..Flowop::new(Kind::Write)
                        },
                        Flowop {
                            random: Some((1, 4096)),
                            ..Flowop::new(Kind::Read)
                        },
                    ],
                },
            ],
            ..Group::default()
        };
        let mut wire = Vec::new();
        send_group(&mut wire, &group).unwrap();
        assert_eq!(wire.len(), GROUP + 2 * TRANSACTION + 3 * FLOWOP);
        assert_eq!(receive_group(&mut &wire[..]).unwrap(), group);
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        let told = |wire: &[u8]| {
            let mut from = wire;
            receive_group(&mut from).unwrap_err().to_string()
        };
        let mut group = Group {
            threads: limit::THREADS + 1,
            ..Group::default()
        };
        let mut wire = Vec::new();
        send_group(&mut wire, &group).unwrap();
        assert!(told(&wire).contains("threads"), "{}", told(&wire));
        group.threads = 1;
        for size in [0, limit::MESSAGE + 1] {
            group.transactions = vec![Transaction {
                flowops: vec![Flowop {
                    size,
                    ..Flowop::new(Kind::Read)
                }],
                ..Transaction::default()
            }];
            wire.clear();
            send_group(&mut wire, &group).unwrap();
            assert!(told(&wire).contains("a message of"), "{}", told(&wire));
        }
        assert!(Hello::receive(&mut &[7; HELLO][..]).is_err());
    }
}
