//! State of a connection in its program.

use std::time::{Duration, Instant};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tcpcost_knobs::{MessageSize, Program};

use super::code::SLOTS;

/// State of a connection in its program. Separate from `Flow`, which every kind of traffic has,
/// because most kinds need none of this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    /// Index of the next instruction.
    pub(crate) at: u32,
    /// Index of the flow's first connection, which keeps the program state for all of them.
    pub(crate) head: u32,
    /// Indices of the flow's other connections; set at the first one.
    pub(crate) others: [u32; Program::CONNECTIONS_MAX as usize - 1],
    /// True once the current instruction has begun.
    pub(crate) begun: bool,
    /// Passes left of each active loop.
    pub(crate) passes: [u32; SLOTS],
    /// Due time of the next pass of each loop; 0 before the first.
    pub(crate) due_ns: [u64; SLOTS],
    /// Time at which the loop ends that has a duration.
    pub(crate) until_ns: u64,
    /// Bytes received that no operation has asked for yet.
    pub(crate) ahead: u64,
    /// Time at which the round began, or was due.
    pub(crate) started_ns: u64,
    /// Time spent thinking and sleeping in this round.
    pub(crate) idle_ns: u64,
    /// Time at which a waiting instruction ends; for `Think`, the time left.
    pub(crate) pause_ns: u64,
    /// Time at which the wait began.
    pub(crate) paused_at_ns: u64,
    /// Time at which the current operation began; 0 if there is none.
    pub(crate) operation_ns: u64,
    /// State of the generator of sizes.
    pub(crate) random: u64,
}

impl Running {
    /// State at the first instruction, for the connection with this index.
    pub(crate) fn new(index: usize, seed: u64) -> Running {
        Running {
            head: index as u32,
            random: seed,
            ..Running::default()
        }
    }

    #[inline]
    pub(crate) fn go_to(&mut self, at: u32) {
        self.at = at;
        self.begun = false;
    }

    /// Starts a round, at this time.
    pub(crate) fn start_round(&mut self, at_ns: u64) {
        self.started_ns = at_ns;
        self.idle_ns = 0;
        self.begun = true;
    }

    /// Index of one of the flow's connections; call this on the first one's state.
    #[inline]
    pub(crate) fn place(&self, conn: u8) -> usize {
        match conn {
            0 => self.head as usize,
            conn => self.others[usize::from(conn) - 1] as usize,
        }
    }

    /// Bytes of the next message of this size.
    pub(crate) fn size(&mut self, size: MessageSize) -> u32 {
        if size.least == size.most {
            return size.least;
        }
        let sizes = u64::from(size.most - size.least) + 1;
        size.least + (draw(&mut self.random) % sizes) as u32
    }

    /// Takes bytes that were received ahead, and `more` new ones, for a message.
    pub(crate) fn take(&mut self, left: &mut u32, more: u64) {
        self.ahead += more;
        let part = self.ahead.min(u64::from(*left));
        self.ahead -= part;
        *left -= part as u32;
    }

    /// Keeps the CPU busy, at most for [`THOUGHT`]. Returns true if the whole time is over, and the
    /// bytes that the time counts as, so that other connections have their turns.
    pub(crate) fn think(&mut self, time_ns: u64) -> (bool, usize) {
        if !self.begun {
            self.begun = true;
            self.pause_ns = time_ns;
        }
        let begun = Instant::now();
        let wanted = Duration::from_nanos(self.pause_ns).min(THOUGHT);
        let mut spent = Duration::ZERO;
        while spent < wanted {
            std::hint::spin_loop();
            spent = begun.elapsed();
        }
        let spent_ns = spent.as_nanos() as u64;
        self.idle_ns += spent_ns;
        self.pause_ns = self.pause_ns.saturating_sub(spent_ns);
        (self.pause_ns == 0, spent_ns as usize * BYTES_PER_NS)
    }
}

/// Next number of a SplitMix64 sequence. Both ends draw the same numbers.
pub(crate) fn draw(state: &mut u64) -> u64 {
    let mut generator = SplitMix64::seed_from_u64(*state);
    let number = generator.next_u64();
    *state = u64::from_le_bytes(generator.state());
    number
}

/// Longest piece of thinking at a time, because snapshots are taken on this thread.
const THOUGHT: Duration = Duration::from_millis(1);

/// Bytes that a nanosecond of thinking counts as: 4 MiB in a millisecond, after which the worker
/// polls.
const BYTES_PER_NS: usize = 4;
