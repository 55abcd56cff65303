//! `tcpcost watch`: what TCP costs on this host as it runs, whatever runs on it.
//!
//! [`sources`] are the meters, those of eBPF kept cheap by a [`sampler`] whose [`estimate`]s make up for what it did not
//! see; [`looping`] looks at them each time that [`ticker`] says so, and hands
//! the growth, a [`sample`], to a view: [`lines`], [`json`] or the [`screen`]. [`connections`] are looked at on request,
//! with their [`owners`], and totals are served as [`metrics`] by [`http`].

mod connections;
mod estimate;
mod http;
mod json;
mod lines;
mod looping;
mod metrics;
mod owners;
mod rest;
mod sample;
mod sampler;
mod screen;
mod sources;
pub mod ticker;

#[cfg(test)]
mod testing;

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::net::TcpListener;
use std::rc::Rc;

use anyhow::Context;

use crate::cli;
use crate::exit::Exit;

use connections::Wanted;
use looping::{Moment, View};
use metrics::Metrics;
use owners::Owners;
use screen::state::State;
use screen::terminal::{Keys, Screen};
use sources::Sources;
use ticker::Clock;

/// `tcpcost watch`.
pub fn watch(args: &cli::Watch) -> anyhow::Result<Exit> {
    ticker::block_signals();
    let has_screen = !args.json && !args.lines && io::stdout().is_terminal();
    let wanted = Wanted::new(args);
    let by_connection = has_screen || !wanted.rows.is_empty();
    let (mut sources, mut about) =
        Sources::open(args.self_max / 100.0, args.interval, by_connection);
    let metrics = args.prometheus.map(|address| -> anyhow::Result<Metrics> {
        let failed = || format!("serve metrics at {address}");
        let listener = TcpListener::bind(address).with_context(failed)?;
        about.metrics = Some(listener.local_addr().with_context(failed)?);
        let metrics = Metrics::default();
        http::serve(listener, metrics.clone()).with_context(failed)?;
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
        if !looked_at.rows.is_empty() {
            match connections::look(&looked_at, &mut owners) {
                Ok(seen) => moment.connections = Some(seen),
                Err(error) => moment.notes.push(error.to_string()),
            }
        }
        if let Some(metrics) = &metrics {
            metrics.set(&moment);
        }
        moment
    };
    let mut run = || {
        let out = io::stdout();
        let mut clock = Clock::new(args.interval);
        if has_screen {
            let mut screen = Screen::new(State::new(&about), &on_screen)?;
            return looping::watch(&mut look, &mut Keys(clock), &mut screen, args.count);
        }
        let out = out.lock();
        let mut view: Box<dyn View> = match args.json {
            true => Box::new(json::Json::new(out, &about, &wanted)),
            false => Box::new(lines::Lines::new(out, &about, &wanted)?),
        };
        looping::watch(&mut look, &mut clock, view.as_mut(), args.count)
    };
    match run() {
        // `tcpcost watch | head` is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        other => other.map(|()| Exit::Ok).context("watch"),
    }
}
