//! State of a worker besides its traffic: its channels and its meters.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_study::{HostName, Knob, Side};
use tcpcost_workload as workload;

use super::conduct::EndHandover;
use super::{WorkerAnswer, WorkerOrder};
use crate::backend::ObservedStack;
use crate::policy::ConnectedOptions;
use crate::readings::Meters;
use crate::sampler::Sampler;

/// Longest wait for an order while a stack is kept running; well within the lead of a span.
const KEEP_UP: Duration = Duration::from_millis(1);

/// A worker, on its own thread.
pub(super) struct Worker {
    pub(super) inbox: Receiver<WorkerOrder>,
    pub(super) outbox: Sender<Result<WorkerAnswer, String>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) meters: Meters,
    pub(super) sampler: Option<Sampler>,
    pub(super) beside_soak: bool,
    pub(super) by_connection: bool,
    /// True if this worker marks the begin and the end of the measured interval for an emulator
    /// ([`tcpcost_meter::mark`]). The first worker of a host that connects does.
    pub(super) marks: bool,
    /// Time between samples of the first connection.
    pub(super) series_ns: Option<u64>,
    /// `None` if connections come and go.
    pub(super) tcp_info: Option<TcpInfo>,
    pub(super) reads_rusage: bool,
    /// Number of the host's connections if each has a thread, so that its process is measured; else 0.
    pub(super) connection_threads: usize,
    /// Names of the groups; empty for a host that forwards.
    pub(super) groups: Vec<Option<HostName>>,
    pub(super) options: ConnectedOptions,
    /// Knobs that are set for this end.
    pub(super) knobs: Vec<&'static Knob>,
    /// Set if it takes turns with the other end.
    pub(super) handover: Option<EndHandover>,
    pub(super) side: Option<Side>,
}

impl Worker {
    /// Waits for the next order. `None` once the trial is over. Between set-up and run, a stack that only
    /// this thread moves is kept running, so that a lost packet does not delay the other end's set-up.
    pub(super) fn next_order<S: ObservedStack>(
        &self,
        worker: &mut workload::Worker<S>,
        is_between: bool,
    ) -> Result<Option<WorkerOrder>, String> {
        if !(is_between && S::STANDS_STILL) {
            return Ok(self.inbox.recv().ok());
        }
        loop {
            match self.inbox.try_recv() {
                Ok(order) => return Ok(Some(order)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => {
                    worker.keep_up(KEEP_UP).map_err(|error| error.to_string())?
                }
            }
        }
    }

    pub(super) fn send(&self, answer: WorkerAnswer) -> Result<(), String> {
        self.outbox
            .send(Ok(answer))
            .map_err(|_| "the trial was given up".to_string())
    }
}
