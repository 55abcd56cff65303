//! JSON form of an estimate with its unit.

use serde::Serialize;

use crate::derive::estimate::Estimate;

#[derive(Serialize)]
pub(super) struct EstimateJson {
    #[serde(flatten)]
    pub(super) estimate: Estimate,
    pub(super) unit: &'static str,
}
