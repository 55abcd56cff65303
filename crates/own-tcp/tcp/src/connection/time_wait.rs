//! State of a connection in TIME-WAIT, which the endpoint keeps.

use std::time::{Duration, Instant};

use super::{Clock, Connection};
use crate::SeqNum;
use crate::wire::FourTuple;
/// Compact form of a connection in TIME-WAIT.
#[derive(Debug)]
pub(crate) struct TimeWait {
    pub path: FourTuple,
    pub snd_nxt: SeqNum,
    pub rcv_nxt: SeqNum,
    /// TS.Recent; `None` if timestamps were not agreed on.
    pub ts_recent: Option<u32>,
    pub clock: Clock,
    pub length: Duration,
    pub until: Instant,
}

impl Connection {
    /// Converts a connection in TIME-WAIT.
    pub(crate) fn time_wait(&self, path: FourTuple) -> TimeWait {
        TimeWait {
            path,
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            ts_recent: self.timestamps.then_some(self.rcv.ts_recent),
            clock: self.clock(),
            length: self.config.time_wait,
            until: self
                .timers
                .next()
                .unwrap_or(self.heard_at() + self.config.time_wait),
        }
    }
}
