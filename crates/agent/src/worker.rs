//! One worker thread: sets up its share of the connections, runs traffic, takes snapshots at the
//! agreed instants. Between two snapshots it does nothing but the workload.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tcpcost_link::Device;
use tcpcost_meter::affinity::pin;
use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_meter::{Meter, rusage};
use tcpcost_stack::{KernelStack, SocketOptions, Stack, Wire};
use tcpcost_study::{
    Brackets, CallChains, Counts, Knob, MeterName, Quantity, Reading, Snapshot, Totals, Whose,
    WorkloadKind, WorkloadSettings,
};
use tcpcost_workload::{Token, Worker, flows_of, socket_options};

use crate::capture::{WireFile, captured};
use crate::ground::{self, Ground, Observed, Ready};
use crate::policy::AckOptions;
use crate::protocol::{Prepare, Span, clock_ns, realtime_ns};
use crate::readings::{self, Meters};
use crate::sampler::Sampler;
use crate::soak;

/// TCP_INFO is read this long before the first snapshot, so that traffic is in its stride again:
/// the time that reading takes, twice over, and two milliseconds.
const TCP_INFO_NS_PER_CONNECTION: u64 = 4_000;
const TCP_INFO_NS: u64 = 2_000_000;
/// Reading the totals by connection takes as long, both ends' where they are in one map.
const BY_CONNECTION_NS_PER_CONNECTION: u64 = 4_000;

/// Which worker, and over what.
pub struct Place {
    /// Its number, from 0.
    pub index: usize,
    /// How many there are.
    pub threads: usize,
    /// What its stack stands on.
    pub ground: Ground,
    /// Where what passes its wire goes too.
    pub capture: Option<WireFile>,
    /// Meters of the end that are there already, for the first worker to read.
    pub meters: Vec<Box<dyn Meter + Send>>,
    /// eBPF programs that another host of this machine has loaded: handles by meter.
    pub loaded: BTreeMap<MeterName, String>,
}

/// What a worker is for.
pub enum Duty {
    /// Listens on so many ports of this address.
    Listen {
        /// The address.
        address: IpAddr,
        /// Ports.
        ports: usize,
    },
    /// Connects.
    Connect {
        /// Where the other host listens.
        targets: Vec<SocketAddr>,
    },
    /// Of a host that forwards: reads the meters.
    Observe,
}

/// A worker that listens.
#[derive(Debug, Default)]
pub struct Listening {
    /// Where.
    pub addresses: Vec<SocketAddr>,
    /// eBPF programs that it has loaded: handles by meter.
    pub loaded: BTreeMap<MeterName, String>,
}

/// What a worker found between its two snapshots.
pub struct Found {
    /// Readings.
    pub readings: Vec<Reading>,
    /// Response times of the interval, ns.
    pub response_times: Option<Histogram<u64>>,
    /// Call chains of the interval.
    pub profile: Option<CallChains>,
    /// Totals by connection of the whole end, of the worker that reads its meters, if that is wanted.
    pub by_connection: Option<[Totalled; 2]>,
    /// Keys of its own connections in these.
    pub keys: Vec<u64>,
    /// Meters that could not be had, one line each.
    pub cautions: Vec<String>,
    /// When the meters were read.
    pub snapshots: Brackets,
    /// When TCP_INFO was.
    pub tcp_info: Option<Brackets>,
}

/// Totals by connection at an instant.
pub struct Totalled {
    /// Monotonic time, ns.
    pub at_ns: u64,
    /// By [`tcpcost_meter::bpf::connection_key`].
    pub totals: HashMap<u64, Counts>,
}

enum Order {
    SetUp(Instant),
    Run(Span),
}

enum Answer {
    Listening(Listening),
    Ready(Ready),
    Found(Box<Found>),
}

/// The handle of a worker thread. Dropping it ends the thread and its connections.
pub struct WorkerThread {
    orders: Option<Sender<Order>>,
    answers: Receiver<Result<Answer, String>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts a worker on its CPU. The first alone reads the meters that count for the whole end.
    pub fn start(
        mut place: Place,
        prepare: &Prepare,
        settings: &WorkloadSettings,
        duty: Duty,
    ) -> std::io::Result<WorkerThread> {
        let (orders, inbox) = channel();
        let (outbox, answers) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let wants = |meter| prepare.meters.contains(&meter);
        let mut body = Body {
            inbox,
            outbox,
            stop: Arc::clone(&stop),
            meters: Meters::default(),
            sampler: None,
            beside_soak: wants(MeterName::Soak),
            by_connection: prepare.by_connection && settings.kind != WorkloadKind::Crr,
            tcp_info: (wants(MeterName::TcpInfo) && settings.kind != WorkloadKind::Crr)
                .then(TcpInfo::default),
            reads_rusage: wants(MeterName::Rusage),
            has_workload: prepare.side.is_some(),
            options: AckOptions::new(prepare),
            knobs: prepare.knobs.set_at(prepare.host),
        };
        let cpu = prepare.cpus[place.index % prepare.cpus.len()];
        let (prepare, settings) = (prepare.clone(), settings.clone());
        let thread = std::thread::Builder::new()
            .name(format!("{}-{}", prepare.host, place.index))
            .spawn(move || {
                let outbox = body.outbox.clone();
                let ready = own_files().and_then(|()| pin(cpu).map_err(one_line));
                // Here, so that descriptors of meters are in this thread's table and end with it.
                if place.index == 0 {
                    let loaded = std::mem::take(&mut place.loaded);
                    let is_kernel = place.ground.is_kernel();
                    body.meters = readings::meters(&prepare, is_kernel, settings.flows, loaded);
                    body.sampler = Sampler::load(&prepare, &mut body.meters.cautions);
                    body.meters.meters.append(&mut place.meters);
                }
                let outcome = ready.and_then(|()| {
                    let options = socket_options(&settings);
                    match place.ground.clone() {
                        Ground::Kernel => {
                            let stack = KernelStack::new(&options).map_err(one_line)?;
                            body.work(make(stack, &place, &prepare, &settings, duty)?)
                        }
                        Ground::Tap(queues) => {
                            let queue =
                                queues.get(place.index).ok_or("more threads than queues")?;
                            let tap = queue.try_clone().map_err(one_line)?;
                            body.work_on(tap, place, &prepare, &settings, &options, duty)
                        }
                        Ground::Memory(wires) => {
                            let side = prepare.side.ok_or("memory forwards nothing")?;
                            let memory = wires
                                .end(place.index, side)
                                .ok_or("more threads than wires")?;
                            body.work_on(memory, place, &prepare, &settings, &options, duty)
                        }
                    }
                });
                if let Err(reason) = outcome {
                    // Nobody listens any more when the trial is given up; then it is of no interest.
                    let _ = outbox.send(Err(reason));
                }
            })?;
        Ok(WorkerThread {
            orders: Some(orders),
            answers,
            stop,
            thread: Some(thread),
        })
    }

    fn answer(&self) -> Result<Answer, String> {
        self.answers
            .recv()
            .unwrap_or_else(|_| Err("a worker thread ended".to_string()))
    }

    fn order(&self, order: Order) {
        // If the thread is gone, the answer that is waited for next says why.
        let _ = self
            .orders
            .as_ref()
            .expect("open until dropped")
            .send(order);
    }

    /// Where it listens.
    pub fn listening(&self) -> Result<Listening, String> {
        match self.answer()? {
            Answer::Listening(listening) => Ok(listening),
            _ => Err("a worker answered out of turn".to_string()),
        }
    }

    /// Starts to set up its connections.
    pub fn set_up(&self, deadline: Instant) {
        self.order(Order::SetUp(deadline));
    }

    /// Waits until they are up.
    pub fn ready(&self) -> Result<Ready, String> {
        match self.answer()? {
            Answer::Ready(ready) => Ok(ready),
            _ => Err("a worker answered out of turn".to_string()),
        }
    }

    /// Starts to run over a span.
    pub fn run(&self, span: Span) {
        self.order(Order::Run(span));
    }

    /// Waits for the end of the span.
    pub fn found(&self) -> Result<Found, String> {
        match self.answer()? {
            Answer::Found(found) => Ok(*found),
            _ => Err("a worker answered out of turn".to_string()),
        }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed already, and the missing answer has failed the trial.
            let _ = thread.join();
        }
    }
}

/// Gives the calling thread a file table of its own: RLIMIT_NOFILE then counts for each worker by
/// itself, and a call on a socket needs no atomic reference to it, as in a process of one thread.
#[allow(
    unsafe_code,
    reason = "unshare can take files from under others; these are in both tables"
)]
fn own_files() -> Result<(), String> {
    // SAFETY: takes no pointers; files opened before stay open in both tables.
    match unsafe { libc::unshare(libc::CLONE_FILES) } {
        0 => Ok(()),
        _ => Err(format!(
            "give a thread its own file table: {}",
            std::io::Error::last_os_error()
        )),
    }
}

fn one_line(error: impl std::error::Error) -> String {
    error.to_string()
}

fn make<S: Stack>(
    stack: S,
    place: &Place,
    prepare: &Prepare,
    settings: &WorkloadSettings,
    duty: Duty,
) -> Result<Worker<S>, String> {
    let (index, threads) = (place.index, place.threads);
    let token = token(&prepare.token)?;
    // In memory a client's instance reaches one of the server's: its flows go there, not all round.
    let paired = matches!(place.ground, Ground::Memory(..));
    let share = index * settings.flows / threads..(index + 1) * settings.flows / threads;
    match duty {
        Duty::Listen { address, ports } => {
            let mine = index * ports..(index + 1) * ports;
            // Each host that connects deals its own flows over all ports.
            let (hosts, flows) = (prepare.times, settings.flows);
            let flows = match paired {
                true => share.len(),
                false => hosts * flows_of(flows / hosts, threads * ports, mine),
            };
            let worker = Worker::listen(stack, settings, token, address, ports, flows);
            worker.map_err(|error| error.to_string())
        }
        Duty::Observe => {
            let idle = WorkloadSettings {
                rate_bits_per_s: None,
                transactions_per_s: None,
                ..settings.clone()
            };
            let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
            let worker = Worker::connect(stack, &idle, token, &[nobody], 0..0, 0);
            worker.map_err(|error| error.to_string())
        }
        Duty::Connect { mut targets } => {
            if paired {
                let ports = targets.len() / threads;
                targets = targets
                    .get(index * ports..(index + 1) * ports)
                    .unwrap_or_default()
                    .to_vec();
            }
            // Each worker a seed of its own, so that their due times are spread.
            let seed = prepare.seed.wrapping_add(index as u64);
            let worker = Worker::connect(stack, settings, token, &targets, share, seed);
            worker.map_err(|error| error.to_string())
        }
    }
}

fn token(hex: &str) -> Result<Token, String> {
    let wrong = || format!("token {hex:?}: expected 32 hex digits");
    let number = u128::from_str_radix(hex, 16).map_err(|_| wrong())?;
    if hex.len() == 32 {
        Ok(number.to_be_bytes())
    } else {
        Err(wrong())
    }
}

struct Body {
    inbox: Receiver<Order>,
    outbox: Sender<Result<Answer, String>>,
    stop: Arc<AtomicBool>,
    meters: Meters,
    sampler: Option<Sampler>,
    beside_soak: bool,
    by_connection: bool,
    /// Not for `crr`, whose connections come and go.
    tcp_info: Option<TcpInfo>,
    reads_rusage: bool,
    /// Not of a host that forwards.
    has_workload: bool,
    options: AckOptions,
    /// What is set for this end.
    knobs: Vec<&'static Knob>,
}

impl Body {
    /// With our TCP over this device, captured where that is asked for.
    fn work_on<D: Device<Wire> + 'static>(
        self,
        device: D,
        mut place: Place,
        prepare: &Prepare,
        settings: &WorkloadSettings,
        options: &SocketOptions,
        duty: Duty,
    ) -> Result<(), String> {
        match place.capture.take() {
            None => {
                let stack = ground::stack(device, place.index, prepare, options)?;
                self.work(make(stack, &place, prepare, settings, duty)?)
            }
            Some(file) => {
                let device = captured(device, file);
                let stack = ground::stack(device, place.index, prepare, options)?;
                self.work(make(stack, &place, prepare, settings, duty)?)
            }
        }
    }

    fn work<S: Observed>(mut self, mut worker: Worker<S>) -> Result<(), String> {
        if !worker.ports().is_empty() {
            self.send(Answer::Listening(Listening {
                addresses: worker.ports().to_vec(),
                loaded: self.meters.loaded.clone(),
            }))?;
        }
        while let Ok(order) = self.inbox.recv() {
            let answer = match order {
                Order::SetUp(deadline) => {
                    worker.set_up(deadline).map_err(|error| error.to_string())?;
                    S::set(&worker, self.options)?;
                    let mut ready = S::describe(&worker, &self.knobs);
                    ready.connections = worker.conns().count();
                    Answer::Ready(ready)
                }
                Order::Run(span) => Answer::Found(Box::new(self.run(&mut worker, span)?)),
            };
            self.send(answer)?;
        }
        worker.close();
        Ok(())
    }

    fn send(&self, answer: Answer) -> Result<(), String> {
        self.outbox
            .send(Ok(answer))
            .map_err(|_| "the trial was given up".to_string())
    }

    fn run<S: Observed>(&mut self, worker: &mut Worker<S>, span: Span) -> Result<Found, String> {
        let connections = worker.conns().count() as u64;
        let mut lead_ns = TCP_INFO_NS + TCP_INFO_NS_PER_CONNECTION * connections;
        if self.by_connection {
            lead_ns += BY_CONNECTION_NS_PER_CONNECTION * connections;
        }
        self.drive(worker, span.from_ns.saturating_sub(lead_ns))?;
        let info_first = realtime_ns();
        let connections_before = self.connections(worker)?;
        let info_first = [info_first, realtime_ns()];
        let by_connection_before = self.by_connection();
        self.drive(worker, span.from_ns)?;
        let first_begin_ns = realtime_ns();
        // Slow meters first here and last there, so that what they cost is outside on both sides.
        let mut before = self.meters()?;
        before.extend(self.own(worker)?);
        let first_end_ns = realtime_ns();
        drop(worker.take_response_times());
        if let Some(sampler) = &mut self.sampler {
            sampler.start();
        }

        self.drive(worker, span.to_ns)?;

        if let Some(sampler) = &mut self.sampler {
            sampler.stop();
        }
        let second_begin_ns = realtime_ns();
        let mut after = self.own(worker)?;
        let response_times = worker.take_response_times();
        after.extend(self.meters()?);
        let second_end_ns = realtime_ns();
        let by_connection_after = self.by_connection();
        let info_last_ns = realtime_ns();
        let connections_after = self.connections(worker)?;
        let tcp_info = connections_after.as_ref().map(|_| Brackets {
            first_begin_ns: info_first[0],
            first_end_ns: info_first[1],
            second_begin_ns: info_last_ns,
            second_end_ns: realtime_ns(),
        });
        after.extend(connections_after);
        self.drive(worker, span.stop_ns)?;

        before.extend(connections_before);
        let readings = readings::since(&before, &after).map_err(|error| error.to_string())?;
        let cautions = &mut self.meters.cautions;
        let profile = self.sampler.take().and_then(|sampler| {
            if self.beside_soak {
                // Looking names up is work that would disturb the calibration.
                soak::sleep_until(soak::over_ns(span));
            }
            sampler.chains(cautions)
        });
        Ok(Found {
            readings,
            response_times,
            profile,
            by_connection: by_connection_before
                .zip(by_connection_after)
                .map(<[Totalled; 2]>::from),
            keys: match self.by_connection {
                true => S::keys(worker),
                false => Vec::new(),
            },
            cautions: std::mem::take(&mut self.meters.cautions),
            snapshots: Brackets {
                first_begin_ns,
                first_end_ns,
                second_begin_ns,
                second_end_ns,
            },
            tcp_info,
        })
    }

    fn drive<S: Observed>(&self, worker: &mut Worker<S>, until_ns: u64) -> Result<(), String> {
        let left = Duration::from_nanos(until_ns.saturating_sub(clock_ns()));
        worker
            .run_until(Instant::now() + left, &self.stop)
            .map_err(|error| error.to_string())?;
        if self.stop.load(Ordering::Relaxed) {
            Err("the trial was given up".to_string())
        } else {
            Ok(())
        }
    }

    /// The end's meters, if this worker reads them.
    fn meters(&mut self) -> Result<Vec<Snapshot>, String> {
        let meters = self.meters.meters.iter_mut();
        meters
            .map(|meter| meter.snapshot().map_err(|error| error.to_string()))
            .collect()
    }

    /// Totals by connection, if they are wanted and this worker reads the end's meters.
    fn by_connection(&mut self) -> Option<Totalled> {
        let wanted = self.by_connection.then_some(self.meters.meters.iter_mut());
        let totals: HashMap<_, _> = wanted?.flat_map(|meter| meter.by_connection()).collect();
        (!totals.is_empty()).then(|| Totalled {
            at_ns: clock_ns(),
            totals,
        })
    }

    /// What this thread counts of itself.
    fn own<S: Observed>(&self, worker: &Worker<S>) -> Result<Vec<Snapshot>, String> {
        let snapshot = |meter, whose, counts| Snapshot {
            meter,
            at_ns: clock_ns(),
            totals: vec![Totals { whose, counts }],
        };
        let mut snapshots = Vec::new();
        if self.has_workload {
            let counts = worker.totals();
            snapshots.push(snapshot(MeterName::Workload, Whose::Workload, counts));
        }
        if let Some(counts) = S::counts(worker) {
            snapshots.push(snapshot(MeterName::Tcp, Whose::Namespace, counts));
        }
        if self.reads_rusage {
            let counts = rusage::thread_counts().map_err(|error| error.to_string())?;
            snapshots.push(snapshot(MeterName::Rusage, Whose::Threads, counts));
        }
        Ok(snapshots)
    }

    /// TCP_INFO of this worker's standing connections, with the workload's own count of payload at the same
    /// moment beside it, so that the two can be held against each other.
    fn connections<S: Observed>(&mut self, worker: &Worker<S>) -> Result<Option<Snapshot>, String> {
        let Some(meter) = &mut self.tcp_info else {
            return Ok(None);
        };
        if worker.conns().next().is_none() {
            return Ok(None);
        }
        let mut snapshot = S::tcp_info(worker, meter)?;
        for totals in &mut snapshot.totals {
            totals
                .counts
                .extend(worker.totals().into_iter().filter(|(quantity, _)| {
                    matches!(
                        quantity,
                        Quantity::PayloadBytesSent | Quantity::PayloadBytesReceived
                    )
                }));
        }
        Ok(Some(snapshot))
    }
}
