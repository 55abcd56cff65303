//! Variables of RFC 9293 §3.3.1 and related state.

use std::time::{Duration, Instant};

use super::recv_queue::RecvQueue;
use super::send_queue::SendQueue;
use crate::SeqNum;

#[derive(Debug)]
pub(super) struct SendSpace {
    pub iss: SeqNum,
    pub una: SeqNum,
    pub nxt: SeqNum,
    /// SND.WND in bytes, after scaling.
    pub wnd: u32,
    pub wl1: SeqNum,
    pub wl2: SeqNum,
    /// MAX.SND.WND: the largest window that the peer ever offered.
    pub wnd_max: u32,
    /// Snd.Wind.Shift.
    pub shift: u8,
    /// Payload of a full-sized segment, without the options of ordinary segments.
    pub mss: u32,
    /// Limit from the peer's MSS option.
    pub mss_peer: u32,
    /// Limit of the path.
    pub mss_path: u32,
    /// End of the last partial segment sent (`snd_sml` of Minshall's rule).
    pub small_end: SeqNum,
    pub queue: SendQueue,
    /// True if the application has closed writing; a FIN follows the queue.
    pub closed: bool,
    /// True if the FIN was sent; its sequence number is the last before `nxt`.
    pub fin_sent: bool,
    /// True if the application announced more data (MSG_MORE).
    pub more: bool,
    /// True if an ACK arrived since `more` was set, which ends the wait for more data.
    pub more_over: bool,
    /// True if the application wants only full-sized segments (TCP_CORK).
    pub cork: bool,
    /// True if the application had more data than fitted into the send buffer.
    pub wanted: bool,
    /// True if a partial segment may leave once, regardless of Nagle, cork and MSG_MORE.
    pub flush: bool,
    /// SND.UP: sequence number after the last urgent byte; valid while `urgent`.
    pub up: SeqNum,
    /// True if urgent data was written and is not acknowledged.
    pub urgent: bool,
    /// Time in ns since pacing allowed the next data to leave.
    pub pace_late_ns: u32,
}

#[derive(Debug)]
pub(super) struct ReceiveSpace {
    pub irs: SeqNum,
    pub nxt: SeqNum,
    /// Right edge of the window offered, RCV.NXT + RCV.WND; never decreases.
    pub edge: SeqNum,
    /// Last acknowledgement sent (Last.ACK.sent of RFC 7323).
    pub acked: SeqNum,
    /// Window announced with the last acknowledgement, in bytes.
    pub acked_window: u32,
    /// Rcv.Wind.Shift.
    pub shift: u8,
    pub queue: RecvQueue,
    /// Sequence number of the peer's FIN; `None` before it is seen.
    pub fin: Option<SeqNum>,
    /// True if the FIN was reached: no more data will arrive.
    pub finished: bool,
    /// True if the application reads no more and later data is answered with a reset.
    pub abandoned: bool,
    /// True if the application reads no more; data is acknowledged and dropped.
    pub discarded: bool,
    /// Receive buffer in bytes.
    pub buffer: u32,
    /// Payload of the peer's full-sized segment, estimated from segments seen.
    pub full_segment: u32,
    /// RCV.UP: sequence number after the last urgent byte; valid while `urgent`.
    pub up: SeqNum,
    /// True if the peer sent urgent data that the application has not read.
    pub urgent: bool,
    pub ts_recent: u32,
    /// Range to report as a duplicate (RFC 2883).
    pub duplicate: Option<(SeqNum, SeqNum)>,
    /// Time at which payload last arrived, or of the establishment if none did, in ns since the
    /// epoch of the timers; 0 before.
    pub data_ns: u64,
    /// Bytes read since `tuning_ns`, for tuning of the receive buffer.
    pub tuning_bytes: u32,
    /// Start of the current tuning interval, in ns since the epoch of the timers.
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

    /// Returns RCV.WND in bytes.
    pub(super) fn wnd(&self) -> u32 {
        self.edge.since(self.nxt)
    }
}

/// State of explicit congestion notification.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EcnState {
    /// True if both sides use ECN.
    pub on: bool,
    /// True if a mark arrived; ECE is set until the peer sends CWR.
    pub echo: bool,
    /// True if we reduced the window; the next new data carries CWR.
    pub reduced: bool,
    /// True if a segment with an ECN-capable codepoint arrived.
    pub seen: bool,
}

/// Clock of the timestamp option: milliseconds since `epoch`, plus `offset`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Time at which the clock read `offset`.
    pub epoch: Instant,
    /// Value at `epoch`. Should be unpredictable and different for every peer (RFC 7323 §5.4).
    pub offset: u32,
}

impl Clock {
    /// Returns TSval at `now`.
    pub(crate) fn at(&self, now: Instant) -> u32 {
        self.offset
            .wrapping_add(now.saturating_duration_since(self.epoch).as_millis() as u32)
    }

    /// Time since the clock read `echo`; `None` if that is not plausible (2³⁰ ms or more).
    pub(super) fn since(&self, now: Instant, echo: u32) -> Option<Duration> {
        let elapsed = self.at(now).wrapping_sub(echo);
        (elapsed < 1 << 30).then(|| Duration::from_millis(elapsed.into()))
    }
}

impl SendSpace {
    /// State of an end that has sent all before `nxt` and got it acknowledged. `data`: number of the
    /// first byte that the application will write.
    pub(super) fn new(nxt: SeqNum, data: SeqNum, mss: u32) -> Self {
        Self {
            iss: nxt,
            una: nxt,
            nxt,
            wnd: 0,
            wl1: SeqNum::default(),
            wl2: SeqNum::default(),
            wnd_max: 0,
            shift: 0,
            mss,
            mss_peer: u32::from(MSS_DEFAULT),
            mss_path: mss,
            small_end: nxt,
            queue: SendQueue::new(data),
            closed: false,
            fin_sent: false,
            more: false,
            more_over: false,
            cork: false,
            wanted: false,
            flush: false,
            up: nxt,
            urgent: false,
            pace_late_ns: 0,
        }
    }

    /// True if everything written, and any FIN, is acknowledged.
    pub(super) fn queue_is_quiet(&self) -> bool {
        self.queue.len() == 0 && self.una == self.nxt
    }
}

/// Assumed MSS of a peer without the option (RFC 9293 §3.7.1, MUST-15). The value is for IPv4; for
/// IPv6 it is smaller than needed.
pub(super) const MSS_DEFAULT: u16 = 536;
