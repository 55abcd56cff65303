//! The variables of RFC 9293 §3.3.1, and what belongs to them.

use std::time::{Duration, Instant};

use super::recv_queue::RecvQueue;
use super::send_queue::SendQueue;
use crate::SeqNum;

/// Send sequence space.
#[derive(Debug)]
pub(super) struct SendSpace {
    pub iss: SeqNum,
    pub una: SeqNum,
    pub nxt: SeqNum,
    /// SND.WND, scaled, in bytes.
    pub wnd: u32,
    pub wl1: SeqNum,
    pub wl2: SeqNum,
    /// The largest window the peer ever offered: MAX.SND.WND.
    pub wnd_max: u32,
    /// Snd.Wind.Shift.
    pub shift: u8,
    /// Payload of a full segment, options of ordinary segments taken off.
    pub mss: u32,
    /// What the peer's MSS option allows.
    pub mss_peer: u32,
    /// What the path allows.
    pub mss_path: u32,
    /// End of the last partial segment sent: `snd_sml` of Minshall's rule.
    pub small_end: SeqNum,
    pub queue: SendQueue,
    /// The application will write no more; a FIN follows the queue.
    pub closed: bool,
    /// The FIN was sent: it is the last sequence number before `nxt`.
    pub fin_sent: bool,
    /// The application said that more follows (MSG_MORE).
    pub more: bool,
    /// An acknowledgement has come since: what waits for more does so no longer.
    pub more_over: bool,
    /// The application wants full segments only (TCP_CORK).
    pub cork: bool,
    /// The application had more to write than the buffer had room for.
    pub wanted: bool,
    /// A partial segment may leave once, whatever holds it.
    pub flush: bool,
    /// SND.UP: behind the last urgent byte, while `urgent`.
    pub up: SeqNum,
    /// Urgent data was written and is not acknowledged.
    pub urgent: bool,
    /// How long ago pacing would have let the next data go, in ns.
    pub pace_late_ns: u32,
}

/// Receive sequence space.
#[derive(Debug)]
pub(super) struct ReceiveSpace {
    pub irs: SeqNum,
    pub nxt: SeqNum,
    /// The right edge offered, RCV.NXT + RCV.WND; never moves back.
    pub edge: SeqNum,
    /// The last acknowledgement sent: Last.ACK.sent of RFC 7323.
    pub acked: SeqNum,
    /// Window offered with it, in bytes.
    pub acked_window: u32,
    /// Rcv.Wind.Shift.
    pub shift: u8,
    pub queue: RecvQueue,
    /// Sequence number of the peer's FIN, once seen.
    pub fin: Option<SeqNum>,
    /// The FIN was reached: nothing more will come.
    pub finished: bool,
    /// Nobody will read, and the peer is to know.
    pub abandoned: bool,
    /// Nobody will read; what comes is taken and dropped.
    pub discarded: bool,
    /// Receive buffer in bytes.
    pub buffer: u32,
    /// Payload of a full segment of the peer's, by what was seen.
    pub full_segment: u32,
    /// RCV.UP: behind the last urgent byte, while `urgent`.
    pub up: SeqNum,
    /// The peer has urgent data that nobody has read.
    pub urgent: bool,
    /// TS.Recent.
    pub ts_recent: u32,
    /// A duplicate to report (RFC 2883).
    pub duplicate: Option<(SeqNum, SeqNum)>,
    /// When payload last came (before any, when the connection was opened), by the timers' clock.
    pub data_ns: u64,
    /// For auto-tuning: bytes read since the time beside it.
    pub tuning_bytes: u32,
    /// By the timers' clock, whose zero is when the connection was opened.
    pub tuning_ns: u64,
}

impl ReceiveSpace {
    pub(super) fn new(buffer: u32) -> Self {
        Self {
            irs: SeqNum::default(),
            nxt: SeqNum::default(),
            edge: SeqNum::default(),
            acked: SeqNum::default(),
            acked_window: 0,
            shift: 0,
            queue: RecvQueue::default(),
            fin: None,
            finished: false,
            abandoned: false,
            discarded: false,
            buffer,
            full_segment: 536,
            up: SeqNum::default(),
            urgent: false,
            ts_recent: 0,
            duplicate: None,
            data_ns: 0,
            tuning_bytes: 0,
            tuning_ns: 0,
        }
    }

    /// RCV.WND in bytes.
    pub(super) fn wnd(&self) -> u32 {
        self.edge.since(self.nxt)
    }
}

/// Where explicit congestion notification stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EcnState {
    /// Both sides take part.
    pub on: bool,
    /// A mark arrived; ECE is set until the peer says CWR.
    pub echo: bool,
    /// We reduced the window and the next new data says so.
    pub reduced: bool,
    /// Data came that could be marked.
    pub seen: bool,
}

/// The timestamp clock: milliseconds since `epoch`, plus `offset`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When it read `offset`.
    pub epoch: Instant,
    /// Best unpredictable, and different for every peer (RFC 7323 §5.4).
    pub offset: u32,
}

impl Clock {
    /// TSval at `now`.
    pub(crate) fn at(&self, now: Instant) -> u32 {
        self.offset
            .wrapping_add(now.saturating_duration_since(self.epoch).as_millis() as u32)
    }

    /// The time since it read `echo`, if that can be.
    pub(super) fn since(&self, now: Instant, echo: u32) -> Option<Duration> {
        let elapsed = self.at(now).wrapping_sub(echo);
        (elapsed < 1 << 30).then(|| Duration::from_millis(elapsed.into()))
    }
}

impl SendSpace {
    /// Nothing that was written or closed waits for an acknowledgement.
    pub(super) fn queue_is_quiet(&self) -> bool {
        self.queue.len() == 0 && self.una == self.nxt
    }
}
