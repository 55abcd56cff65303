//! What the captures of a study's own trials tell: readings of the meter `trace`.

use tcpcost_study::{DerivedKind, End, Quantity, Whose};

use super::{Kinds, Trial, ratio};

impl Trial<'_> {
    /// Each end at its own device.
    pub(super) fn captured(&self, scope: Option<End>) -> Kinds {
        use DerivedKind as D;
        use Quantity as Q;
        let of = |quantity| self.sum(scope, "trace", &Whose::Connections, quantity);
        let per = |above: Q, below: Q| ratio(of(above)?, of(below)?);
        let flows = self.record.knobs.count("flows").unwrap_or(1) as f64;
        let readings = self.ends(scope).flat_map(|end| &end.readings);
        let interval_ns = readings
            .filter(|reading| reading.meter == "trace")
            .map(|reading| reading.duration_ns)
            .max();
        let stalled = || ratio(of(Q::DelayedAckStallNs)?, interval_ns? as f64 * flows);
        vec![
            (
                D::CapturedSegmentsPerAck,
                per(Q::DataWireSegmentsSent, Q::PureAcksReceived),
            ),
            (
                D::CapturedDataBurst,
                per(Q::DataWireSegmentsSent, Q::DataBurstsSent),
            ),
            (
                D::CapturedAckBurst,
                per(Q::PureAcksReceived, Q::AckBurstsReceived),
            ),
            (D::CapturedTailRatio, per(Q::TailSkbsSent, Q::DataSkbsSent)),
            (D::CapturedStallRatio, stalled()),
        ]
    }
}
