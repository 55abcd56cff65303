//! CPU time of cells by cause, as a price list gives it.

use std::collections::BTreeMap;

use tcpcost_study::{HostName, Record};

/// CPU time of a host by cause, as pairs of a cause's name and µs per unit of work (KiB of payload or transaction); NaN if the
/// prices do not hold for so many.
pub type PricedCosts = BTreeMap<HostName, Vec<(&'static str, f64)>>;

/// Prices the records of one cell. Empty if there are no prices of the machine.
pub type Prices<'a> = dyn Fn(&[&Record]) -> PricedCosts + 'a;
