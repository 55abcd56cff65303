//! Formats everything that netperf prints: the banner, the columns of each test, the omni results.

mod banner;
mod classic;
mod histogram;
mod omni;
mod selection;
pub mod selectors;
mod value;

use std::fmt::Write;

use crate::Failure;
use crate::confidence;
use crate::cpu::Cpu;
use crate::latency::{self, Buckets};
use crate::options::{Ends, Form, Options, Transport};
use crate::protocol::exact::Method;
use crate::protocol::omni::{Response, Results};
use crate::traffic::Local;

pub use banner::banner;
use selectors::Blocks;

/// The selectors of the results, by block. They are parsed before the test begins.
#[derive(Debug)]
pub struct Layout {
    blocks: Blocks,
    /// Notes about unknown names of selectors.
    pub notes: Vec<String>,
}

impl Layout {
    /// Parses the selectors that the command line asked for, or takes the default ones.
    ///
    /// # Errors
    /// If the selection is neither a list nor a readable file.
    pub fn of(options: &Options) -> Result<Layout, Failure> {
        let mut notes = Vec::new();
        let with_cpu = options.cpu.local || options.cpu.remote;
        let blocks = match (&options.selection, options.form) {
            (_, Form::Classic) => Vec::new(),
            (Some(spec), _) => selection::parse(spec, &mut notes)?,
            (None, _) => vec![selectors::by_direction(options.direction, with_cpu)],
        };
        Ok(Layout { blocks, notes })
    }

    /// Returns whether a selector needs the latency of each transaction.
    pub fn has_latency(&self) -> bool {
        self.blocks
            .iter()
            .flatten()
            .any(|selector| selector.is_latency())
    }
}

/// All that is known about a test that has ended.
#[derive(Debug)]
pub struct Report<'a> {
    pub options: &'a Options,
    /// Duration in seconds.
    pub elapsed: f64,
    /// Throughput in the unit that the options asked for.
    pub throughput: f64,
    /// Transactions per second; 1 for a stream, as in netperf.
    pub transaction_rate: f64,
    /// Mean round trip in µs; −1 for a stream or without transactions.
    pub round_trip_us: f64,
    pub local: Local,
    pub set_up: Response,
    pub remote: Results,
    pub remote_nodelay: bool,
    pub cpu: Ends<Cpu>,
    pub latency: latency::Summary,
    /// Times of all repetitions. `None` if they were not asked for.
    pub histogram: Option<&'a Buckets>,
    pub confidence: confidence::Figures,
    /// Number of the address family on this system.
    pub family: i32,
    pub source: String,
    pub destination: String,
    pub uuid: String,
}

impl Report<'_> {
    /// Bytes over the duration of the test in the unit of the options.
    fn rate(&self, bytes: u64) -> f64 {
        self.options.unit.for_bytes().of(bytes as f64, self.elapsed)
    }

    fn service_demand_unit(&self) -> &'static str {
        match self.options.unit.counts_transactions() {
            true => "usec/Tran",
            false => "usec/KB",
        }
    }

    fn fill_name(&self) -> String {
        let fill = self.options.fill.as_ref();
        fill.map_or(String::new(), |path| path.display().to_string())
    }

    /// The brand (`-B`) if there are no headings, otherwise an empty text.
    fn brand(&self) -> &str {
        match self.options.with_headers {
            true => "",
            false => self.options.brand.as_deref().unwrap_or(""),
        }
    }
}

/// Formats the results in the form that the options asked for.
pub fn results(report: &Report<'_>, layout: &Layout) -> String {
    let blocks = &layout.blocks;
    match report.options.form {
        Form::Classic => classic::results(report),
        Form::Keyval => omni::keyval(report, blocks) + &histogram::omni(report),
        Form::Csv => omni::csv(report, blocks) + &histogram::omni(report),
        Form::Human => omni::human(report, blocks) + &histogram::omni(report),
    }
}

/// Lines for standard error, at `-v 2`, about what netperf's columns have no room for: which CPU time a service
/// demand counts, and the bytes that were not yet acknowledged at the end.
pub fn remarks(report: &Report<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    for (end, cpu) in [("local", &report.cpu.local), ("remote", &report.cpu.remote)] {
        let Some(method) = cpu.method else { continue };
        let transport = report.options.transport;
        let mut line = format!("{end} service demand: {}", explained(method, transport));
        if let Some(cpu_ns) = cpu.cpu_ns {
            let _ = write!(line, ", {:.3} s", cpu_ns as f64 / 1e9);
        }
        remarks.push(line);
    }
    if let Some(bytes) = report.local.unconfirmed {
        remarks.push(format!(
            "{bytes} of {} bytes were sent and not yet acknowledged when the time was over; the rate is of those that the receiver has read, until it had all of them",
            report.local.bytes_sent
        ));
    }
    remarks
}

fn explained(method: Method, transport: Transport) -> &'static str {
    match method {
        Method::Share if transport == Transport::Udp => {
            "this instance's thread, and its share of the machine's interrupts by IP packets (share)"
        }
        Method::Exact => "this instance's thread and the softirqs for its sockets (exact)",
        Method::Share => {
            "this instance's thread, and its share of the machine's interrupts by TCP segments (share)"
        }
        Method::Machine => {
            "everything that ran on that machine: its netserver does not separate instances (machine)"
        }
    }
}
