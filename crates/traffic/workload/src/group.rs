//! State that the connections of one group share: plan, source, sink, counts.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use hdrhistogram::Histogram;
use tcpcost_knobs::{SendWith, Side, WaitsBy, WorkloadSettings};
use tcpcost_stack::{Content, FileSizes, Pages, Stack, StackError};

use crate::hello::Token;
use crate::histogram::response_times;
use crate::operation_times::OperationTimes;
use crate::pattern::Checker;
use crate::plan::Plan;
use crate::program::{Code, as_program};
use crate::schedule::Schedule;
use crate::tally::Tally;

/// A worker's share of a group of connections.
pub(crate) struct Group<S: Stack> {
    pub(crate) plan: Plan,
    pub(crate) tally: Tally,
    /// `None` at an end that does not send.
    pub(crate) source: Option<S::Source>,
    /// `None` at an end that does not receive.
    pub(crate) sink: Option<S::Sink>,
    pub(crate) checker: Option<Checker>,
    /// Connections of the group that this worker should have.
    pub(crate) wanted: usize,
    /// Connections of the trial: those of all flows.
    pub(crate) all: usize,
    /// Size of the read buffer, bytes.
    pub(crate) read_bytes: usize,
    /// Index of its first connection in the worker's `flows` (client).
    pub(crate) first: usize,
    /// Addresses to connect to; connection i goes to target i modulo their number (client).
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) seed: u64,
    /// Connections that could start a message but must wait for a due time.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) schedule: Option<Schedule>,
    /// Start times of outstanding requests, `in_flight` slots per connection (client).
    pub(crate) started_ns: Vec<u64>,
    pub(crate) responses: Option<Histogram<u64>>,
    /// Instructions of the program.
    pub(crate) code: Code,
    /// Durations of the program's operations.
    pub(crate) operations: OperationTimes,
    spare: Spare<S>,
}

/// Sources and sinks of a program's calls; `None` is the place of the one in use.
struct Spare<S: Stack> {
    sources: Vec<Option<S::Source>>,
    sinks: Vec<Option<S::Sink>>,
    source_in_use: u8,
    sink_in_use: u8,
}

impl<S: Stack> Group<S> {
    pub(crate) fn new(
        stack: &mut S,
        settings: &WorkloadSettings,
        side: Side,
        token: Token,
        flows: Range<usize>,
        first: usize,
    ) -> Result<Group<S>, StackError> {
        let connections = settings.connections_each();
        let wanted = flows.len() * connections;
        let kind = settings.kind;
        let mut plan = Plan::new(settings, side, token);
        let program = match settings.io {
            WaitsBy::BlockingThreads => as_program(settings),
            WaitsBy::Epoll | WaitsBy::IoUring | WaitsBy::Visits => None,
        };
        if let Some(program) = &program {
            let counted = plan;
            plan = Plan::new(program, side, token);
            plan.counts_transactions = counted.counts_transactions;
            plan.has_responses = counted.has_responses;
            plan.rate = counted.rate;
        }
        let settings = program.as_ref().unwrap_or(settings);
        let code = Code::new(settings, side, kind);
        let mut sources = Vec::new();
        let mut sinks = Vec::new();
        if plan.sends {
            for &with in &code.calls().sends {
                sources.push(Some(source(stack, &plan, with)?));
            }
        }
        if plan.receives {
            for &with in &code.calls().receives {
                sinks.push(Some(stack.sink(with, settings.read_bytes)?));
            }
        }
        if sinks.is_empty() && code.awaits_end() {
            // A program that awaits the end of the stream needs a sink, even if it receives nothing
            // else.
            let with = settings.receive_with;
            sinks.push(Some(stack.sink(with, settings.read_bytes)?));
        }
        let checker = plan.checks.then(|| Checker::new(settings.read_bytes));
        let responses = plan.has_responses.then(response_times);
        let slots = if plan.has_responses {
            wanted * plan.in_flight as usize
        } else {
            0
        };
        Ok(Group {
            tally: Tally::default(),
            source: sources.first_mut().and_then(Option::take),
            sink: sinks.first_mut().and_then(Option::take),
            checker,
            wanted,
            all: settings.flows * connections,
            read_bytes: settings.read_bytes,
            first,
            targets: Vec::new(),
            seed: 0,
            waiting: VecDeque::with_capacity(wanted),
            schedule: None,
            started_ns: vec![0; slots],
            responses,
            operations: OperationTimes::new(code.timed()),
            code,
            spare: Spare {
                sources,
                sinks,
                source_in_use: 0,
                sink_in_use: 0,
            },
            plan,
        })
    }

    /// Makes `which` the program's source in use.
    #[inline]
    pub(crate) fn use_source(&mut self, which: u8) {
        let spare = &mut self.spare;
        if spare.source_in_use != which {
            spare.sources[usize::from(spare.source_in_use)] = self.source.take();
            self.source = spare.sources[usize::from(which)].take();
            spare.source_in_use = which;
        }
    }

    /// Makes `which` the program's sink in use.
    #[inline]
    pub(crate) fn use_sink(&mut self, which: u8) {
        let spare = &mut self.spare;
        if spare.sink_in_use != which {
            spare.sinks[usize::from(spare.sink_in_use)] = self.sink.take();
            self.sink = spare.sinks[usize::from(which)].take();
            spare.sink_in_use = which;
        }
    }

    /// Pages of each source's files.
    pub(crate) fn file_pages(&self, stack: &S) -> impl Iterator<Item = Pages> {
        let sources = self.spare.sources.iter().flatten().chain(&self.source);
        sources.filter_map(|source| stack.pages(source))
    }
}

fn source<S: Stack>(stack: &mut S, plan: &Plan, with: SendWith) -> Result<S::Source, StackError> {
    let bytes = plan.token_region + plan.pattern_bytes;
    let mut content = Content {
        bytes,
        files: plan.files.unwrap_or(FileSizes::new(bytes, false)),
        call_bytes: plan.call_bytes,
        fill: &mut |offset, bytes: &mut [u8]| plan.fill(offset, bytes),
    };
    stack.source(with, &mut content)
}
