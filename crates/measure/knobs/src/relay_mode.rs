//! Modes of the relay, one row each: how bytes move, how often they are copied, what that needs.

use std::str::FromStr;

use crate::words::words;

words! {
    /// Method by which a relay moves bytes from one connection to another.
    RelayMode {
        /// recv(2) and send(2) through one buffer of the worker.
        Copy = "copy",
        /// splice(2) through pipes; a flow holds a pipe only while bytes are in it.
        Splice = "splice",
        /// Redirection by eBPF in the kernel.
        Sockmap = "sockmap",
        /// io_uring, with provided buffers: the kernel takes a buffer when bytes arrive.
        IoUring = "io-uring",
        /// Our own TCP on both sides, by reference from queue to queue.
        User = "user",
        /// Our own TCP on both sides, read into one buffer of the worker and written.
        UserCopy = "user-copy",
        /// Copy or splice, chosen for each direction of each connection by the sizes of its reads.
        Auto = "auto",
    }
}

/// Condition under which a mode works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayNeeds {
    /// Sockets of the kernel.
    Sockets,
    /// io_uring.
    IoUring,
    /// Our own TCP, with an interface and an address of its own.
    OwnTcp,
    /// The mode is refused everywhere, for this reason.
    Refused(&'static str),
}

/// Row of a mode.
#[derive(Debug, Clone, Copy)]
pub struct RelayModeRow {
    /// How bytes move, for the help of `--mode`.
    pub doc: &'static str,
    /// Number of times that a byte is copied.
    pub copies: u32,
    /// Condition under which the mode works.
    pub needs: RelayNeeds,
}

impl RelayMode {
    /// Row of the mode.
    pub const fn row(self) -> RelayModeRow {
        match self {
            RelayMode::Copy => RelayModeRow {
                doc: "recv(2) and send(2) through a buffer",
                copies: 2,
                needs: RelayNeeds::Sockets,
            },
            RelayMode::Splice => RelayModeRow {
                doc: "splice(2) through pipes",
                copies: 0,
                needs: RelayNeeds::Sockets,
            },
            RelayMode::Sockmap => RelayModeRow {
                doc: "redirection by eBPF",
                copies: 0,
                // A program that redirects (sk_skb) takes bytes out of the receive queue at once, so
                // the sender's window opens again, and queues them for the receiver without a limit
                // (sk_psock_verdict_apply, net/core/skmsg.c; docs/dev/decisions.md).
                needs: RelayNeeds::Refused(
                    "eBPF redirection has no back-pressure: a receiver that stalls is queued for without end",
                ),
            },
            RelayMode::IoUring => RelayModeRow {
                doc: "io_uring with provided buffers",
                copies: 2,
                needs: RelayNeeds::IoUring,
            },
            RelayMode::User => RelayModeRow {
                doc: "our own TCP, by reference from queue to queue",
                copies: 1,
                needs: RelayNeeds::OwnTcp,
            },
            RelayMode::UserCopy => RelayModeRow {
                doc: "our own TCP, read into a buffer and written",
                copies: 1 + 2,
                needs: RelayNeeds::OwnTcp,
            },
            RelayMode::Auto => RelayModeRow {
                doc: "copy or splice, chosen for each direction of each connection",
                copies: 0, // `auto` splices where it can.
                needs: RelayNeeds::Sockets,
            },
        }
    }

    /// True if the mode relays by our own TCP.
    pub const fn is_user(self) -> bool {
        matches!(self.row().needs, RelayNeeds::OwnTcp)
    }

    /// True if the mode works nowhere.
    pub const fn is_refused(self) -> bool {
        matches!(self.row().needs, RelayNeeds::Refused(_))
    }
}

/// Error for a text that is no name of a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("one of {}", RelayMode::WORDS.join(", "))]
pub struct RelayModeError;

impl FromStr for RelayMode {
    type Err = RelayModeError;

    fn from_str(text: &str) -> Result<RelayMode, RelayModeError> {
        RelayMode::from_word(text).ok_or(RelayModeError)
    }
}

/// Words of the knob `relay_mode`: `forward` (packets, without a relay), and the modes that are not
/// refused.
pub(crate) const KNOB_WORDS: [&str; 1 + AVAILABLE] = {
    let mut words = ["forward"; 1 + AVAILABLE];
    let (mut mode, mut end) = (0, 1);
    while mode < RelayMode::ALL.len() {
        if !RelayMode::ALL[mode].is_refused() {
            words[end] = RelayMode::WORDS[mode];
            end += 1;
        }
        mode += 1;
    }
    words
};

/// Number of modes that are not refused.
const AVAILABLE: usize = {
    let (mut mode, mut count) = (0, 0);
    while mode < RelayMode::ALL.len() {
        count += !RelayMode::ALL[mode].is_refused() as usize;
        mode += 1;
    }
    count
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_has_forward_and_the_modes_that_work() {
        let available = RelayMode::ALL.iter().filter(|mode| !mode.is_refused());
        let words = available.map(|mode| mode.word());
        assert!(std::iter::once("forward").chain(words).eq(KNOB_WORDS));
    }
}
