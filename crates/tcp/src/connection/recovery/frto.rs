//! F-RTO (RFC 5682): whether a timeout was for nothing, by what the next two ACKs say.
//!
//! The first makes the sender go on with new data instead of repeating more (step 2b); if the second
//! is for what was never repeated, the originals are arriving. Only without timestamps: with them the
//! first ACK tells by itself (Eifel, `undo.rs`).

/// How far it is, after a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Frto {
    /// Nothing is to be found out: repeat.
    Off,
    /// The first segment was sent again.
    Armed,
    /// Its ACK came; up to two segments of new data leave, and nothing is repeated.
    Probing,
}

/// What an ACK means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Verdict {
    /// Go on so.
    Next(Frto),
    /// Step 3b: the timeout was for nothing.
    Spurious,
}

impl Frto {
    /// An ACK that `advances` SND.UNA, or not; `originals`: it is the first to tell of data that was sent
    /// once, before the timeout; `new_data`: there is some to send, and window for it.
    pub(in crate::connection) fn on_ack(
        self,
        advances: bool,
        originals: bool,
        new_data: bool,
    ) -> Verdict {
        match self {
            Self::Probing if originals => Verdict::Spurious,
            Self::Armed if advances && new_data => Verdict::Next(Self::Probing),
            // 2a, 3a: a duplicate, or nothing to probe with.
            _ => Verdict::Next(Self::Off),
        }
    }
}

/// Step 2b.
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
        // The repetition may have filled a gap before them.
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
