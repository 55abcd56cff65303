//! One thread's share of one end.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use hdrhistogram::Histogram;
use tcpcost_counts::{Counts, Quantity};
use tcpcost_knobs::{Side, WorkloadSettings};
use tcpcost_stack::{Stack, StackError};

use crate::blocking::{OnStart, Threads};
use crate::clock::Clock;
use crate::error::call;
use crate::flow::Flow;
use crate::group::Group;
use crate::hello::Token;
use crate::histogram::response_times;
use crate::io::{CALL_LEAST, Io, TURN_BYTES};
use crate::operation_times::OperationFound;
use crate::program::{Running, Sleepers};

/// One thread's share of one end: its connections, its buffers, its counts.
///
/// Make a worker, add further groups of connections if there are any, call
/// [`set_up`](Worker::set_up), then [`run_until`](Worker::run_until) as often as needed. All calls
/// belong on the thread that carries the load. Both ends have the same groups in the same order.
pub struct Worker<S: Stack> {
    pub(crate) io: Io<S>,
    /// Groups that are not current; `None` is the place of the current group, which is in `io`.
    pub(crate) groups: Vec<Option<Box<Group<S>>>>,
    /// Index of the current group, which is in `io`.
    pub(crate) group: u16,
    /// Connections, by token. At the server a place is free while its `conn` is `None`.
    pub(crate) flows: Vec<Flow<S::Conn>>,
    /// Free places in `flows` (server).
    pub(crate) free: Vec<u32>,
    /// Listeners by their token, each with its group; `None` once closed.
    pub(crate) listeners: Vec<(Option<S::Listener>, u16)>,
    pub(crate) ports: Vec<SocketAddr>,
    /// Addresses whose hello was right (server).
    pub(crate) peers: Vec<IpAddr>,
    /// Connections that this worker should have, of all groups.
    pub(crate) wanted: usize,
    pub(crate) strangers: u64,
    pub(crate) queue: VecDeque<u32>,
    /// Limit of bytes that a stream sends in one turn, exceeded by at most a call.
    pub(crate) send_turn_bytes: usize,
    /// Bytes that a call of a stream counts as at least in a turn; 0 in a shared thread.
    pub(crate) call_least: usize,
    /// True once traffic has started.
    pub(crate) started: bool,
    pub(crate) clock: Clock,
    /// Program state of each connection; empty where no group has a program.
    pub(crate) running: Vec<Running>,
    pub(crate) sleepers: Sleepers,
    /// See [`Worker::seed_sizes`].
    pub(crate) sizes_seed: u64,
    /// See [`Worker::with_threads`].
    pub(crate) on_start: Option<OnStart>,
    /// Threads for each connection; `None` before they are made, and without them.
    pub(crate) threads: Option<Threads>,
}

/// First token of listeners.
pub(crate) const LISTENERS: u32 = 1 << 31;

/// Backlog asked for: the default of net.core.somaxconn, which caps it, since Linux 5.4.
const BACKLOG: u32 = 4096;

impl<S: Stack> Worker<S> {
    /// Makes a server's worker for `flows` connections (see [`flows_of`]), listening on `ports`
    /// ports of `addr` that the stack chooses.
    ///
    /// # Errors
    /// Errors of the listening sockets, the source and the sink.
    pub fn listen(
        mut stack: S,
        settings: &WorkloadSettings,
        token: Token,
        addr: IpAddr,
        ports: usize,
        flows: usize,
    ) -> Result<Worker<S>, StackError> {
        let group = Group::new(&mut stack, settings, Side::Listens, token, 0..flows, 0)?;
        let mut worker = Worker::new(stack, group);
        worker.listen_for(0, addr, ports)?;
        Ok(worker)
    }

    /// Makes a client's worker with the connections `flows` of the trial's `settings.flows`;
    /// connection i goes to `targets[i % targets.len()]`. `seed` decides where in its first period
    /// a fixed rate starts.
    ///
    /// # Errors
    /// Errors of the source and the sink; no target.
    pub fn connect(
        mut stack: S,
        settings: &WorkloadSettings,
        token: Token,
        targets: &[SocketAddr],
        flows: Range<usize>,
        seed: u64,
    ) -> Result<Worker<S>, StackError> {
        let side = Side::Connects;
        let group = Group::new(&mut stack, settings, side, token, flows.clone(), 0)?;
        let mut worker = Worker::new(stack, group);
        worker.connect_for(0, targets, flows, seed)?;
        Ok(worker)
    }

    /// Adds a group to a server's worker, on ports of its own.
    ///
    /// # Errors
    /// See [`Worker::listen`].
    pub fn also_listen(
        &mut self,
        settings: &WorkloadSettings,
        addr: IpAddr,
        ports: usize,
        flows: usize,
    ) -> Result<(), StackError> {
        let index = self.add_group(settings, Side::Listens, 0..flows)?;
        self.listen_for(index, addr, ports)
    }

    /// Adds a group to a client's worker.
    ///
    /// # Errors
    /// See [`Worker::connect`].
    pub fn also_connect(
        &mut self,
        settings: &WorkloadSettings,
        targets: &[SocketAddr],
        flows: Range<usize>,
        seed: u64,
    ) -> Result<(), StackError> {
        let index = self.add_group(settings, Side::Connects, flows.clone())?;
        self.connect_for(index, targets, flows, seed)
    }

    /// Seeds a program's random sizes. Call this before [`Worker::set_up`], with the same seed at
    /// both ends.
    pub fn seed_sizes(&mut self, seed: u64) {
        self.sizes_seed = seed;
    }

    fn new(stack: S, group: Group<S>) -> Worker<S> {
        Worker {
            flows: Vec::with_capacity(group.wanted),
            queue: VecDeque::with_capacity(group.wanted),
            wanted: group.wanted,
            io: Io {
                stack,
                group: Box::new(group),
            },
            groups: vec![None],
            group: 0,
            free: Vec::new(),
            listeners: Vec::new(),
            ports: Vec::new(),
            peers: Vec::new(),
            strangers: 0,
            send_turn_bytes: TURN_BYTES,
            call_least: CALL_LEAST,
            started: false,
            clock: Clock::new(Instant::now()),
            running: Vec::new(),
            sleepers: Sleepers::default(),
            sizes_seed: 0,
            on_start: None,
            threads: None,
        }
    }

    fn add_group(
        &mut self,
        settings: &WorkloadSettings,
        side: Side,
        flows: Range<usize>,
    ) -> Result<u16, StackError> {
        let index =
            u16::try_from(self.groups.len()).expect("a study has some hundred groups at most");
        let (token, first) = (self.io.group.plan.token, self.flows.len());
        let group = Group::new(&mut self.io.stack, settings, side, token, flows, first)?;
        self.wanted += group.wanted;
        self.groups.push(Some(Box::new(group)));
        Ok(index)
    }

    fn listen_for(&mut self, group: u16, addr: IpAddr, ports: usize) -> Result<(), StackError> {
        for _ in 0..ports {
            let token = LISTENERS + self.listeners.len() as u32;
            let stack = &mut self.io.stack;
            let listener = stack.listen(SocketAddr::new(addr, 0), BACKLOG, token)?;
            self.ports.push(stack.local_addr(listener)?);
            self.listeners.push((Some(listener), group));
        }
        Ok(())
    }

    fn connect_for(
        &mut self,
        index: u16,
        targets: &[SocketAddr],
        flows: Range<usize>,
        seed: u64,
    ) -> Result<(), StackError> {
        if targets.is_empty() {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(call("connect without a target")(error));
        }
        self.switch_to(index);
        self.io.group.targets = targets.to_vec();
        self.io.group.seed = seed.wrapping_add(flows.start as u64);
        // The connections of each flow are adjacent.
        let each = self.io.group.plan.connections;
        let connections = flows.start * each..flows.end * each;
        self.flows
            .extend(connections.map(|connection| Flow::new(connection as u32, index)));
        Ok(())
    }

    /// Makes a group the current one.
    #[inline]
    pub(crate) fn switch_to(&mut self, group: u16) {
        if group != self.group
            && let Some(next) = self.groups[usize::from(group)].take()
        {
            let last = std::mem::replace(&mut self.io.group, next);
            self.groups[usize::from(self.group)] = Some(last);
            self.group = group;
        }
    }

    /// Adds a place for an accepted connection.
    pub(crate) fn add_flow(&mut self) {
        self.flows.push(Flow::new(0, self.group));
    }

    /// Listening addresses of a server's worker: the ports of group 0, then of group 1, …
    pub fn ports(&self) -> &[SocketAddr] {
        &self.ports
    }

    /// Number of groups of connections.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Counts of the worker since it was made, over all groups, without the hello of set-up.
    /// Quantities that do not apply to this end are absent.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::new();
        let (mut completes, mut maps) = (false, false);
        for index in 0..self.groups.len() {
            for (quantity, count) in self.group_totals(index) {
                *totals.entry(quantity).or_insert(0) += count;
            }
            let plan = &self.group_at(index).plan;
            completes |= plan.completes;
            maps |= plan.maps;
        }
        let completions = self.io.stack.completions();
        if completes {
            totals.insert(Quantity::ZerocopyCompletions, completions.sends);
            totals.insert(Quantity::ZerocopyCopied, completions.copied);
        }
        if let Some(calls) = completions.ring_calls {
            totals.insert(Quantity::IoUringSystemCalls, calls);
        }
        if maps {
            totals.insert(Quantity::PayloadBytesMapped, completions.mapped_bytes);
        }
        totals
    }

    /// Payload bytes sent and received, over all groups; without bytes that connection threads
    /// moved.
    pub fn bytes_moved(&self) -> u64 {
        let of = |index: usize| {
            let tally = &self.group_at(index).tally;
            tally.bytes_sent + tally.bytes_received
        };
        (0..self.groups.len()).map(of).sum()
    }

    /// Counts of one group, without those that the stack keeps for all groups together.
    pub fn group_totals(&self, group: usize) -> Counts {
        let own = self.group_at(group);
        match &self.threads {
            Some(threads) => threads.tally(group).counts(&own.plan),
            None => own.tally.counts(&own.plan),
        }
    }

    /// Pages of the files that payload is sent from; empty if it is not sent from files. The kernel looks at
    /// each page, so this is no work for a measured interval.
    pub fn file_pages(&self) -> Counts {
        let groups = (0..self.groups.len()).map(|index| self.group_at(index));
        let mut counts = Counts::new();
        for pages in groups.flat_map(|group| group.file_pages(&self.io.stack)) {
            *counts.entry(Quantity::FilePages).or_insert(0) += pages.all;
            *counts.entry(Quantity::FilePagesCached).or_insert(0) += pages.cached;
        }
        counts
    }

    fn group_at(&self, index: usize) -> &Group<S> {
        self.groups[index].as_deref().unwrap_or(&self.io.group)
    }

    /// Connections refused because they did not send the trial's token.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Response times of all groups since the last call, ns, 3 significant digits; `None` if this
    /// end records none. A transaction's time ends when its whole response has arrived. It starts
    /// when the request is sent (`rr`) or the connect is made (`crr`); at a fixed rate, when the
    /// transaction was due. A program's time is that of a round, without its thinking and sleeping.
    pub fn take_response_times(&mut self) -> Option<Histogram<u64>> {
        let groups = 0..self.groups.len();
        let each: Vec<_> = groups
            .filter_map(|group| self.take_group_response_times(group))
            .collect();
        each.into_iter().reduce(|mut all, more| {
            all += more;
            all
        })
    }

    /// Response times of one group; see [`Worker::take_response_times`].
    pub fn take_group_response_times(&mut self, group: usize) -> Option<Histogram<u64>> {
        if let Some(threads) = &self.threads {
            return threads.take_responses(group);
        }
        self.switch_to(group as u16);
        let responses = self.io.group.responses.as_mut()?;
        Some(std::mem::replace(responses, response_times()))
    }

    /// Durations of each operation of a group's program since the last call, in the order of
    /// [`Program::timed`](tcpcost_knobs::Program::timed). Empty if the workload is no program, or
    /// if this end executes the mirror image of one.
    pub fn take_operations(&mut self, group: usize) -> Vec<OperationFound> {
        if let Some(threads) = &self.threads {
            return threads.take_operations(group);
        }
        self.switch_to(group as u16);
        self.io.group.operations.take()
    }

    /// Open connections, so that a meter can read each.
    pub fn conns(&self) -> impl Iterator<Item = S::Conn> + '_ {
        self.flows.iter().filter_map(|flow| flow.conn)
    }

    /// Stack under the worker.
    pub fn stack(&self) -> &S {
        &self.io.stack
    }

    /// Stops the worker's connection threads; the connections stay open. A worker without threads
    /// has stopped with its last run.
    pub fn end_traffic(&self) {
        if let Some(threads) = &self.threads {
            threads.stop();
        }
    }

    /// Ends all connections by a reset, so that thousands of them leave no TIME_WAIT. A peer that
    /// still runs finds them broken: let `run_until` return at both ends first.
    pub fn close(mut self) {
        self.threads = None;
        for flow in &mut self.flows {
            if let Some(conn) = flow.conn.take() {
                self.io.stack.abort(conn);
            }
        }
        for listener in self.listeners.iter().filter_map(|(listener, _)| *listener) {
            self.io.stack.close_listener(listener);
        }
    }
}

/// Number of the connections 0 to `flows` - 1 that go to the targets `mine` out of `targets`: the
/// connections that a server's worker with these ports should expect.
pub fn flows_of(flows: usize, targets: usize, mine: Range<usize>) -> usize {
    mine.map(|target| flows.saturating_sub(target).div_ceil(targets.max(1)))
        .sum()
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
