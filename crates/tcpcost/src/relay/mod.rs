//! `tcpcost relay`: a TCP relay in front of a service, which tells what it moved and how.
//!
//! The relay itself is crates/relay; here are its command line, its lines and its metrics.

mod flags;
mod lines;
mod metrics;
mod user;

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Context;
use tcpcost_host::address;
use tcpcost_relay::{Config, Ending, Listener, Mode, Relay, StartError, Totals, bind, systemd};
use tcpcost_signals::Interrupt;

use crate::exit::{Exit, Stop, usage};
use crate::output::say;

pub use flags::Flags;
use lines::Lines;
use metrics::Metrics;

/// Relays until it is asked to stop: a first signal drains, a second one resets what is left.
pub fn run(flags: &Flags) -> anyhow::Result<Exit> {
    let handed = systemd::listen_fds().context("take the sockets of the service manager")?;
    let mut config = flags.config(!handed.is_empty())?;
    let interrupt = Interrupt::watch(ENDS_AT_ONCE)?;
    flags.user.check(flags, !handed.is_empty())?;
    let workers = flags.workers();
    if flags.connections.is_none() && flags.mode != Mode::User {
        config.connections_max = tcpcost_relay::connections_allowed(&config, workers);
    }
    let most = config.connections_max;
    let (ended, reports) = sync_channel(REPORTS);
    if flags.json {
        config.ended = Some(ended);
    }
    // Sockets are bound, and metrics served, before the relay takes connections.
    let listeners = match flags.mode {
        Mode::User => Vec::new(),
        _ => listen(flags, handed, workers, &config)?,
    };
    let server = flags.metrics.map(TcpListener::bind).transpose();
    let server = server.with_context(|| format!("serve metrics at {:?}", flags.metrics))?;
    let (mode, upstreams) = (config.mode, config.to.clone());
    // Our side of an interface is put back when this ends.
    let (relay, local, _kernel_side) = match flags.mode {
        Mode::User => {
            let (relay, local, kernel_side) = flags.user.start(flags, config)?;
            (relay, local, Some(kernel_side))
        }
        _ => {
            let local = listeners[0].iter().map(Listener::to_string).collect();
            let relay = Relay::start(listeners, config).map_err(not_started)?;
            (relay, local, None)
        }
    };
    let counters = relay.counters();
    if let Some(server) = server {
        let at = server.local_addr()?;
        let metrics = Metrics::new(counters.clone());
        let names = flags.metrics_host.clone();
        tcpcost_watch::serve_metrics(server, names, move || metrics.text())
            .context("serve metrics")?;
        say!("tcpcost: metrics: http://{at}/metrics");
    }
    let to: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
    let local: Vec<String> = local;
    let (local, to) = (local.join(", "), to.join(", "));
    say!(
        "tcpcost: relay on {local} to {to}, mode {}, at most {most} connections; Ctrl-C ends it",
        mode.name()
    );
    say!("tcpcost: ready");
    systemd::notify("READY=1");
    let stopper = relay.stopper();
    let asked = interrupt.clone();
    interrupt.on_each(move || {
        systemd::notify("STOPPING=1");
        // The kernel would close what a process leaves behind as if it had come to its end.
        match asked.times() {
            ..2 => stopper.drain(),
            _ => stopper.end(),
        }
    });
    let lines = Lines {
        upstreams,
        is_json: flags.json,
        each: flags.each,
    };
    let waiting = std::thread::Builder::new()
        .name("wait".to_string())
        .spawn(move || relay.wait())?;
    let told = lines.tell(&reports, flags.every, &counters, || waiting.is_finished());
    let totals = waiting
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the relay panicked")))
        .context("relay")?;
    told?;
    lines.end(&totals, mode)?;
    Ok(match interrupt.times() {
        ..2 => Exit::Ok,
        _ => Exit::Interrupted,
    })
}

/// The kernel's sockets of each worker: bound here, or handed over by a service manager.
fn listen(
    flags: &Flags,
    handed: Vec<OwnedFd>,
    workers: usize,
    config: &Config,
) -> anyhow::Result<Vec<Vec<Listener>>> {
    let mut listeners = bind(&flags.listen, workers, config).map_err(|(address, error)| {
        anyhow::Error::new(error).context(format!("listen on {address}"))
    })?;
    for socket in handed {
        let listener =
            Listener::from_socket(socket).context("listen on a socket of the service manager")?;
        listeners
            .iter_mut()
            .for_each(|own| own.push(listener.clone()));
    }
    for to in &flags.to {
        if let Some(listener) = listeners[0].iter().find(|one| one.takes(to, is_own)) {
            return Err(usage(format!(
                "--to {to}: this relay itself listens there ({listener}): name the address of the service"
            )));
        }
    }
    Ok(listeners)
}

/// Whether it is an address of this host.
fn is_own(ip: IpAddr) -> bool {
    let own = address::all(ip.is_ipv6()).unwrap_or_default();
    ip.is_loopback() || own.iter().any(|one| one.address == ip)
}

/// What can be done about it is in the line.
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Worker(error) => anyhow::Error::new(error).context("start the relay"),
        error => anyhow::Error::new(Stop {
            exit: Exit::Unavailable,
            text: error.to_string(),
        }),
    }
}

/// Which share went by which way, for people.
fn sentence(totals: &Totals, mode: Mode) -> String {
    let all: u64 = totals.bytes.iter().map(|bytes| bytes.relayed()).sum();
    let share = |part: u64| match all {
        0 => 0.0,
        all => 100.0 * part as f64 / all as f64,
    };
    let sum = |part: fn(&tcpcost_relay::Bytes) -> u64| totals.bytes.iter().map(part).sum::<u64>();
    let parts = [
        ("copied", sum(|bytes| bytes.copied)),
        ("spliced", sum(|bytes| bytes.spliced)),
        ("redirected", sum(|bytes| bytes.redirected)),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(how, bytes)| format!("{:.1} % {how}", share(bytes)))
        .collect();
    let chosen = match (mode, parts.is_empty()) {
        (_, true) => String::new(),
        (Mode::Auto, _) => format!(": auto chose {}", parts.join(", ")),
        _ => format!(": {}", parts.join(", ")),
    };
    let reset = match totals.ended_by(Ending::Stopped) {
        0 => String::new(),
        count => format!(", {count} connections reset"),
    };
    format!(
        "{} connections, {all} bytes{chosen}, {} abandoned{reset}",
        totals.accepted,
        sum(|bytes| bytes.abandoned)
    )
}

/// The first signal drains, the second resets. The third is for one whose standard output nobody reads.
const ENDS_AT_ONCE: u32 = 3;
/// Lines of ended connections that may wait for a slow reader of standard output.
const REPORTS: usize = 4096;
/// How often the end of the relay is looked for while no line is due.
const LOOK: Duration = Duration::from_millis(100);
