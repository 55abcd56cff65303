//! Sentences and labels about numbers and judgements.

pub(crate) mod by_host;
pub(crate) mod common_words;
pub(crate) mod comparisons;
pub(crate) mod copied;
pub(crate) mod crossovers;
pub(crate) mod effects;
pub(crate) mod findings;
pub(crate) mod fleets;
pub(crate) mod labels;
pub(crate) mod layers;
pub(crate) mod only_cell;
pub(crate) mod trust;
