//! Results of counting: plain data, without Linux, privileges, meters, and studies.
//!
//! A [`Quantity`] is a count with one definition. A meter reports totals as a [`Snapshot`]; a
//! [`Reading`] is the growth between two snapshots, [`Growth`] that of all meters of a host. A [`Figure`]
//! is a quotient of counts.
//!
//! Start with [`Quantity`], [`Snapshot`] and [`Figure`].
//!
//! ```
//! use tcpcost_counts::{Counts, MeterName, Quantity, Snapshot, Totals, CountOwner};
//! let at = |at_ns, bytes| {
//!     let counts = Counts::from([(Quantity::PayloadBytesSent, bytes)]);
//!     let totals = vec![Totals { whose: CountOwner::Workload, counts }];
//!     Snapshot { meter: MeterName::Workload, at_ns, totals }
//! };
//! let grown = at(1_000, 500).since(&at(0, 200)).unwrap();
//! assert_eq!(grown[0].counts[&Quantity::PayloadBytesSent], 300);
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod by_connection;
mod chains;
mod figure;
mod growth;
mod guard;
mod keyed;
mod machine;
mod meter_name;
mod opening;
mod printable;
mod quantity;
mod reading;
mod shared;
mod source;
pub mod table;

pub use by_connection::{ByConnection, Spread};
pub use chains::{CallChain, CallChains, TaskClass, UNKNOWN};
pub use figure::{Figure, FigureOf, figure_table};
pub use growth::{Growth, readings_between};
pub use guard::{Guard, TextForm};
pub use keyed::Keyed;
pub use machine::{Environment, Machine, Nic};
pub use meter_name::{MeterMechanism, MeterName, MeterSelection, MeterSubject};
pub use opening::{Opening, Sequences};
pub use printable::{
    Printable, csv_field, escaped_json, is_unprintable, printable, printable_json, printable_text,
};
pub use quantity::Quantity;
pub use reading::{CountOwner, Counts, Reading, Snapshot, Totals, WentBackwards};
pub use shared::Shared;
pub use source::{SocketBuffer, Source, exact_cost_ns, self_cpu_ns};
