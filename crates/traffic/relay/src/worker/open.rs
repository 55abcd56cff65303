//! Steps from a client to a connection with two sides: choice of an upstream, and its answer.

use std::fmt;

use super::{ConnectError, Net, Phase, Progress, Worker};
use crate::counters::Ending;

impl<N: Net> Worker<N> {
    /// Tries upstreams until one accepts the connection or may still do so.
    pub(crate) fn connect(&mut self, index: usize) {
        loop {
            let Some(connection) = &mut self.connections[index] else {
                return;
            };
            let upstreams = &self.shared.upstreams;
            let Some(upstream) = upstreams.choose(&connection.tried, self.now) else {
                return self.end(index, Ending::NoUpstream);
            };
            connection.upstream = Some(upstream);
            connection.since = self.now;
            upstreams.begin(upstream);
            let to = upstreams.address(upstream);
            match self.net.connect(to, index, &self.shared.config) {
                Ok(server) => {
                    connection.server = Some(server);
                    return self.finish_connecting(index);
                }
                Err(ConnectError::Refused(error)) => self.on_refusal(index, &error),
                Err(ConnectError::NoResources) => return self.end(index, Ending::NoResources),
            }
        }
    }

    /// Notes that the upstream did not accept the connection.
    pub(super) fn on_refusal(&mut self, index: usize, error: &dyn fmt::Display) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        if let Some(server) = connection.server.take() {
            self.net.reset(server);
        }
        self.counters.connect_failures.add(1);
        if let Some(upstream) = connection.upstream.take() {
            connection.tried.push(upstream);
            self.shared.refused(upstream, error, self.now);
        }
    }

    pub(super) fn finish_connecting(&mut self, index: usize) {
        let Some(connection) = &self.connections[index] else {
            return;
        };
        match self.net.progress(connection) {
            Progress::Waits => {}
            Progress::Connected => self.open(index),
            Progress::ClientLeft => self.end(index, Ending::ClientReset),
            Progress::Refused(error) => {
                self.on_refusal(index, &error);
                self.connect(index);
            }
        }
    }

    /// Begins to relay: both sides are connected.
    fn open(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let upstream = connection.upstream.expect("it is the one that took it");
        self.shared.taken(upstream);
        connection.counters.set_upstream(upstream);
        connection.phase = Phase::Open;
        connection.since = self.now;
        match self.net.open(index, connection, &self.shared.config) {
            Ok(()) => self.serve(index),
            Err(ending) => self.end(index, ending),
        }
    }
}
