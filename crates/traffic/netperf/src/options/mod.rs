//! netperf's command line (netperf's `netsh.c`, `scan_cmd_line`; `nettest_omni.c`, `scan_omni_args`).

mod global;
mod refused;
mod specific;
mod test;
mod tos;

use std::path::PathBuf;
use std::time::Duration;

use crate::Failure;
use crate::getopt::Words;
use crate::units::Unit;

pub use global::usage;
pub use test::Test;

/// Which way bytes go, as netperf sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To netserver.
    Send,
    /// From it.
    Receive,
    /// Both, in turn.
    Both,
}

/// The protocol of the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Where netserver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// It runs there, at an address or by a name.
    At(String),
    /// It is started there for this test, through ssh.
    Ssh(String),
    /// It is started for this test in a network namespace, by name or by the id of a process in it, at this address.
    Namespace(String, String),
    /// It is started for this test in a network namespace that is joined to this one by a veth pair.
    Bed,
}

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// One of two ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ends<T> {
    /// Ours.
    pub local: T,
    /// netserver's.
    pub remote: T,
}

/// Until when a test is repeated (`-i`, `-I`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// 95 or 99 percent; 0 where nobody asked.
    pub level: u32,
    /// Width of the interval as a share of the mean.
    pub width: f64,
    /// Repetitions.
    pub least: u32,
    /// The same.
    pub most: u32,
    /// The CPU figures need not be as sure (`-r`).
    pub on_result_only: bool,
}

/// Which form results have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The columns of the test's name.
    Classic,
    /// `NAME=value`, a line each.
    Keyval,
    /// A line of headings and one of values.
    Csv,
    /// Columns under headings.
    Human,
}

/// A command line that has been understood.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "what an option is, its letter tells in the text of `-h`"
)]
pub struct Options {
    pub command_line: String,
    pub test: &'static Test,
    pub transport: Transport,
    pub direction: Direction,
    /// A connection for each transaction.
    pub is_connect_test: bool,
    pub host: Host,
    pub port: u16,
    /// Address family of the control connection.
    pub family: Option<Family>,
    /// Our end of the control connection, and of data where no other is told.
    pub local_host: Option<String>,
    pub local_port: u16,
    /// Seconds, or bytes or transactions if negative.
    pub length: i32,
    pub cpu: Ends<bool>,
    pub interim: Option<Duration>,
    pub unit: Unit,
    pub fill: Option<PathBuf>,
    pub remote_fill: String,
    pub confidence: Confidence,
    pub with_latency: bool,
    pub with_headers: bool,
    pub verbosity: i32,
    pub brand: Option<String>,
    pub keepalive: bool,
    pub wait: Duration,
    pub affinity: Ends<Option<i32>>,
    pub priority: Ends<Option<i32>>,
    pub tos: Ends<Option<i32>>,
    pub passphrase: Option<String>,
    /// Data goes there, if not to where control goes.
    pub data_host: Option<String>,
    pub data_local_host: Option<String>,
    pub data_family: Option<Family>,
    pub data_port: Ends<u16>,
    pub burst: i32,
    pub nodelay: bool,
    pub cork: bool,
    pub mss: Option<i32>,
    pub pacing: Option<u32>,
    pub routed: bool,
    /// Seconds after which a response of UDP counts as lost.
    pub patience: Option<i32>,
    /// UDP's sockets are connected.
    pub connected: Ends<bool>,
    pub congestion: Ends<String>,
    pub send_size: Ends<Option<i32>>,
    pub receive_size: Ends<Option<i32>>,
    pub request: i32,
    pub response: i32,
    pub send_buffer: Ends<Option<i32>>,
    pub receive_buffer: Ends<Option<i32>>,
    pub uuid: Option<String>,
    pub form: Form,
    /// Selection of results: a list, a file of lists, or `all`. `None`: the test's own columns.
    pub selection: Option<String>,
    /// Options that were taken and change nothing, a line each.
    pub notes: Vec<String>,
}

impl Options {
    /// Name of the direction in the output.
    pub fn direction_name(&self) -> &'static str {
        match self.direction {
            Direction::Send => "Send",
            Direction::Receive => "Receive",
            Direction::Both if self.is_connect_test => "Connect|Send|Recv",
            Direction::Both => "Send|Recv",
        }
    }
}

/// Request on the command line.
#[derive(Debug)]
pub enum Asked {
    /// A test.
    Test(Box<Options>),
    /// A text, and its exit code.
    Text(String, u8),
    /// The list of selectors: in one line, or a line each.
    Selectors(bool),
}

/// Understands a command line, without the program's name.
///
/// # Errors
/// It cannot be understood, or asks for something unsupported: 1.
pub fn parse(args: &[String]) -> Result<Asked, Failure> {
    let mut words = Words::new(args.iter().cloned());
    let global = match global::parse(&mut words)? {
        global::Asked::Options(global) => *global,
        global::Asked::Text(text, code) => return Ok(Asked::Text(text, code)),
    };
    let test = Test::named(&global.test).ok_or_else(|| refused::test(&global.test))?;
    let specific = match specific::parse(&mut words, test)? {
        specific::Asked::Options(specific) => *specific,
        specific::Asked::Text(text, code) => return Ok(Asked::Text(text, code)),
        specific::Asked::Selectors(in_one_line) => return Ok(Asked::Selectors(in_one_line)),
    };
    assemble(args, test, global, specific).map(|options| Asked::Test(Box::new(options)))
}

/// Both lists, and what follows from them together.
fn assemble(
    args: &[String],
    test: &'static Test,
    global: global::Global,
    specific: specific::Specific,
) -> Result<Options, Failure> {
    let is_transactions = specific.direction == Direction::Both;
    let unit = match global.unit {
        Some(unit) if unit.counts_transactions() && !is_transactions => Unit::MEGABITS,
        Some(unit) => unit,
        None if is_transactions => Unit::Transactions,
        None => Unit::MEGABITS,
    };
    if specific.is_connect_test && !is_transactions {
        return Err(Failure::usage(
            "-c without requests and responses (TCP_CC) is not supported: add -d rr, or use -t TCP_CRR",
        ));
    }
    if specific.burst > 0 && specific.is_connect_test {
        return Err(Failure::usage(
            "-b: a connection for each transaction has one request in flight; -b is of TCP_RR",
        ));
    }
    if specific.transport == Transport::Udp {
        if specific.direction == Direction::Receive || specific.is_connect_test {
            return Err(Failure::usage(
                "UDP from netserver, and connections of UDP, are not supported: UDP_STREAM and UDP_RR are",
            ));
        }
        if specific.burst < 0 {
            return Err(Failure::usage("-b: expected a number from 0"));
        }
    }
    // A stream of UDP does not leave the network unless -R 1 says so, as in netperf.
    let routed = specific
        .routed
        .unwrap_or(specific.transport == Transport::Tcp || is_transactions);
    let mut notes = global.notes;
    notes.extend(specific.notes);
    Ok(Options {
        command_line: std::iter::once("netperf")
            .chain(args.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" "),
        test,
        transport: specific.transport,
        direction: specific.direction,
        is_connect_test: specific.is_connect_test,
        host: global.host,
        port: global.port,
        family: global.family,
        local_host: global.local_host,
        local_port: global.local_port,
        length: global.length,
        cpu: global.cpu,
        interim: global.interim,
        unit,
        fill: global.fill,
        remote_fill: global.remote_fill,
        confidence: global.confidence,
        with_latency: global.with_latency,
        with_headers: global.with_headers,
        verbosity: global.verbosity,
        brand: global.brand,
        keepalive: global.keepalive,
        wait: global.wait,
        affinity: global.affinity,
        priority: global.priority,
        tos: global.tos,
        passphrase: global.passphrase,
        data_host: specific.data_host,
        data_local_host: specific.data_local_host,
        data_family: specific.data_family,
        data_port: specific.data_port,
        burst: specific.burst,
        nodelay: specific.nodelay,
        cork: specific.cork,
        mss: specific.mss,
        pacing: specific.pacing,
        routed,
        patience: specific.patience,
        connected: specific.connected,
        congestion: specific.congestion,
        send_size: specific.send_size,
        receive_size: specific.receive_size,
        request: specific.request,
        response: specific.response,
        send_buffer: specific.send_buffer,
        receive_buffer: specific.receive_buffer,
        uuid: specific.uuid,
        form: specific.form,
        selection: specific.selection,
        notes,
    })
}

/// A family by netperf's words: what has a 6 in it is IPv6, what has a 4 or `inet` IPv4, `0` and `unspec` any.
pub fn family(option: &str, text: &str) -> Result<Option<Family>, Failure> {
    match text {
        text if text.contains('6') => Ok(Some(Family::V6)),
        text if text.contains("inet") || text.contains('4') => Ok(Some(Family::V4)),
        text if text.contains("unspec") || text.contains('0') => Ok(None),
        _ => Err(Failure::usage(format!(
            "{option} …,{text}: expected a family: inet, inet6, unspec, 4, 6"
        ))),
    }
}

/// A port by its number.
pub fn port(option: &str, text: &str) -> Result<u16, Failure> {
    text.parse()
        .map_err(|_| Failure::usage(format!("{option} {text}: expected a port, 0 to 65535")))
}

#[cfg(test)]
mod tests;
