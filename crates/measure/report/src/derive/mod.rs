//! Numbers from records: figures of trials, estimates of cells.

pub(crate) mod cell;
pub(crate) mod contrast;
pub(crate) mod cpu_ownership;
pub(crate) mod cpu_time;
pub(crate) mod estimate;
pub(crate) mod facts;
pub(crate) mod fleet;
pub(crate) mod host_rows;
pub(crate) mod levels;
pub(crate) mod machines;
pub(crate) mod netperf;
pub(crate) mod number;
pub(crate) mod opening;
pub(crate) mod operations;
pub(crate) mod priced;
pub(crate) mod profile;
pub(crate) mod response;
pub(crate) mod scope;
pub(crate) mod student;
pub(crate) mod values;
pub(crate) mod warned;
