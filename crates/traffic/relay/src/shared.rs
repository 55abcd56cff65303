//! State that all workers of a relay share.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use tcpcost_link::Bell;

use crate::config::Config;
use crate::connection_limit::ConnectionLimit;
use crate::counters::{ConnectionCounters, Ending};
use crate::upstreams::Upstreams;

/// State that all workers of a relay share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) upstreams: Upstreams,
    pub(crate) limit: ConnectionLimit,
    /// Bells, one for each worker.
    pub(crate) bells: Vec<Bell>,
    /// [`RUNNING`], [`DRAINING`] or [`ENDING`].
    pub(crate) state: AtomicU8,
    pub(crate) next_id: AtomicU64,
}

impl Shared {
    /// Notes that an upstream did not accept a connection. Logs a warning unless the upstream is
    /// avoided already.
    pub(crate) fn refused(&self, upstream: usize, error: &dyn fmt::Display, now: Instant) {
        let upstreams = &self.upstreams;
        upstreams.end(upstream);
        if upstreams.leave_out(upstream, now) {
            let address = upstreams.address(upstream);
            let pause = self.config.retry_after;
            match upstreams.len() {
                1 => tracing::warn!("upstream {address}: {error}"),
                _ => tracing::warn!("upstream {address}: {error}: not used for {pause:?}"),
            }
        }
    }

    /// Notes that an upstream accepted a connection.
    pub(crate) fn taken(&self, upstream: usize) {
        if self.upstreams.take_back(upstream) {
            let address = self.upstreams.address(upstream);
            tracing::warn!("upstream {address} takes connections again");
        }
    }

    /// Logs and reports a connection that ended.
    pub(crate) fn tell_end(&self, counters: &ConnectionCounters, ending: Ending, now: Instant) {
        let report = || counters.report(now, Some(ending));
        if tracing::enabled!(tracing::Level::DEBUG) {
            let report = report();
            let [to_server, to_client] = report.bytes.map(|bytes| bytes.relayed());
            let (id, ending) = (report.id, ending.name());
            tracing::debug!(id, to_server, to_client, ending, "connection ended");
        }
        if let Some(ended) = &self.config.ended {
            // A slow receiver of reports must not make connections wait.
            let _ = ended.try_send(report());
        }
    }

    /// Moves on to a later state and wakes all workers.
    pub(crate) fn set_state(&self, state: u8) {
        self.state.fetch_max(state, Ordering::SeqCst);
        self.bells.iter().for_each(Bell::ring);
    }
}

/// Connections are accepted.
pub(crate) const RUNNING: u8 = 0;
/// No connection is accepted; open connections continue.
pub(crate) const DRAINING: u8 = 1;
/// All connections end now.
pub(crate) const ENDING: u8 = 2;
