//! `tcpcost watch`: what TCP costs on this host as it runs, whatever runs on it.
//!
//! [`sources`] are the meters; [`looping`] looks at them each time that [`ticker`] says so, and hands
//! the growth, a [`sample`], to a view: [`lines`] or [`json`]. [`connections`] are looked at on request,
//! with their [`owners`].

mod connections;
mod json;
mod lines;
mod looping;
mod owners;
mod sample;
mod sources;
mod ticker;

#[cfg(test)]
mod testing;

use std::io;

use anyhow::Context;

use crate::cli;
use crate::exit::Exit;

use connections::Wanted;
use looping::{Moment, View};
use owners::Owners;
use sources::Sources;
use ticker::Clock;

/// `tcpcost watch`.
pub fn watch(args: &cli::Watch) -> anyhow::Result<Exit> {
    ticker::block_signals();
    let (mut sources, about) = Sources::open();
    let wanted = Wanted::new(args);
    let mut owners = Owners::default();
    let mut look = || {
        let mut moment = Moment::default();
        moment.snapshots = sources.snapshots(&mut moment.notes);
        if !wanted.rows.is_empty() {
            match connections::look(&wanted, &mut owners) {
                Ok(seen) => moment.connections = Some(seen),
                Err(error) => moment.notes.push(error.to_string()),
            }
        }
        moment
    };
    let mut run = || {
        let out = io::stdout().lock();
        let mut view: Box<dyn View> = match args.json {
            true => Box::new(json::Json::new(out, &about, &wanted)),
            false => Box::new(lines::Lines::new(out, &about, &wanted)?),
        };
        let mut clock = Clock::new(args.interval);
        looping::watch(&mut look, &mut clock, view.as_mut(), args.count)
    };
    match run() {
        // `tcpcost watch | head` is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        other => other.map(|()| Exit::Ok).context("watch"),
    }
}
