//! What the meter `segments` tells: super-segments, tails, ACKs, bursts, and who drains.

use tcpcost_study::{DerivedKind, End, Quantity, Whose};

use super::{Kinds, Trial, ratio};

impl Trial<'_> {
    /// Of one end only where each end is in a namespace of its own; on loopback both ends count the
    /// same one, which then counts once.
    pub(super) fn segments(&self, scope: Option<End>) -> Kinds {
        use DerivedKind as D;
        use Quantity as Q;
        if scope.is_some() && !self.namespaces_apart {
            return Vec::new();
        }
        let of = |quantity| {
            let mut counts = self
                .ends(scope)
                .filter_map(|end| end.growth("segments", &Whose::Namespace, quantity));
            if self.namespaces_apart {
                counts
                    .next()
                    .map(|first| counts.fold(first, |sum, count| sum + count))
            } else {
                counts.next()
            }
            .map(|count| count as f64)
        };
        let per = |above: Q, below: Q| ratio(of(above)?, of(below)?);
        let share = |above: Q| per(above, Q::DataSkbsSent);
        vec![
            (D::SkbBytesMean, share(Q::DataSkbBytesSent)),
            (
                D::SkbBytesWeighted,
                per(Q::DataSkbSquaredBytesSent, Q::DataSkbBytesSent),
            ),
            (D::WireSegmentsPerDataSkb, share(Q::DataWireSegmentsSent)),
            (D::TailRatio, share(Q::TailSkbsSent)),
            (
                D::BytesPerAck,
                per(Q::DataSkbBytesSent, Q::PureAcksReceived),
            ),
            (
                D::DataBurst,
                per(Q::DataWireSegmentsSent, Q::DataBurstsSent),
            ),
            (D::AckBurst, per(Q::PureAcksReceived, Q::AckBurstsReceived)),
            (D::DrainedBySystemCall, share(Q::DrainedSystemCallSkbs)),
            (D::DrainedByNetRx, share(Q::DrainedNetRxSkbs)),
            (D::DrainedByTasklet, share(Q::DrainedTaskletSkbs)),
            (D::DrainedByTimer, share(Q::DrainedTimerSkbs)),
        ]
    }
}
