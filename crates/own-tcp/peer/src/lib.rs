//! `tcpcost peer`: our TCP as a live endpoint on a TAP or TUN of this host, so that any ordinary client can talk to it, and
//! any policy can be tried.
//!
//! Each instance (`--instances`) has a thread and a queue of the interface. An interface that the peer made is removed with
//! its addresses when the process ends, also by kill -9. An interface that existed before gets its MTU, addresses and state
//! back (`kernel_side.rs`). The peer changes nothing else on this host.

#![forbid(unsafe_code)]

mod configuration;
mod epoll_set;
mod flags;
mod forward;
mod iperf3;
mod kernel_side;
mod policy;
mod relay;
mod reporter;
mod rows;
mod service;
mod serving;
mod stdio;
mod totals;
mod turn;
mod web;

use std::fs::File;
use std::io::{self, BufWriter};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use anyhow::Context;
use tcpcost_console::exit::Exit;
use tcpcost_console::output::say;
use tcpcost_host::named_file;
use tcpcost_link::pcapng::{Header, Writer};
use tcpcost_link::{CapturingDevice, Device, Impaired, Tap};
use tcpcost_signals::Interrupt;
use tcpcost_stack::{SocketOptions, Stack, UserStack, Wire};
use tcpcost_tcp::Ports;

use configuration::Configuration;
use forward::{Distributor, Queue};
use reporter::Reporter;
use serving::Serving;

pub use flags::{Flags, Network, check_networks, check_remote, interface_name};
pub use kernel_side::KernelSide;
pub use policy::PolicyFlags;

/// Set by a signal, or by the first instance that ends.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Our TCP on the interface, with the impairments of `--set`.
type TcpUnderTest = UserStack<Impaired<Box<dyn Device<Wire>>, Wire>>;

/// Runs until Ctrl-C, or until the one connection of `--connect` has ended.
pub fn run(flags: &Flags) -> anyhow::Result<Exit> {
    flags.check()?;
    // A signal ends the work, not the process: the capture is flushed, and connections are reset.
    Interrupt::watch(ENDS_AT_ONCE)?.on_each(|| STOPPED.store(true, Ordering::Relaxed));
    let (name, layer) = flags.interface();
    let count = usize::from(flags.instances);
    let mut taps = Tap::open_queues(name, layer, flags.set.offloads(), count)
        .with_context(|| format!("open interface {name}"))?;
    for tap in &mut taps {
        for network in &flags.local {
            tap.answer_for(network.address);
            if flags.resolve {
                tap.resolve_in(network.address, network.prefix);
            }
        }
    }
    // Dropped after the interface is released.
    let kernel_side = KernelSide::set_up(taps[0].name(), flags.set.mtu, &flags.host_address)?;
    let mtu = kernel_side.mtu();
    flags.check_mtu(mtu)?;
    say!(
        "tcpcost: our TCP is on {} (MTU {mtu}); Ctrl-C ends it",
        taps[0].name()
    );
    let reporter = Reporter::new(flags);
    let configuration = Configuration::new(flags, taps[0].name(), mtu, &flags.set.settings(mtu));
    reporter.begin(&configuration)?;
    let capture = flags.pcap.as_deref().map(Capture::begin).transpose()?;
    let queues = open_forwards(flags)?;
    let mut instances = (0u16..)
        .zip(taps)
        .zip(queues)
        .map(|((index, tap), applications)| Instance {
            index,
            tap,
            applications,
            capture: capture.clone(),
            mtu,
            flags,
            reporter: &reporter,
        });
    let first = instances.next().context("there is a queue")?;
    let outcomes: Vec<anyhow::Result<bool>> = std::thread::scope(|scope| {
        let others: Vec<_> = instances
            .map(|instance| scope.spawn(|| instance.run()))
            .collect();
        let first = first.run();
        let panicked = |_| Err(anyhow::anyhow!("an instance panicked"));
        let others = others.into_iter();
        std::iter::once(first)
            .chain(others.map(|other| other.join().unwrap_or_else(panicked)))
            .collect()
    });
    let ended_well: Result<Vec<bool>, _> = outcomes.into_iter().collect();
    let unread = |error: &anyhow::Error| {
        let source = error.downcast_ref::<io::Error>();
        source.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    let ended_well = match ended_well {
        // `tcpcost peer | head` is no error.
        Err(error) if unread(&error) => return Ok(Exit::Ok),
        other => other?,
    };
    Ok(if ended_well.into_iter().all(|well| well) {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

/// Listens at the ports of `--forward`. Returns a queue of accepted applications for each instance, or `None`s without
/// `--forward`.
fn open_forwards(flags: &Flags) -> anyhow::Result<Vec<Option<Queue>>> {
    if flags.forward.is_empty() {
        return Ok((0..flags.instances).map(|_| None).collect());
    }
    let (distributor, queues) = Distributor::new(flags.instances.into())?;
    for forward in &flags.forward {
        let remote = forward.resolve(&flags.local)?;
        let local = forward.local;
        let listener = TcpListener::bind(local).with_context(|| format!("listen on {local}"))?;
        distributor.forward(listener, remote)?;
    }
    Ok(queues.into_iter().map(Some).collect())
}

/// Capture file that the instances share.
#[derive(Clone)]
struct Capture {
    to: Arc<Mutex<Writer<BufWriter<File>>>>,
    started: Instant,
    /// Time of `started` since 1970.
    epoch: std::time::Duration,
}

impl Capture {
    fn begin(path: &std::path::Path) -> anyhow::Result<Self> {
        let open = || {
            let file = BufWriter::new(named_file::create(path)?);
            Writer::new(file, Header::default())
        };
        let to = open().with_context(|| path.display().to_string())?;
        Ok(Self {
            to: Arc::new(Mutex::new(to)),
            started: Instant::now(),
            epoch: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
        })
    }
}

/// One TCP of several that share the interface's addresses. Packets are steered by port.
struct Instance<'a> {
    index: u16,
    tap: Tap,
    applications: Option<Queue>,
    capture: Option<Capture>,
    mtu: u32,
    flags: &'a Flags,
    reporter: &'a Reporter,
}

impl Instance<'_> {
    /// Serves until a stop is requested. True if all went well. The end of one instance, also by an error or a panic, ends all.
    fn run(self) -> anyhow::Result<bool> {
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                STOPPED.store(true, Ordering::Relaxed);
            }
        }
        let _end = End;
        let flags = self.flags;
        let device: Box<dyn Device<Wire>> = match self.capture {
            None => Box::new(self.tap),
            Some(Capture { to, started, epoch }) => {
                Box::new(CapturingDevice::into_file(self.tap, to, started, epoch))
            }
        };
        let (wrong, seed) = (
            flags.set.wire.impairment(),
            flags.set.wire.wire_seed.wrapping_add(u64::from(self.index)),
        );
        let device = Impaired::new(device, wrong.sent, wrong.received, seed);
        let addresses: Vec<_> = flags.local.iter().map(|own| own.address).collect();
        let settings = flags.set.settings(self.mtu);
        let networks: Vec<_> = flags.local.iter().map(Network::pair).collect();
        let mut stack =
            UserStack::with_settings(device, &addresses, &settings, &SocketOptions::default())?
                .with_networks(&networks);
        let mut serving = Serving::new(flags, self.reporter, &mut stack, self.applications)?;
        if flags.instances > 1 {
            stack = stack.with_ports(Ports {
                every: flags.instances,
                offset: self.index,
            });
        }
        if let Some(first) = flags.listen {
            // Among N consecutive ports each of the N instances has one.
            let port = (first..=u16::MAX)
                .find(|port| port % flags.instances == self.index)
                .context("no port is left for each instance after --listen")?;
            let any = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
            serving.listen(stack.listen(any, serving::BACKLOG, serving::LISTENER)?);
        }
        if let Some(remote) = flags.connect {
            serving.connect(&mut stack, remote)?;
        }
        if self.reporter.mark_ready() {
            say!("tcpcost: ready");
        }
        let outcome = serving.work(&mut stack);
        // Also after an error: open connections are reset.
        self.reporter.end(serving.totals(&stack))?;
        serving.conns().for_each(|conn| stack.abort(conn));
        outcome
    }
}

/// Number of signals that end the process at once.
const ENDS_AT_ONCE: u32 = 2;
