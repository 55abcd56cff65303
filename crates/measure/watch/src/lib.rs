//! `tcpcost watch`: what TCP costs on this host, whatever runs on it.
//!
//! `sources` has the meters. A `sampler` keeps the eBPF meters cheap, and its `estimate`s cover the time that
//! it did not see. At each event of [`ticker`], `driver` reads the meters and passes the growth, a `sample`,
//! to a view: `lines`, `json` or the `screen`. `connections` are read on request, with their `owners`. `http`
//! serves totals as `metrics`.

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

/// Options of a watch: meters, intervals and form of output.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time between two readings.
    pub interval: Duration,
    /// Number of intervals; `None` until Ctrl-C.
    pub count: Option<u64>,
    /// Form of standard output.
    pub form: Form,
    /// Views and the filter of connections.
    pub wanted: Wanted,
    /// Address at which totals are served to Prometheus.
    pub prometheus: Option<SocketAddr>,
    /// Names by which the metrics may be requested, in addition to addresses, `localhost` and this host's
    /// name.
    pub names: Vec<String>,
    /// Network namespace to watch, instead of the caller's: a name below /run/netns, a process id or a path.
    pub netns: Option<String>,
    /// Share of one CPU that the eBPF programs may take before they sample. From 1 on they never sample.
    pub self_max: f64,
}

/// The form of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A screen on a terminal, lines elsewhere.
    Screen,
    /// Lines for people.
    Lines,
    /// One JSON object per line (docs/watch.md).
    Json,
}

/// Watches until Ctrl-C, or for the given number of intervals.
///
/// # Errors
/// The address for Prometheus cannot be bound, or standard output cannot be written. A pipe without a reader
/// is no error.
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
            // Rows that are not visible are not read.
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

/// A line about sockets whose owners will be looked up later.
fn not_known_yet(sockets: usize) -> Option<String> {
    (sockets > 0).then(|| {
        format!("processes of {sockets} new sockets are not known yet: looking them up takes at most 1 % of a CPU")
    })
}

/// The first signal ends the watch. If it cannot, because no process reads the lines, the second one ends the
/// process.
const ENDS_AT_ONCE: u32 = 2;
