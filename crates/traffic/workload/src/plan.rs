//! Plan of a worker's group, worked out once from the settings.

use std::time::Duration;

use tcpcost_knobs::{
    Cork, FileSpread, ReceiveWith, SendWith, Side, WaitsBy, WorkloadKind, WorkloadSettings,
};
use tcpcost_stack::{FileSizes, SocketOptions};

use crate::hello::{TOKEN_BYTES, Token};
use crate::pattern::{self, PERIOD};
use crate::program::Calls;
use crate::schedule::Schedule;

/// Socket options that a workload asks of its stack.
pub fn socket_options(settings: &WorkloadSettings) -> SocketOptions {
    SocketOptions {
        send_buffer_bytes: settings.send_buffer_bytes,
        receive_buffer_bytes: settings.receive_buffer_bytes,
        nodelay: settings.nodelay,
        mptcp: settings.mptcp,
        congestion_control: Some(settings.congestion_control.clone()),
        zerocopy: Side::BOTH.iter().any(|&side| {
            let calls = Calls::of(settings, side).sends;
            calls.contains(&SendWith::Zerocopy) || calls.contains(&SendWith::MmapZerocopy)
        }),
        listen_ports: None,
    }
}

/// State machine that serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Stream,
    RrClient,
    RrServer,
    CrrClient,
    CrrServer,
    /// Either side of a program.
    Program,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    pub(crate) side: Side,
    pub(crate) token: Token,
    pub(crate) sends: bool,
    pub(crate) receives: bool,
    pub(crate) checks: bool,
    pub(crate) counts_transactions: bool,
    /// True if this side records response times.
    pub(crate) has_responses: bool,
    pub(crate) opens: bool,
    /// Connections of each flow.
    pub(crate) connections: usize,
    /// True if a failed connection is replaced by the next one.
    pub(crate) can_fail: bool,
    /// True if connections are set up before the traffic and stay open.
    pub(crate) stands: bool,
    /// True if the kernel reports completions of sends (MSG_ZEROCOPY).
    pub(crate) completes: bool,
    /// True if this side receives by mapping pages.
    pub(crate) maps: bool,
    /// Sizes of the files; `None` unless there are several.
    pub(crate) files: Option<FileSizes>,
    pub(crate) cork: Cork,
    pub(crate) in_flight: u32,
    /// True if readiness is not polled: each connection is tried in turn.
    pub(crate) visits: bool,
    /// Bytes of the longest send call.
    pub(crate) call_bytes: usize,
    /// Bytes of a message that this side sends: a request, a response, or one write of a stream.
    pub(crate) send_message: u32,
    /// Bytes of a message that this side receives (`rr`, `crr`).
    pub(crate) receive_message: u32,
    /// True if each request of `crr` starts with the token. A shorter request, or one that the
    /// server never sees (MSG_TRUNC, splice), has no token: then only the peer's address is
    /// checked.
    pub(crate) token_in_request: bool,
    /// Bytes at the start of the source that hold the token and the pattern after it: whole calls.
    pub(crate) token_region: u64,
    /// Bytes of the pattern in the source.
    pub(crate) pattern_bytes: u64,
    /// True if a connection moves on through the source. A buffer without `check` is always sent
    /// from its start, as other tools do, so that the cache footprint is theirs.
    pub(crate) advances: bool,
    /// True if the bytes sent must be the pattern at their offset in the stream.
    checked_by_peer: bool,
    /// Fixed rate over all flows: events, and the nanoseconds that they take.
    pub(crate) rate: Option<(u128, u128)>,
}

impl Plan {
    pub(crate) fn new(settings: &WorkloadSettings, side: Side, token: Token) -> Plan {
        let s = settings;
        let kind = s.kind;
        let role = match (kind, side) {
            (WorkloadKind::Rr, Side::Connects) => Role::RrClient,
            (WorkloadKind::Rr, Side::Listens) => Role::RrServer,
            (WorkloadKind::Crr, Side::Connects) => Role::CrrClient,
            (WorkloadKind::Crr, Side::Listens) => Role::CrrServer,
            (WorkloadKind::Program, _) => Role::Program,
            (WorkloadKind::Stream | WorkloadKind::Maerts | WorkloadKind::Bidirectional, _) => {
                Role::Stream
            }
        };
        let program = s.program.as_ref();
        let author = program.map_or(Side::Connects, |program| program.author());
        let largest = program.map(|program| program.largest());
        let largest = largest.unwrap_or_default().map(|bytes| bytes as usize);
        let (send_message, receive_message) = match (role, side) {
            (Role::Stream, _) => (s.write_bytes, s.write_bytes),
            (Role::Program, side) if side == author => (largest[0], largest[1]),
            (Role::Program, _) => (largest[1], largest[0]),
            (_, Side::Connects) => (s.request_bytes, s.response_bytes),
            (_, Side::Listens) => (s.response_bytes, s.request_bytes),
        };
        let call_bytes = s.write_bytes.min(send_message).max(1);
        let calls = Calls::of(s, side);
        let from_file = calls.sends.iter().any(|with| with.is_from_files());
        let file_bytes = s.file_bytes.max(PERIOD as u64);
        let receives = s.sends(side.peer());
        let sends = s.sends(side);
        let stands = s.stands();
        let token_in_request = kind == WorkloadKind::Crr
            && s.request_bytes >= TOKEN_BYTES
            && s.receive_with == ReceiveWith::Read;
        let small = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        Plan {
            role,
            side,
            token,
            sends,
            receives,
            checks: s.check && receives,
            counts_transactions: kind.has_transactions() && side == Side::Connects,
            has_responses: kind.has_transactions() && side == author && receives,
            connections: s.connections_each(),
            can_fail: side == Side::Connects && program.is_some_and(|program| program.can_fail()),
            opens: !stands && side == Side::Connects,
            stands,
            completes: sends && calls.sends.iter().any(|with| with.has_completions()),
            maps: receives && calls.receives.contains(&ReceiveWith::Zerocopy),
            files: (from_file && s.files > 1)
                .then(|| FileSizes::new(file_bytes, s.file_sizes == FileSpread::Mixed)),
            cork: s.cork,
            in_flight: small(s.in_flight.max(1)),
            visits: s.io == WaitsBy::Visits,
            call_bytes,
            send_message: small(send_message.max(1)),
            receive_message: small(receive_message.max(1)),
            token_in_request,
            token_region: if token_in_request && side == Side::Connects {
                (call_bytes * TOKEN_BYTES.div_ceil(call_bytes)) as u64
            } else {
                0
            },
            pattern_bytes: if from_file {
                file_bytes * s.files
            } else if s.check {
                (call_bytes + PERIOD) as u64
            } else {
                call_bytes as u64
            },
            advances: s.check || from_file,
            checked_by_peer: s.check,
            rate: match role {
                Role::Stream if sends => s
                    .rate_bits_per_s
                    .map(|rate| (rate.into(), s.write_bytes as u128 * 8 * 1_000_000_000)),
                Role::RrClient | Role::CrrClient | Role::Program if side == Side::Connects => s
                    .transactions_per_s
                    .map(|rate| (rate.into(), 1_000_000_000)),
                _ => None,
            },
        }
    }

    /// Schedule of `mine` flows out of `all`; `None` without a fixed rate. The first event is due
    /// at a random point of the first period, so that workers do not fire all at once.
    pub(crate) fn schedule(&self, mine: usize, all: usize, seed: u64) -> Option<Schedule> {
        let (events, per_ns) = self.rate?;
        let (events, per_ns) = (events * mine as u128, per_ns * all as u128);
        let period_ns = u64::try_from(per_ns / events.max(1)).unwrap_or(u64::MAX);
        // The top bits of a multiplicative hash: neighbouring seeds give distant starts.
        let share = u128::from(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let start_ns = (u128::from(period_ns) * share) >> 64;
        Some(Schedule::new(start_ns as u64, events, per_ns))
    }

    /// Time between two events of one of `all` connections; `None` without a fixed rate.
    pub(crate) fn period(&self, all: usize) -> Option<Duration> {
        let (events, per_ns) = self.rate?;
        let period_ns = per_ns * all as u128 / events.max(1);
        Some(Duration::from_nanos(
            u64::try_from(period_ns).unwrap_or(u64::MAX),
        ))
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.role == Role::Stream
    }

    pub(crate) fn corks(&self) -> bool {
        self.cork == Cork::On
    }

    pub(crate) fn checked_by_peer(&self) -> bool {
        self.checked_by_peer
    }

    /// Offset in the pattern where this side's byte stream of a connection starts. Connections that
    /// do not stay open start at 0, because the server cannot know their number.
    pub(crate) fn send_phase(&self, connection: u32) -> u32 {
        self.phase(connection, self.side)
    }

    /// Offset in the pattern where the peer's byte stream of a connection starts.
    pub(crate) fn receive_phase(&self, connection: u32) -> u32 {
        self.phase(connection, self.side.peer())
    }

    fn phase(&self, connection: u32, sender: Side) -> u32 {
        if self.stands {
            pattern::phase(connection, sender)
        } else {
            0
        }
    }

    /// Writes the content of the source at `offset` into `bytes`.
    pub(crate) fn fill(&self, offset: u64, bytes: &mut [u8]) {
        let region = self.token_region.saturating_sub(offset);
        let head = usize::try_from(region).map_or(bytes.len(), |head| head.min(bytes.len()));
        let (in_region, behind) = bytes.split_at_mut(head);
        pattern::fill(offset, in_region);
        for (at, byte) in in_region.iter_mut().enumerate() {
            if let Some(&token) = self.token.get(offset as usize + at) {
                *byte = token;
            }
        }
        pattern::fill(
            (offset + head as u64).saturating_sub(self.token_region),
            behind,
        );
    }
}

#[cfg(test)]
mod tests {
    use tcpcost_knobs::Knobs;

    use super::*;

    #[test]
    fn workers_share_the_rate_by_their_flows_and_start_apart() {
        let mut knobs = Knobs::default();
        knobs.set("rate", "8Gbit").unwrap();
        knobs.set("write_size", "1000B").unwrap();
        let settings = WorkloadSettings::from_knobs(&knobs).unwrap();
        let plan = Plan::new(&settings, Side::Connects, [0; 16]);
        // 1000 bytes at 8 Gbit/s take 1 µs; a quarter of the flows writes every 4 µs.
        let mut quarter = plan.schedule(5, 20, 0).unwrap();
        let first = quarter.due_ns();
        quarter.advance();
        assert_eq!(quarter.due_ns() - first, 4000);
        let others = [1, 2, 3].map(|seed| plan.schedule(5, 20, seed).unwrap().due_ns());
        assert!(first < 4000 && others.iter().all(|&other| other < 4000 && other != first));
        let server = Plan::new(&settings, Side::Listens, [0; 16]);
        assert!(server.schedule(5, 20, 0).is_none(), "it does not send");
    }
}
