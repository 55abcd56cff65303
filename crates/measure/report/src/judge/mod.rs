//! Judgements on numbers: contrasts, effects, conclusions, thresholds, stored runs.

pub(crate) mod comparable;
pub(crate) mod comparison;
pub(crate) mod conclusions;
pub(crate) mod contrasts;
pub(crate) mod copy_path;
pub(crate) mod decision;
pub(crate) mod differences;
pub(crate) mod distance;
pub(crate) mod effects;
pub(crate) mod held;
pub(crate) mod meter_cost;
pub(crate) mod pairing;
pub(crate) mod reason;
pub(crate) mod regime;
pub(crate) mod second_clock;
pub(crate) mod sign;
pub(crate) mod statements;
pub(crate) mod stored;
pub(crate) mod thresholds;
