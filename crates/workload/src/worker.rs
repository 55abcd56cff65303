//! One thread's share of one end.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use hdrhistogram::Histogram;
use tcpcost_stack::{Content, Pages, Stack, StackError};
use tcpcost_study::{Counts, Side, WorkloadSettings};

use crate::clock::Clock;
use crate::error::call;
use crate::flow::Flow;
use crate::hello::Token;
use crate::io::Io;
use crate::pattern::Checker;
use crate::plan::Plan;
use crate::schedule::Schedule;
use crate::tally::Tally;

/// One thread's share of one end: its connections, its buffers, its counts.
///
/// Make it, [`set_up`](Worker::set_up), then [`run_until`](Worker::run_until) as often as needed.
/// All calls belong on the thread that is to carry the load.
pub struct Worker<S: Stack> {
    pub(crate) io: Io<S>,
    /// Connections, by token. At the server a place is free while its `conn` is `None`.
    pub(crate) flows: Vec<Flow<S::Conn>>,
    /// Free places among them (server).
    pub(crate) free: Vec<u32>,
    pub(crate) listeners: Vec<S::Listener>,
    pub(crate) ports: Vec<SocketAddr>,
    /// Addresses whose hello was right (server).
    pub(crate) peers: Vec<IpAddr>,
    /// Where to connect to; connection i goes to target i modulo their number (client).
    pub(crate) targets: Vec<SocketAddr>,
    /// Connections that this worker is to have.
    pub(crate) wanted: usize,
    /// Connections of the trial.
    pub(crate) all: usize,
    pub(crate) strangers: u64,
    pub(crate) queue: VecDeque<u32>,
    /// Connections that could start a message but must wait for a due time.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) seed: u64,
    /// Whether traffic has started.
    pub(crate) started: bool,
    pub(crate) clock: Clock,
    /// Start times of requests outstanding, `in_flight` places per connection (client).
    pub(crate) started_ns: Vec<u64>,
    pub(crate) responses: Option<Histogram<u64>>,
    /// See `pages_seen`.
    pages: Cell<Pages>,
}

/// Tokens from here on are listeners.
pub(crate) const LISTENERS: u32 = 1 << 31;

/// The listen queue asked for: what net.core.somaxconn, which caps it, has been since Linux 5.4.
const BACKLOG: u32 = 4096;

impl<S: Stack> Worker<S> {
    /// A server's worker, listening on `ports` ports of `addr` that the stack chooses, for `flows`
    /// connections (see [`flows_of`]).
    ///
    /// # Errors
    /// Of the listening sockets, the source and the sink.
    pub fn listen(
        stack: S,
        settings: &WorkloadSettings,
        token: Token,
        addr: IpAddr,
        ports: usize,
        flows: usize,
    ) -> Result<Worker<S>, StackError> {
        let mut worker = Worker::new(stack, settings, Side::Listens, token, flows, 0)?;
        for index in 0..ports {
            let token = LISTENERS + index as u32;
            let stack = &mut worker.io.stack;
            let listener = stack.listen(SocketAddr::new(addr, 0), BACKLOG, token)?;
            worker.ports.push(stack.local_addr(listener)?);
            worker.listeners.push(listener);
        }
        Ok(worker)
    }

    /// A client's worker with the connections `flows` of the trial's `settings.flows`; connection
    /// i goes to `targets[i % targets.len()]`. `seed` decides where in its first period a fixed
    /// rate starts.
    ///
    /// # Errors
    /// Of the source and the sink; no target.
    pub fn connect(
        stack: S,
        settings: &WorkloadSettings,
        token: Token,
        targets: &[SocketAddr],
        flows: Range<usize>,
        seed: u64,
    ) -> Result<Worker<S>, StackError> {
        if targets.is_empty() {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(call("connect without a target")(error));
        }
        let seed = seed.wrapping_add(flows.start as u64);
        let mut worker = Worker::new(stack, settings, Side::Connects, token, flows.len(), seed)?;
        worker.targets = targets.to_vec();
        worker.flows = flows.map(|index| Flow::new(index as u32)).collect();
        Ok(worker)
    }

    fn new(
        mut stack: S,
        settings: &WorkloadSettings,
        side: Side,
        token: Token,
        wanted: usize,
        seed: u64,
    ) -> Result<Worker<S>, StackError> {
        let plan = Plan::new(settings, side, token);
        let source = if plan.sends {
            let bytes = plan.token_region + plan.pattern_bytes;
            let mut content = Content {
                bytes,
                file_bytes: plan.file_bytes.unwrap_or(bytes),
                call_bytes: plan.call_bytes,
                fill: &mut |offset, bytes: &mut [u8]| plan.fill(offset, bytes),
            };
            Some(stack.source(settings.send_with, &mut content)?)
        } else {
            None
        };
        let sink = if plan.receives {
            Some(stack.sink(settings.receive_with, settings.read_bytes)?)
        } else {
            None
        };
        let checker = plan.checks.then(|| Checker::new(settings.read_bytes));
        let responses = plan.counts_transactions.then(response_times);
        let slots = if plan.counts_transactions {
            wanted * plan.in_flight as usize
        } else {
            0
        };
        Ok(Worker {
            io: Io {
                stack,
                plan,
                tally: Tally::default(),
                source,
                sink,
                checker,
            },
            flows: Vec::with_capacity(wanted),
            free: Vec::new(),
            listeners: Vec::new(),
            ports: Vec::new(),
            peers: Vec::new(),
            targets: Vec::new(),
            wanted,
            all: settings.flows,
            strangers: 0,
            queue: VecDeque::with_capacity(wanted),
            waiting: VecDeque::with_capacity(wanted),
            schedule: None,
            seed,
            started: false,
            clock: Clock::new(Instant::now()),
            started_ns: vec![0; slots],
            responses,
            pages: Cell::default(),
        })
    }

    /// Where a server's worker listens.
    pub fn ports(&self) -> &[SocketAddr] {
        &self.ports
    }

    /// The worker's counts since it was made. The hello of set-up is not in them. What does not
    /// apply to this end is absent.
    pub fn totals(&self) -> Counts {
        let completions = self.io.stack.completions();
        self.io
            .tally
            .counts(&self.io.plan, completions, self.pages_seen())
    }

    /// Pages of the files sent from, summed over the times that it was asked: a total, as all counts are.
    fn pages_seen(&self) -> Option<Pages> {
        let source = self.io.source.as_ref()?;
        let now = self.io.stack.pages(source)?;
        let before = self.pages.get();
        let seen = Pages {
            all: before.all + now.all,
            cached: before.cached + now.cached,
        };
        self.pages.set(seen);
        Some(seen)
    }

    /// Connections refused because they did not know the trial's token.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// The response times since they were last taken, ns, 3 significant digits; `None` where this
    /// end counts no transactions. A transaction's time ends when its whole response is in. It
    /// starts when the request is handed over (`rr`) or the connect is made (`crr`); at a fixed
    /// rate, when the transaction was due.
    pub fn take_response_times(&mut self) -> Option<Histogram<u64>> {
        self.responses
            .as_mut()
            .map(|responses| std::mem::replace(responses, response_times()))
    }

    /// The connections there are, so that a meter can look at each.
    pub fn conns(&self) -> impl Iterator<Item = S::Conn> + '_ {
        self.flows.iter().filter_map(|flow| flow.conn)
    }

    /// The stack under the worker.
    pub fn stack(&self) -> &S {
        &self.io.stack
    }

    /// Ends all connections by a reset, so that thousands of them leave no TIME_WAIT behind. A
    /// peer that still runs finds them broken: let both ends come back from `run_until` first.
    pub fn close(mut self) {
        for flow in &mut self.flows {
            if let Some(conn) = flow.conn.take() {
                self.io.stack.abort(conn);
            }
        }
        for &listener in &self.listeners {
            self.io.stack.close_listener(listener);
        }
    }
}

/// How many of the connections 0 to `flows` - 1 go to the targets `mine` out of `targets`: what a
/// server's worker with these ports is to expect.
pub fn flows_of(flows: usize, targets: usize, mine: Range<usize>) -> usize {
    mine.map(|target| flows.saturating_sub(target).div_ceil(targets.max(1)))
        .sum()
}

/// 1 ns to 1 h; a longer time counts as 1 h.
fn response_times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3)
        .expect("the bounds are in order and the digits are between 0 and 5")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_is_expected_by_exactly_one_server() {
        for flows in [1, 7, 200, 30_000] {
            let of = |mine| flows_of(flows, 5, mine);
            assert_eq!(of(0..2) + of(2..5), flows);
            let count = (0..flows).filter(|index| index % 5 == 1).count();
            assert_eq!(of(1..2), count);
        }
    }
}
