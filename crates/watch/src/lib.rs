//! `tcpcost watch`: what TCP costs on this host as it runs, whatever runs on it.
//!
//! `sources` are the meters, those of eBPF kept cheap by a `sampler` whose `estimate`s make up for what it did not
//! see; `driver` looks at them each time that [`ticker`] says so, and hands
//! the growth, a `sample`, to a view: `lines`, `json` or the `screen`. `connections` are looked at on request,
//! with their `owners`, and totals are served as `metrics` by `http`.

#![forbid(unsafe_code)]

mod budget;
mod causes;
mod column;
mod connections;
mod costs;
mod driver;
mod duty_cycle;
mod estimate;
mod events;
mod exposition;
mod holder_totals;
mod http;
mod json;
mod lines;
mod metrics;
mod owners;
mod places;
mod rows;
mod sample;
mod sampler;
mod screen;
mod sources;
pub mod ticker;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use tcpcost_counts::{Guard, TextForm};
use tcpcost_host::namespace::NetworkOf;
use tcpcost_signals::Interrupt;

pub use connections::{Filter, Wanted};
pub use exposition::metrics_text;
pub use http::serve as serve_metrics;
pub use rows::By;

use costs::Costs;
use driver::{Moment, View};
use metrics::Metrics;
use owners::Owners;
use screen::state::State;
use screen::terminal::{Keys, Screen};
use sources::Sources;
use ticker::Clock;

/// What to look at, how often, and who sees it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two looks.
    pub interval: Duration,
    /// Looks; without it until Ctrl-C.
    pub count: Option<u64>,
    /// What standard output is.
    pub form: Form,
    /// The connections that are shown, and by whom.
    pub wanted: Wanted,
    /// Where totals are served to Prometheus.
    pub prometheus: Option<SocketAddr>,
    /// Names by which that may be asked, beside addresses, `localhost` and this host's own.
    pub names: Vec<String>,
    /// The network namespace to watch, in place of the caller's: a name below /run/netns, a process id or a path.
    pub netns: Option<String>,
    /// Share of one CPU that the eBPF programs may take before they sample; from 1 on they never do.
    pub self_max: f64,
}

/// The form of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A screen on a terminal, else lines.
    Screen,
    /// Lines for people.
    Lines,
    /// One JSON object a line (docs/watch.md).
    Json,
}

/// Watches until Ctrl-C, or as long as was asked for.
///
/// # Errors
/// The address for Prometheus cannot be had; standard output cannot be written, unless it is a pipe
/// that nobody reads any more.
pub fn watch(options: &Options) -> anyhow::Result<()> {
    let interrupt = Interrupt::watch(ENDS_AT_ONCE)?;
    let has_screen = options.form == Form::Screen && io::stdout().is_terminal();
    let wanted = &options.wanted;
    let by_connection = has_screen || !wanted.rows.is_empty();
    let has_costs = has_screen || wanted.has_costs();
    let listener = options.prometheus.map(|address| {
        let failed = || format!("serve metrics at {address}");
        TcpListener::bind(address).with_context(failed)
    });
    let listener = listener.transpose()?;
    if let Some(netns) = &options.netns {
        let network = NetworkOf::named(netns).and_then(|network| network.enter());
        network.with_context(|| format!("--netns {netns}"))?;
    }
    let (mut sources, mut about) =
        Sources::open(options.self_max, options.interval, by_connection, has_costs);
    let metrics = listener.map(|listener| -> anyhow::Result<Metrics> {
        let address = listener.local_addr()?;
        let failed = || format!("serve metrics at {address}");
        about.metrics = Some(address);
        let metrics = Metrics::of(wanted);
        let served = metrics.clone();
        http::serve(listener, options.names.clone(), move || served.text()).with_context(failed)?;
        Ok(metrics)
    });
    let metrics = metrics.transpose()?;
    let mut looked_at = wanted.clone();
    let on_screen = Rc::new(Cell::new(None));
    let mut owners = Owners::default();
    let mut look = || {
        let mut moment = Moment::default();
        if has_screen {
            // What nobody sees costs nothing.
            looked_at.rows = on_screen
                .get()
                .map(|by| (by, usize::MAX))
                .into_iter()
                .collect();
        }
        sources.look(&mut moment, !looked_at.rows.is_empty());
        if let Some(totals) = sources.by_holder() {
            let costs = Costs::look(totals, &mut owners);
            moment.here = costs.here();
            moment.costs = Some(costs);
        }
        if !looked_at.rows.is_empty() {
            match connections::look(&looked_at, &mut owners) {
                Ok(seen) => {
                    moment.connections = Some(seen);
                    moment.warnings.extend(not_known_yet(owners.unknown()));
                }
                Err(error) => moment.warnings.push(error.to_string()),
            }
        }
        if let Some(metrics) = &metrics {
            metrics.set(&moment);
        }
        moment
    };
    let mut run = || {
        let out = io::stdout();
        let mut clock = Clock::new(options.interval, interrupt.clone());
        if has_screen {
            let mut screen = Screen::new(State::new(&about), &on_screen)?;
            let mut keys = Keys::new(clock)?;
            return driver::watch(&mut look, &mut keys, &mut screen, options.count);
        }
        let out = |form| Guard::new(out.lock(), form);
        let mut view: Box<dyn View> = match options.form == Form::Json {
            true => Box::new(json::Json::new(out(TextForm::Json), &about, wanted)),
            false => Box::new(lines::Lines::new(out(TextForm::Lines), &about, wanted)?),
        };
        driver::watch(&mut look, &mut clock, view.as_mut(), options.count)
    };
    match run() {
        // `tcpcost watch | head` is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("watch"),
    }
}

/// A line about sockets whose owners are looked up later.
fn not_known_yet(sockets: usize) -> Option<String> {
    (sockets > 0).then(|| {
        format!("processes of {sockets} new sockets are not known yet: looking them up takes at most 1 % of a CPU")
    })
}

/// The first signal ends the watch; one that cannot end it, because nobody takes its lines, is followed
/// by one that does.
const ENDS_AT_ONCE: u32 = 2;
