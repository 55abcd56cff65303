//! The thread of a worker: makes its stack and follows orders. Its work in a span is in `end.rs`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tcpcost_link::Device;
use tcpcost_meter::affinity::{pin, run_first};
use tcpcost_meter::memory::MemoryUse;
use tcpcost_stack::{KernelStack, SocketOptions, Stack, Wire};
use tcpcost_study::{FlowGroup, Side, WaitsBy, WorkloadSettings};
use tcpcost_workload::{self as workload, Token, flows_of};

use super::conduct::conduct;
use super::end::WorkerEnd;
use super::state::Worker;
use super::{Listening, Role, WorkerAnswer, WorkerConfig, WorkerOrder};
use crate::backend::{self, Backend, ObservedStack};
use crate::capture::captured;
use crate::deal;
use crate::policy;
use crate::protocol::{Prepare, clock_ns};

impl Worker {
    /// Works with the stack that the configuration asks for.
    pub(super) fn serve(
        mut self,
        config: WorkerConfig,
        prepare: &Prepare,
        groups: &[FlowGroup],
        role: Role,
    ) -> anyhow::Result<()> {
        if self.connection_threads > 0
            && let Err(error) = run_first()
        {
            self.meters.warnings.push(format!(
                "{error}: meters are read late if many threads are runnable"
            ));
        }
        let options = policy::options(prepare, groups);
        match config.backend.clone() {
            Backend::Tap(links) if prepare.side.is_some() => {
                let queue = links.first().and_then(|queues| queues.get(config.index));
                let tap = queue.context("more threads than queues")?.try_clone()?;
                self.work_on(tap, config, prepare, groups, &options, role)
            }
            Backend::Kernel if groups[0].settings.io == WaitsBy::IoUring => {
                let stack = backend::ring(&options, groups, config.threads)?;
                self.work(make(stack, &config, prepare, groups, role)?)
            }
            // On a host that relays by our TCP, this worker only reads the meters.
            Backend::Kernel | Backend::Tap(_) => {
                let stack = KernelStack::new(&options)?;
                self.work(make(stack, &config, prepare, groups, role)?)
            }
            Backend::Memory(wires) => {
                let side = prepare.side.context("memory forwards nothing")?;
                let wire = wires.end(config.index, side);
                let wire = wire.context("more threads than wires")?;
                self.work_on(wire, config, prepare, groups, &options, role)
            }
        }
    }

    /// Works with our TCP over `device`, captured if the trial is captured.
    pub(super) fn work_on<D: Device<Wire> + Send + 'static>(
        self,
        device: D,
        mut config: WorkerConfig,
        prepare: &Prepare,
        groups: &[FlowGroup],
        options: &SocketOptions,
        role: Role,
    ) -> anyhow::Result<()> {
        if let Some((lane, counts)) = config.lane.take() {
            let device = lane.over(device, config.index, counts);
            return self.work_on(device, config, prepare, groups, options, role);
        }
        match config.capture.take() {
            None => {
                let stack = backend::stack(device, config.index, prepare, options)?;
                self.work(make(stack, &config, prepare, groups, role)?)
            }
            Some(file) => {
                let device = captured(device, file);
                let stack = backend::stack(device, config.index, prepare, options)?;
                self.work(make(stack, &config, prepare, groups, role)?)
            }
        }
    }

    pub(super) fn work<S: ObservedStack + 'static>(
        self,
        worker: workload::Worker<S>,
    ) -> anyhow::Result<()>
    where
        WorkerEnd<S>: Send,
    {
        if !worker.ports().is_empty() {
            self.send(WorkerAnswer::Listening(Listening {
                addresses: worker.ports().to_vec(),
                loaded: self.meters.loaded.clone(),
            }))?;
        }
        let mut end = WorkerEnd::new(self, worker);
        let mut is_between = false;
        while let Some(order) = end.own.next_order(&mut end.traffic, is_between)? {
            is_between = matches!(order, WorkerOrder::SetUp(_));
            if let WorkerOrder::Run(span) = order {
                end.begin(span, end.own.handover.is_some());
                // The other end's thread does the rest, and answers.
                if let Some(handover) = end.own.handover.clone()
                    && end.own.side == Some(Side::Listens)
                {
                    handover.put(Box::new(end.leave_home()?));
                    return Ok(());
                }
            }
            match end.follow(&order) {
                Ok(answer) => end.own.send(answer)?,
                Err(reason) => {
                    // Sent before the connections end, because their end makes the other side fail, too.
                    let _ = end.own.outbox.send(Err(reason));
                    return Ok(());
                }
            }
        }
        end.traffic.close();
        Ok(())
    }
}

impl<S: ObservedStack> WorkerEnd<S> {
    fn follow(&mut self, order: &WorkerOrder) -> anyhow::Result<WorkerAnswer> {
        match order {
            WorkerOrder::SetUp(deadline) => {
                let worker = &mut self.traffic;
                let memory = MemoryUse::read(Path::new("/proc"));
                let begun_ns = clock_ns();
                worker.set_up(*deadline)?;
                let set_up_ns = clock_ns().saturating_sub(begun_ns);
                S::set(worker, &self.own.options)?;
                let mut ready = S::describe(worker, &self.own.knobs);
                ready.connections = worker.conns().count();
                (ready.set_up_ns, ready.memory) = (set_up_ns, memory);
                Ok(WorkerAnswer::Ready(ready))
            }
            WorkerOrder::Run(_) => {
                match self.own.handover.clone() {
                    None => conduct(&mut [self])?,
                    Some(handover) => {
                        let mut other = handover.take(&self.own.stop)?;
                        let outcome = conduct(&mut [self, &mut *other]);
                        other.answer(outcome.as_ref().copied());
                        outcome?;
                    }
                }
                Ok(WorkerAnswer::WorkerReadings(Box::new(self.found()?)))
            }
        }
    }
}

/// Makes the worker's traffic over its stack.
pub(super) fn make<S: Stack>(
    stack: S,
    config: &WorkerConfig,
    prepare: &Prepare,
    groups: &[FlowGroup],
    role: Role,
) -> anyhow::Result<workload::Worker<S>> {
    let (index, threads) = (config.index, config.threads);
    let token = token(&prepare.token)?;
    // In memory an instance reaches only the same instance of the other host, so its flows all go there.
    let paired = matches!(config.backend, Backend::Memory(..));
    // Both ends draw sizes with the study's seed, which is the same for all hosts.
    let sizes_seed = prepare.seed & u64::from(u32::MAX);
    let place = |number: usize| deal::position(index, threads, number);
    let share = |number: usize| deal::share(groups[number].settings.flows, threads, place(number));
    let first = &groups[0].settings;
    let mut worker = match role {
        Role::Listen { address, ports } => {
            let expected = |number: usize| {
                let FlowGroup {
                    settings, times, ..
                } = &groups[number];
                let mine = place(number) * ports..(place(number) + 1) * ports;
                // Each host that connects deals its own flows over all ports.
                match paired {
                    true => share(number).len(),
                    false => {
                        times * flows_of(settings.flows / times.max(&1), threads * ports, mine)
                    }
                }
            };
            let mut worker =
                workload::Worker::listen(stack, first, token, address, ports, expected(0))?;
            for (number, group) in groups.iter().enumerate().skip(1) {
                worker.also_listen(&group.settings, address, ports, expected(number))?;
            }
            worker
        }
        Role::Observe => {
            let idle = WorkloadSettings {
                rate_bits_per_s: None,
                transactions_per_s: None,
                ..first.clone()
            };
            let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
            workload::Worker::connect(stack, &idle, token, &[nobody], 0..0, 0)?
        }
        Role::Connect { targets } => {
            let targets = |number: usize| {
                let all = deal::of_group(&targets, groups.len(), number);
                let ports = all.len() / threads;
                match paired {
                    true => &all[place(number) * ports..(place(number) + 1) * ports],
                    false => all,
                }
            };
            // Each worker has its own seed, so that due times are spread.
            let seed = prepare.seed.wrapping_add(index as u64);
            let mut worker =
                workload::Worker::connect(stack, first, token, targets(0), share(0), seed)?;
            for (number, group) in groups.iter().enumerate().skip(1) {
                worker.also_connect(&group.settings, targets(number), share(number), seed)?;
            }
            worker
        }
    };
    worker.seed_sizes(sizes_seed);
    if first.io == WaitsBy::BlockingThreads {
        let cpus = prepare.cpus.clone();
        // A thread that cannot be pinned stays on its worker's CPU, the first.
        worker = worker.with_threads(Arc::new(move |thread| drop(pin(cpus[thread % cpus.len()]))));
    }
    Ok(worker)
}

fn token(hex: &str) -> anyhow::Result<Token> {
    let number = u128::from_str_radix(hex, 16)
        .ok()
        .filter(|_| hex.len() == 32);
    let number = number.with_context(|| format!("token {hex:?}: expected 32 hex digits"))?;
    Ok(number.to_be_bytes())
}
