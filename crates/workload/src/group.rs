//! What the connections of one group share: what they do, what they send from, what they have counted.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;

use hdrhistogram::Histogram;
use tcpcost_stack::{Content, Pages, Stack, StackError};
use tcpcost_study::{Counts, SendWith, Side, WaitsBy, WorkloadSettings};

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
    /// Connections that this worker is to have of it.
    pub(crate) wanted: usize,
    /// Connections of the trial: those of all flows.
    pub(crate) all: usize,
    /// Bytes of a reader's buffer.
    pub(crate) read_bytes: usize,
    /// The place of its first connection among the worker's (client).
    pub(crate) first: usize,
    /// Where to connect to; connection i goes to target i modulo their number (client).
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) seed: u64,
    /// Connections that could start a message but must wait for a due time.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) schedule: Option<Schedule>,
    /// Start times of requests outstanding, `in_flight` places per connection (client).
    pub(crate) started_ns: Vec<u64>,
    pub(crate) responses: Option<Histogram<u64>>,
    /// Of a program.
    pub(crate) code: Code,
    /// How long its operations took.
    pub(crate) operations: OperationTimes,
    spare: Spare<S>,
    /// See `pages_seen`.
    pages: Cell<Pages>,
}

/// Sources and sinks of a program's other calls; `None` is the place of the one that is in use.
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
            // The end of a stream is received, too, also where nothing else is.
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
            pages: Cell::default(),
            plan,
        })
    }

    /// Sends out of this one of the program's sources from now on.
    #[inline]
    pub(crate) fn use_source(&mut self, which: u8) {
        let spare = &mut self.spare;
        if spare.source_in_use != which {
            spare.sources[usize::from(spare.source_in_use)] = self.source.take();
            self.source = spare.sources[usize::from(which)].take();
            spare.source_in_use = which;
        }
    }

    /// Receives into this one of the program's sinks from now on.
    #[inline]
    pub(crate) fn use_sink(&mut self, which: u8) {
        let spare = &mut self.spare;
        if spare.sink_in_use != which {
            spare.sinks[usize::from(spare.sink_in_use)] = self.sink.take();
            self.sink = spare.sinks[usize::from(which)].take();
            spare.sink_in_use = which;
        }
    }

    /// The counts so far.
    pub(crate) fn counts(&self, stack: &S) -> Counts {
        let pages = self.pages_seen(stack);
        self.tally.counts(&self.plan, pages)
    }

    /// Pages of the files sent from, summed over the times that it was asked: a total, as all counts are.
    fn pages_seen(&self, stack: &S) -> Option<Pages> {
        let sources = self.spare.sources.iter().flatten().chain(&self.source);
        let pages = sources.filter_map(|source| stack.pages(source));
        let now = pages.reduce(|sum, more| Pages {
            all: sum.all + more.all,
            cached: sum.cached + more.cached,
        })?;
        let before = self.pages.get();
        let seen = Pages {
            all: before.all + now.all,
            cached: before.cached + now.cached,
        };
        self.pages.set(seen);
        Some(seen)
    }
}

fn source<S: Stack>(stack: &mut S, plan: &Plan, with: SendWith) -> Result<S::Source, StackError> {
    let bytes = plan.token_region + plan.pattern_bytes;
    let mut content = Content {
        bytes,
        file_bytes: plan.file_bytes.unwrap_or(bytes),
        call_bytes: plan.call_bytes,
        fill: &mut |offset, bytes: &mut [u8]| plan.fill(offset, bytes),
    };
    stack.source(with, &mut content)
}
