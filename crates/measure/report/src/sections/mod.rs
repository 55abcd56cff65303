//! Parts of a report, each made once for all its forms.

pub(crate) mod acks;
pub(crate) mod charts;
pub(crate) mod host_table;
pub(crate) mod profiles;
pub(crate) mod published_chart;
pub(crate) mod series_chart;
