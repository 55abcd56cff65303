//! Where a connection is in its program.

use std::time::{Duration, Instant};

use tcpcost_study::{MessageSize, Program};

use super::code::SLOTS;

/// Where a connection is in its program. Beside `Flow`, which every kind of traffic has: most need none of this.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    /// The next instruction.
    pub(crate) at: u32,
    /// The place of the flow's first connection: where it is in the program is kept there, for all of them.
    pub(crate) head: u32,
    /// Of the first one, the places of the others.
    pub(crate) others: [u32; Program::CONNECTIONS_MAX as usize - 1],
    /// Whether it has begun.
    pub(crate) begun: bool,
    /// Passes left of each loop that is under way.
    pub(crate) passes: [u32; SLOTS],
    /// When the next pass of each is due.
    pub(crate) due_ns: [u64; SLOTS],
    /// When the loop ends that time ends.
    pub(crate) until_ns: u64,
    /// Bytes received that no operation has asked for yet.
    pub(crate) ahead: u64,
    /// When the round began, or was due.
    pub(crate) started_ns: u64,
    /// How long it has thought and slept since.
    pub(crate) idle_ns: u64,
    /// When the instruction that waits has waited enough, or what is left of one that thinks.
    pub(crate) pause_ns: u64,
    /// When it began to wait.
    pub(crate) paused_at_ns: u64,
    /// When the operation under way began.
    pub(crate) operation_ns: u64,
    /// State of what draws sizes.
    pub(crate) random: u64,
}

impl Running {
    /// At the first instruction, of the connection at this place.
    pub(crate) fn new(index: usize, seed: u64) -> Running {
        Running {
            head: index as u32,
            random: seed,
            ..Running::default()
        }
    }

    /// The place of one of the flow's connections, asked of the first one.
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

    /// Takes what there is of the message, with `more` that has just come.
    pub(crate) fn take(&mut self, left: &mut u32, more: u64) {
        self.ahead += more;
        let part = self.ahead.min(u64::from(*left));
        self.ahead -= part;
        *left -= part as u32;
    }

    /// Keeps the CPU busy for a while; gives whether that was all, and how many bytes that counts as, so that others have their turns.
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

/// The next number of a sequence (SplitMix64): both ends draw the same ones.
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Longest thought between two looks at the clock's other users: snapshots are taken on this thread.
const THOUGHT: Duration = Duration::from_millis(1);

/// What thinking counts as: 4 MiB in a millisecond, after which the worker polls.
const BYTES_PER_NS: usize = 4;
