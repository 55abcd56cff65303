//! JSON form of the hosts of a study that names them.

use serde::Serialize;
use tcpcost_study::{HostName, MeterName};

use super::estimate::EstimateJson;
use crate::derive::host_rows::HostRow;

#[derive(Serialize)]
pub(super) struct HostJson {
    host: HostName,
    meter: Option<MeterName>,
    quantity: Option<&'static str>,
    cpu: Option<EstimateJson>,
    segments_sent_per_s: Option<f64>,
    pure_acks_sent_per_s: Option<f64>,
    clock_ahead_us: Option<f64>,
    clock_error_us: Option<f64>,
    late_us: Option<f64>,
}

pub(super) fn host(of: &HostRow) -> HostJson {
    HostJson {
        host: of.host,
        meter: of.tier.meter(),
        quantity: of.cost.map(|(figure, _)| figure.name()),
        cpu: of.cost.map(|(figure, estimate)| EstimateJson {
            estimate,
            unit: figure.unit(),
        }),
        segments_sent_per_s: of.segments_per_s,
        pure_acks_sent_per_s: of.acks_per_s,
        clock_ahead_us: of.clock_us.map(|(offset, _)| offset),
        clock_error_us: of.clock_us.map(|(_, error)| error),
        late_us: of.late_us,
    }
}
