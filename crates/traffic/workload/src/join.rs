//! Joins the connections of each flow after set-up.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use tcpcost_stack::{Stack, StackError};

use crate::error::call;
use crate::flow::State;
use crate::worker::Worker;

impl<S: Stack> Worker<S> {
    /// Links the first connection of each flow with its others. `peer` returns the address that
    /// opened a connection, because each connecting host numbers its own.
    pub(crate) fn join(
        &mut self,
        peer: impl Fn(usize) -> Option<IpAddr>,
    ) -> Result<(), StackError> {
        let mut firsts = HashMap::new();
        let mut others = Vec::new();
        for index in 0..self.flows.len() {
            let (group, connection) = (self.flows[index].group, self.flows[index].connection);
            self.switch_to(group);
            let each = self.io.group.plan.connections as u32;
            if each == 1 || self.flows[index].state != State::Open {
                continue;
            }
            let flow = (group, peer(index), connection / each);
            match connection % each {
                0 => drop(firsts.insert(flow, index)),
                number => others.push((flow, number as usize, index)),
            }
        }
        for (flow, number, index) in others {
            let Some(&first) = firsts.get(&flow) else {
                let lost = io::Error::new(io::ErrorKind::NotFound, "another worker has its first");
                return Err(call("join the connections of a flow")(lost));
            };
            self.running[first].others[number - 1] = index as u32;
            self.running[index].head = first as u32;
        }
        Ok(())
    }
}
