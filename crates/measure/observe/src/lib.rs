//! Observes a host as it runs, without a study: [`watch()`] shows what TCP costs on it, [`stat()`] what a command costs, [`doctor()`]
//! what can be measured here.

#![deny(unsafe_code)]

mod doctor;
mod soak;
mod stat;
pub mod ticker;
mod watch;

use tcpcost_console::exit::Exit;
use tcpcost_model::PriceList;

pub use doctor::{CommandNeed, DoctorArgs, doctor};
pub use stat::{End, Observed, StatArgs, Target, compare, observe, stat};
pub use watch::{By, WatchArgs, metrics_text, serve_metrics};

/// Runs `tcpcost watch`. With prices of this host its metrics have the cost by cause.
///
/// # Errors
/// The address for metrics cannot be bound, the list of `--soak` is wrong, or standard output cannot be written. A pipe without
/// a reader is no error.
pub fn watch(args: &WatchArgs, prices: Option<PriceList>) -> anyhow::Result<Exit> {
    if args.soak.is_some() {
        soak::soak(args)
    } else {
        watch::watch(args, prices).map(|()| Exit::Ok)
    }
}
