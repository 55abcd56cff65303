//! A connection as Linux's `struct tcp_info`.

use tcpcost_tcp::{Agreed, Connection, LossState, State};

/// Fields that scripts look at, in the kernel's order (include/uapi/linux/tcp.h).
pub fn tcp_info(connection: &Connection, now: std::time::Instant) -> Vec<u8> {
    let info = connection.info(now);
    let counters = connection.counters();
    let segments = |bytes: u32| bytes.div_ceil(info.mss.max(1));
    let us = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_micros() as u32);
    let (sent, received) = info.agreed.window_shifts.unwrap_or_default();
    let mut bytes = vec![
        state(connection.state()),
        loss(info.loss),
        info.timeouts_in_a_row,
        info.probes_unanswered,
        info.timeouts_in_a_row,
        options(&info.agreed),
        sent | received << 4,
        0,
    ];
    let unlimited = 0x7fff_ffff;
    words(
        &mut bytes,
        &[
            info.rto.as_micros() as u32,
            0,
            info.mss,
            info.mss_received,
            segments(info.unacked_bytes),
            segments(info.sacked_bytes),
            // Linux still counts retransmitted segments as lost.
            segments(info.lost_bytes + info.retransmitted_bytes),
            segments(info.retransmitted_bytes),
            0,
            0,
            0,
            ms(info.since_data_received),
            ms(info.since_received),
            info.mss + 40,
            info.receive_window_bytes,
            us(info.srtt),
            us(info.rttvar),
            info.ssthresh_bytes
                .map_or(unlimited, |bytes| bytes / info.mss.max(1)),
            info.cwnd_bytes / info.mss.max(1),
            info.mss_announced,
            segments(info.reordering_bytes).max(3),
            0,
            info.receive_buffer_bytes,
            counters.segments_retransmitted as u32,
        ],
    );
    let acked = counters.payload_bytes_sent - counters.payload_bytes_retransmitted;
    longs(
        &mut bytes,
        &[
            u64::MAX,
            u64::MAX,
            acked.saturating_sub(u64::from(info.unacked_bytes)),
            counters.payload_bytes_received,
        ],
    );
    words(
        &mut bytes,
        &[
            counters.segments_sent as u32,
            counters.segments_received as u32,
            info.unsent_bytes,
            us(info.rtt_min),
            (counters.segments_received - counters.pure_acks_received) as u32,
            (counters.segments_sent - counters.pure_acks_sent) as u32,
        ],
    );
    let limits = info.limits;
    let us = |time: std::time::Duration| time.as_micros() as u64;
    longs(
        &mut bytes,
        &[
            0,
            us(limits.busy),
            us(limits.by_window),
            us(limits.by_buffer),
        ],
    );
    words(&mut bytes, &[counters.segments_delivered as u32, 0]);
    longs(
        &mut bytes,
        &[
            counters.payload_bytes_sent,
            counters.payload_bytes_retransmitted,
        ],
    );
    bytes.resize(BYTES, 0);
    bytes
}

fn words(bytes: &mut Vec<u8>, words: &[u32]) {
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
}

fn longs(bytes: &mut Vec<u8>, longs: &[u64]) {
    bytes.extend(longs.iter().flat_map(|long| long.to_ne_bytes()));
}

/// The TCPI_OPT flags.
fn options(agreed: &Agreed) -> u8 {
    u8::from(agreed.timestamps)
        | u8::from(agreed.sack) << 1
        | u8::from(agreed.window_shifts.is_some()) << 2
        | u8::from(agreed.ecn) << 3
        | u8::from(agreed.data_in_syn) << 5
}

/// The kernel's number of the state (enum tcp_ca_state).
fn loss(loss: LossState) -> u8 {
    match loss {
        LossState::Open => 0,
        LossState::Disorder => 1,
        LossState::Reduced => 2,
        LossState::Recovery => 3,
        LossState::Loss => 4,
    }
}

fn ms(time: Option<std::time::Duration>) -> u32 {
    time.map_or(0, |time| time.as_millis() as u32)
}

fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    }
}

/// More than any kernel's structure has.
pub const BYTES: usize = 512;
