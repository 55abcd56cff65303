//! `tcpcost watch`: what TCP costs on this host, whatever runs on it.
//!
//! `sources` has the meters. A `sampler` keeps the eBPF meters cheap, and its `estimate`s cover the time that
//! it did not see. At each event of [`ticker`](crate::ticker), `driver` reads the meters and passes the growth, a `sample`,
//! to a view: `lines`, `json` or the `screen`. `connections` are read on request, with their `owners`. `http`
//! serves totals as `metrics`.

mod args;
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
mod priced;
mod rows;
mod sample;
mod sampler;
mod screen;
mod sources;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::rc::Rc;

use anyhow::Context;
use ratatui::crossterm::event::KeyCode;
use tcpcost_console::format::Format;
use tcpcost_counts::{Guard, TextForm};
use tcpcost_host::namespace::NetworkOf;
use tcpcost_model::PriceList;
use tcpcost_signals::Interrupt;

pub use args::WatchArgs;
pub use exposition::metrics_text;
pub use http::serve as serve_metrics;
pub use rows::By;

use crate::ticker::Clock;
use connections::{Table, Wanted};
use costs::Costs;
use driver::{Moment, View};
use metrics::Metrics;
use owners::Owners;
use sample::Sample;
use screen::state::State;
use screen::terminal::{Keys, Screen};
use sources::{About, Sources};

/// Watches until Ctrl-C, or for the given number of intervals.
///
/// # Errors
/// The address for Prometheus cannot be bound, or standard output cannot be written. A pipe without a reader
/// is no error.
pub fn watch(args: &WatchArgs, prices: Option<PriceList>) -> anyhow::Result<()> {
    let interrupt = Interrupt::watch(ENDS_AT_ONCE)?;
    let has_screen = args.output.has(Format::Screen) && io::stdout().is_terminal();
    let wanted = &args.wanted();
    let by_connection = has_screen || !wanted.rows.is_empty();
    let has_costs = has_screen || wanted.has_costs();
    // The endpoint is of the caller's namespace, not of the one to watch.
    let listener = args.metrics.map(|address| {
        let failed = || format!("serve metrics at {address}");
        TcpListener::bind(address).with_context(failed)
    });
    let listener = listener.transpose()?;
    if let Some(netns) = &args.netns {
        let network = NetworkOf::named(netns).and_then(|network| network.enter());
        network.with_context(|| format!("--netns {netns}"))?;
    }
    let (sources, mut about) = Sources::open(
        args.self_max / 100.0,
        args.interval,
        by_connection,
        has_costs,
    );
    let metrics = listener.map(|listener| serve_totals(listener, args, prices, &mut about));
    let reader = Reader {
        sources,
        connections: Table::default(),
        owners: Owners::default(),
        metrics: metrics.transpose()?,
        wanted: wanted.clone(),
        visible: has_screen.then(Rc::default),
    };
    let clock = Clock::new(args.interval, interrupt);
    match show(args, &about, reader, clock) {
        // `tcpcost watch | head` is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("watch"),
    }
}

/// Serves totals to Prometheus.
fn serve_totals(
    listener: TcpListener,
    args: &WatchArgs,
    prices: Option<PriceList>,
    about: &mut About,
) -> anyhow::Result<Metrics> {
    let address = listener.local_addr()?;
    about.metrics = Some(address);
    let metrics = Metrics::of(&args.wanted(), prices);
    let served = metrics.clone();
    let failed = || format!("serve metrics at {address}");
    http::serve(listener, args.metrics_host.clone(), move || served.text()).with_context(failed)?;
    Ok(metrics)
}

/// Shows the intervals in the wanted form, until the watch ends.
fn show(args: &WatchArgs, about: &About, mut reader: Reader, clock: Clock) -> io::Result<()> {
    let visible = reader.visible.clone();
    let metrics = reader.metrics.clone();
    let mut look = || reader.look();
    if let Some(visible) = &visible {
        let mut screen = Screen::new(State::new(about), visible)?;
        let mut keys = Keys::new(clock)?;
        let mut view = Served(metrics, &mut screen);
        return driver::watch(&mut look, &mut keys, &mut view, args.count);
    }
    let (out, mut clock, wanted) = (io::stdout(), clock, args.wanted());
    let out = |form| Guard::new(out.lock(), form);
    let mut view: Box<dyn View> = if args.output.has(Format::Json) {
        Box::new(json::Json::new(out(TextForm::Json), about, &wanted))
    } else {
        Box::new(lines::Lines::new(out(TextForm::Lines), about, &wanted)?)
    };
    let mut view = Served(metrics, view.as_mut());
    driver::watch(&mut look, &mut clock, &mut view, args.count)
}

/// A view, and metrics that take each interval before it.
struct Served<'a>(Option<Metrics>, &'a mut dyn View);

impl View for Served<'_> {
    fn show(&mut self, now: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>> {
        if let Some(metrics) = &self.0 {
            metrics.add(sample);
        }
        self.1.show(now, sample)
    }

    fn key(&mut self, key: KeyCode) -> io::Result<ControlFlow<()>> {
        self.1.key(key)
    }

    fn resized(&mut self) -> io::Result<()> {
        self.1.resized()
    }
}

/// Reader of the meters, and of the connections that are shown.
struct Reader {
    sources: Sources,
    owners: Owners,
    connections: Table,
    metrics: Option<Metrics>,
    /// Views and filter of connections.
    wanted: Wanted,
    /// View that the screen shows: rows that are not visible are not read. `None` without a screen.
    visible: Option<Rc<Cell<Option<By>>>>,
}

impl Reader {
    fn look(&mut self) -> Moment {
        let mut moment = Moment::default();
        if let Some(visible) = &self.visible {
            let visible = visible.get().map(|by| (by, usize::MAX));
            self.wanted.rows = visible.into_iter().collect();
        }
        self.sources.look(&mut moment);
        let mut here = None;
        if let Some(totals) = self.sources.by_holder() {
            let costs = Costs::look(totals, &mut self.owners);
            here = costs.here();
            moment.costs = Some(costs);
        }
        if self.wanted.rows.is_empty() {
            self.connections = Table::default();
        } else {
            let skbs = self.sources.skbs(&mut moment.warnings);
            let owners = &mut self.owners;
            match self
                .connections
                .look(&self.wanted, owners, skbs, here.as_ref())
            {
                Ok(rows) => moment.rows = rows,
                Err(error) => moment.warnings.push(error.to_string()),
            }
            moment
                .warnings
                .extend(not_known_yet(self.connections.unknown()));
        }
        if let Some(metrics) = &self.metrics {
            metrics.set(&moment);
        }
        moment
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
