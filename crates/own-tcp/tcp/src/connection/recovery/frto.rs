//! F-RTO (RFC 5682): decides from two ACKs after a timeout whether the timeout was spurious.
//!
//! After the first ACK the sender sends new data instead of more retransmissions (step 2b). If the
//! second ACK covers data that was never retransmitted, the originals are arriving. Used only
//! without timestamps: with timestamps the first ACK decides (Eifel, `undo.rs`).

/// Progress of F-RTO after a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Frto {
    /// Not active: retransmit.
    Off,
    /// The first segment was retransmitted.
    Armed,
    /// The first ACK arrived; up to two segments of new data leave and nothing is retransmitted.
    Probing,
}

/// Result of an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Verdict {
    /// Continue in this state.
    Next(Frto),
    /// The timeout was spurious (step 3b).
    Spurious,
}

impl Frto {
    /// Processes an ACK. `advances`: SND.UNA moves. `originals`: the ACK newly covers data sent
    /// once, before the timeout. `new_data`: there is new data to send and window for it.
    pub(in crate::connection) fn on_ack(
        self,
        advances: bool,
        originals: bool,
        new_data: bool,
    ) -> Verdict {
        match self {
            Self::Probing if originals => Verdict::Spurious,
            Self::Armed if advances && new_data => Verdict::Next(Self::Probing),
            // Steps 2a and 3a: a duplicate ACK, or no new data to probe with.
            _ => Verdict::Next(Self::Off),
        }
    }
}

/// Segments of new data after the first ACK (step 2b).
pub(in crate::connection) const NEW_SEGMENTS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_acks_say() {
        let check = |frto: Frto, [advances, originals, new_data]: [bool; 3], verdict| {
            assert_eq!(frto.on_ack(advances, originals, new_data), verdict);
        };
        let off = Verdict::Next(Frto::Off);
        check(
            Frto::Armed,
            [true, false, true],
            Verdict::Next(Frto::Probing),
        );
        // The retransmission may have filled a gap before these originals.
        check(
            Frto::Armed,
            [true, true, true],
            Verdict::Next(Frto::Probing),
        );
        check(Frto::Armed, [true, false, false], off);
        check(Frto::Armed, [false, false, true], off);
        check(Frto::Probing, [true, true, true], Verdict::Spurious);
        check(Frto::Probing, [false, false, true], off);
        check(Frto::Off, [true, true, true], off);
    }
}
