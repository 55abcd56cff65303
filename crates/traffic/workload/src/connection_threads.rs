//! Makes the threads of a worker that has a thread for each connection, and hands the connections
//! over.

use std::sync::Arc;

use tcpcost_knobs::Side;
use tcpcost_stack::{Stack, StackError};

use crate::blocking::{OfGroup, OnStart, Strand, Stream, Threads, Way};
use crate::error::call;
use crate::flow::State;
use crate::program::Running;
use crate::worker::Worker;

impl<S: Stack> Worker<S> {
    /// Makes this a worker with a thread for each connection. Call it before set-up. Each thread
    /// calls `on_start` first.
    pub fn with_threads(mut self, on_start: OnStart) -> Worker<S> {
        self.on_start = Some(on_start);
        self
    }

    /// Makes the threads, which wait for the traffic to begin.
    pub(crate) fn start_threads(&mut self, on_start: &OnStart) -> Result<(), StackError> {
        let mut groups = Vec::new();
        let mut ways: Vec<(usize, Strand, Way)> = Vec::new();
        for number in 0..self.groups.len() {
            self.switch_to(number as u16);
            let (stack, group) = (&mut self.io.stack, &*self.io.group);
            let of_group = self.listeners.iter();
            let of_group = of_group.filter(|(_, group)| usize::from(*group) == number);
            let listeners: Vec<S::Listener> = of_group.filter_map(|(open, _)| *open).collect();
            // Where connections do not stay open, each thread accepts or connects by itself.
            let own = if group.plan.stands { 0 } else { group.wanted };
            for index in 0..own {
                let way = match group.plan.side {
                    Side::Listens => {
                        let listener = listeners[index % listeners.len()];
                        let listener = stack.blocking_listener(listener).map_err(call(MAKING))?;
                        Way::Accepts(listener, self.peers.clone())
                    }
                    Side::Connects => {
                        let target = group.targets[index % group.targets.len()];
                        Way::Connects(stack.blocking_connector().map_err(call(MAKING))?, target)
                    }
                };
                let strand = Strand {
                    streams: vec![Stream::new(index as u32, None)],
                    running: Running::default(),
                };
                ways.push((number, strand, way));
            }
            groups.push(Arc::new(OfGroup::new(group)));
        }
        for index in 0..self.flows.len() {
            self.switch_to(self.flows[index].group);
            let running = self.running.get(index).cloned();
            let running = running.unwrap_or_else(|| Running::new(index, 0));
            let is_open = self.flows[index].state == State::Open;
            // A flow's other connections belong to the thread of its first one.
            if !is_open || running.head as usize != index {
                continue;
            }
            let mut streams = Vec::new();
            for conn in 0..self.io.group.plan.connections {
                let flow = &self.flows[running.place(conn as u8)];
                let Some(conn) = flow.conn else {
                    continue;
                };
                let socket = self.io.stack.blocking(conn).map_err(call(MAKING))?;
                streams.push(Stream {
                    send_at: flow.send_at,
                    ..Stream::new(flow.connection, Some(socket))
                });
            }
            let number = usize::from(self.flows[index].group);
            if !streams.is_empty() {
                ways.push((number, Strand { streams, running }, Way::Stands));
            }
        }
        let mut threads = Threads::new(groups);
        for (group, strand, way) in ways {
            threads
                .start(group, strand, way, on_start)
                .map_err(call(MAKING))?;
        }
        self.threads = Some(threads);
        Ok(())
    }
}

const MAKING: &str = "make a thread for each connection";
