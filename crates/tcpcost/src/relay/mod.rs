//! `tcpcost relay`: a TCP relay in front of a service, which reports what it moved and how.
//!
//! The relay itself is crates/traffic/relay. This module has its command line, its lines and its metrics.

mod flags;
mod lines;
mod metrics;

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Context;
use tcpcost_console::exit::{Exit, Stop, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output::say;
use tcpcost_host::address;
use tcpcost_relay::{
    Config, Ending, Listener, Relay, RelayMode, StartError, Totals, bind, systemd,
};
use tcpcost_signals::Interrupt;

pub use flags::Flags;
use lines::Lines;
use metrics::Metrics;

/// Relays until a request to stop. The first request drains the connections, the second one resets
/// those that are left.
pub fn run(flags: &Flags) -> anyhow::Result<Exit> {
    let handed = systemd::listen_fds().context("take the sockets of the service manager")?;
    let mut config = flags.config(!handed.is_empty())?;
    let interrupt = Interrupt::watch(ENDS_AT_ONCE)?;
    flags.user.check(flags, !handed.is_empty())?;
    let is_json = flags.output.has(Format::Json);
    let workers = flags.workers();
    if flags.max_connections.is_none() && !flags.mode.is_user() {
        config.connections_max = tcpcost_relay::connections_allowed(&config, workers);
    }
    let most = config.connections_max;
    let (ended, reports) = sync_channel(REPORTS);
    if is_json {
        config.ended = Some(ended);
    }
    // Sockets are bound and metrics are served before the relay accepts connections.
    let listeners = match flags.mode.is_user() {
        true => Vec::new(),
        false => listen(flags, handed, workers, &config)?,
    };
    let server = flags.metrics.map(TcpListener::bind).transpose();
    let server = server.with_context(|| format!("serve metrics at {:?}", flags.metrics))?;
    let (mode, upstreams) = (config.mode, config.to.clone());
    // The guard of the interface's kernel side restores its settings when it is dropped.
    let (relay, local, _kernel_side) = match flags.mode.is_user() {
        true => {
            let (relay, local, kernel_side) = flags.user.start(flags, config)?;
            (relay, local, Some(kernel_side))
        }
        false => {
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
        tcpcost_observe::serve_metrics(server, names, move || metrics.text())
            .context("serve metrics")?;
        say!("tcpcost: metrics: http://{at}/metrics");
    }
    let to: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
    let local: Vec<String> = local;
    let (local, to) = (local.join(", "), to.join(", "));
    say!(
        "tcpcost: relay on {local} to {to}, mode {}, at most {most} connections; Ctrl-C ends it",
        mode.word()
    );
    say!("tcpcost: ready");
    systemd::notify("READY=1");
    let stopper = relay.stopper();
    let asked = interrupt.clone();
    interrupt.on_each(move || {
        systemd::notify("STOPPING=1");
        // The second request resets the connections. If the process just ended, the kernel would
        // send a FIN, as if all data had been sent.
        match asked.times() {
            ..2 => stopper.drain(),
            _ => stopper.end(),
        }
    });
    let lines = Lines {
        upstreams,
        is_json,
        each: flags.each,
    };
    let waiting = std::thread::Builder::new()
        .name("wait".to_string())
        .spawn(move || relay.wait())?;
    let printed = lines.print(&reports, flags.interval, &counters, || {
        waiting.is_finished()
    });
    let totals = waiting
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the relay panicked")))
        .context("relay")?;
    printed?;
    lines.end(&totals, mode)?;
    Ok(match interrupt.times() {
        ..2 => Exit::Ok,
        _ => Exit::Interrupted,
    })
}

/// Returns the kernel's listening sockets of each worker: those bound here, and those passed by a
/// service manager.
///
/// # Errors
/// A socket cannot be bound or used, or `--to` leads back to this relay.
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

/// True for an address of this host.
fn is_own(ip: IpAddr) -> bool {
    let own = address::all(ip.is_ipv6()).unwrap_or_default();
    ip.is_loopback() || own.iter().any(|one| one.address == ip)
}

/// Converts the error. Its line says what the user can do; a mode that does not work here is
/// [`Exit::Unavailable`].
fn not_started(error: StartError) -> anyhow::Error {
    match error {
        StartError::Worker(error) => anyhow::Error::new(error).context("start the relay"),
        error => anyhow::Error::new(Stop {
            exit: Exit::Unavailable,
            text: error.to_string(),
        }),
    }
}

/// Returns the totals as a sentence, with the shares of copied, spliced and redirected bytes.
fn sentence(totals: &Totals, mode: RelayMode) -> String {
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
        (RelayMode::Auto, _) => format!(": auto chose {}", parts.join(", ")),
        _ => format!(": {}", parts.join(", ")),
    };
    let reset = match totals.ended_by(Ending::Stopped) {
        0 => String::new(),
        count => format!(", {count} connections reset"),
    };
    let accepted = match totals.accepted {
        1 => "1 connection".to_string(),
        count => format!("{count} connections"),
    };
    format!(
        "{accepted}, {all} bytes{chosen}, {} abandoned{reset}",
        sum(|bytes| bytes.abandoned)
    )
}

/// Signal that ends the process at once. The first one drains, the second one resets. The third one
/// is for a relay whose standard output is not read.
const ENDS_AT_ONCE: u32 = 3;
/// Limit of the reports of ended connections that wait for a slow reader of standard output.
const REPORTS: usize = 4096;
/// Longest time between two checks for the end of the relay.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
