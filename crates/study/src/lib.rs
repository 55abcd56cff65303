//! What a study asks, what a trial found: plain data, no Linux, no privileges, no meter.
//!
//! A [`Study`] is parsed from TOML and gives [`Cell`]s, each a combination of [`Knobs`]. Running a
//! cell once makes a [`Record`], which holds [`Reading`]s: the growth of each [`Quantity`] between
//! two [`Snapshot`]s. Any program can read a records file with this crate alone.
//!
//! Start with [`Study::parse`], [`Knobs`] and [`Record`].
//!
//! ```
//! use tcpcost_study::Study;
//! let text = r#"
//!     title = "write sizes"
//!     [workload]
//!     kind = "stream"
//!     [vary]
//!     write_size = ["4KiB", "64KiB"]
//! "#;
//! let study = Study::parse("write-sizes", text, "write-sizes.toml").unwrap();
//! assert_eq!(study.cells.len(), 2);
//! assert_eq!(study.cells[1].knobs.bytes("write_size"), Some(65536));
//! ```

#![warn(missing_docs)]

mod apart;
mod capture;
mod cell;
mod chains;
mod conclusion;
mod derived;
mod knob;
mod measure;
mod meter_trials;
mod parse;
mod policy;
mod quantity;
mod quick;
mod reading;
mod record;
mod registry;
mod settings;
mod study;
pub mod units;
mod value;
mod words;

pub use apart::CoreToCore;
pub use capture::{Brackets, Capture, CaptureSettings, Opening, PublishedOpening, Sequences};
pub use cell::{Cell, MeterTrial, Shuffle};
pub use chains::{CallChain, CallChains, TaskClass, UNKNOWN};
pub use conclusion::{Change, Conclusion, Fit};
pub use derived::{Derived, DerivedKind};
pub use knob::{End, Knobs, UnknownKnob};
pub use measure::{Measure, Published, PublishedFunctions, Series, Threshold};
pub use parse::StudyError;
pub use policy::{AckKind, AckThinning, PolicySettings, TailSplit, WindowGrowth};
pub use quantity::Quantity;
pub use quick::Quick;
pub use reading::{Counts, Reading, Snapshot, Totals, WentBackwards, Whose};
pub use record::{
    EndRecord, Environment, HostEnvironment, Outcome, Record, RecordError, SCHEMA_VERSION, Warning,
    WarningCode,
};
pub use registry::{Group, KNOBS, Kind, Knob, find, knob_table};
pub use settings::{
    Cork, DeviceSettings, ReceiveWith, Segmentation, SendWith, SettingsError, WorkloadKind,
    WorkloadSettings,
};
pub use study::{BUILT_IN, Study, built_in};
pub use value::Value;
