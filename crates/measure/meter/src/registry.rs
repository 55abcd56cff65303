//! Table of the meters of a whole host or namespace, with the function that opens each.
//!
//! Not in the table: `rusage` and `tcp_info`, which each worker reads for itself, and `others`, `soak` and
//! `profile`, which need more than two snapshots and have their own modules.

use tcpcost_counts::MeterName;

use crate::netstat::Netstat;
use crate::perf::Perf;
use crate::proc::Proc;
use crate::tsc::Tsc;
use crate::{Meter, MeterError, Scope, bpf};

type Opened = Result<Box<dyn Meter + Send>, MeterError>;

/// Function that opens a meter. It fails with [`MeterError::Unavailable`] if the meter is unavailable here.
pub type Open = fn(&Scope) -> Opened;

const ROWS: &[(MeterName, Open)] = &[
    (MeterName::Proc, |scope| {
        Ok(Box::new(Proc::new(&scope.cpus)))
    }),
    (MeterName::Netstat, |_| Ok(Box::new(Netstat::default()))),
    (MeterName::Tsc, |_| Ok(Box::new(Tsc))),
    (MeterName::Perf, |scope| {
        Ok(Box::new(Perf::open(&scope.cpus)?))
    }),
    (MeterName::Exact, |scope| {
        Ok(bpf::load(MeterName::Exact, scope)?)
    }),
    (MeterName::Segments, |scope| {
        Ok(bpf::load(MeterName::Segments, scope)?)
    }),
];

/// Function that opens a meter on the thread that will read it. `None` if the meter has no row here.
pub fn opener(name: MeterName) -> Option<Open> {
    let (_, open) = ROWS.iter().find(|(row, _)| *row == name)?;
    Some(*open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_nothing_opens_under_its_own_name() {
        for &(name, open) in ROWS {
            match open(&Scope::default()) {
                Ok(meter) => assert_eq!(meter.name(), name),
                Err(error) => assert!(error.needs().is_some(), "{error}"),
            }
        }
        assert!(opener(MeterName::Rusage).is_none());
    }
}
