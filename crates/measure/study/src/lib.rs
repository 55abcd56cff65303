//! Studies and records as plain data: what a study asks and what a trial found. No Linux, no
//! privileges, no meter.
//!
//! A [`Study`] is parsed from TOML and gives [`Cell`]s, each a combination of [`Knobs`]. One run
//! of a cell makes a [`Record`] with [`Reading`]s: the growth of each [`Quantity`] between two
//! [`Snapshot`]s. Any program can read a records file with this crate alone.
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

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod capture;
mod cell;
mod conclusion;
mod cpu_distance;
mod derived;
#[cfg(test)]
mod flow_group_tests;
mod incomplete;
mod measure;
mod meter_trials;
mod parse;
#[cfg(test)]
mod program_tests;
mod published;
mod published_table;
mod quick;
mod raw;
mod record;
mod series;
mod statement;
mod study;
mod topology;
mod uperf;

pub use capture::{Brackets, Capture, CaptureSettings, PublishedOpening};
pub use cell::{Cell, MeterTrial, Shuffle};
pub use conclusion::{Change, Conclusion, Fit};
pub use cpu_distance::{DistantCpus, NearAndFar};
pub use derived::{Derived, DerivedError, Scope};
pub use measure::{
    CONTRAST_TIME, FixedWork, FunctionRatio, Measure, Published, PublishedFunctions, Series,
    Threshold, ThresholdOf,
};
pub use parse::{StudyError, set_knob};
pub use published_table::PublishedTable;
pub use quick::Quick;
pub use record::{
    BufferSizes, BuffersFound, ClockOffset, ClockOffsets, CpuDistance, CpuId, HostRecord,
    OperationRecord, Outcome, Record, RecordError, SCHEMA_VERSION, Warning, WarningCode,
};
pub use series::{ConnectionSeries, SeriesSample};
pub use statement::Statement;
pub use study::{CellPair, DifferentHosts, MetersError, Sides, SidesError, Study};
/// Types that records contain, from the crate that defines them: to read a records file this crate
/// suffices.
pub use tcpcost_counts::{
    ByConnection, CallChain, CallChains, CountOwner, Counts, Environment, Figure, FigureOf, Keyed,
    Machine, MeterName, Nic, Opening, Quantity, Reading, Sequences, Shared, Snapshot, Spread,
    TaskClass, Totals, UNKNOWN, WentBackwards,
};
/// Knobs that studies set, from the crate that defines them.
pub use tcpcost_knobs::{
    AckFilterRule, AckKind, AckPolicyRow, AppliesTo, Bed, Carrier, CarrierAsked, CheckedEnds,
    CloseBy, Cork, DeviceName, DeviceOwner, DeviceSettings, Expects, FileTable, FlowGroup,
    HostName, HostNameError, KNOBS, KernelNameError, KernelSupport, Knob, KnobCondition, KnobError,
    Knobs, MessageSize, Need, Needs, Operation, Pattern, PauseAt, Program, ProgramError, Reach,
    ReachError, ReceiveWith, RelayMode, Required, Segmentation, SendWith, Share, ShareError, Side,
    SysctlName, TailSplit, Times, Traffic, Unmet, UserKnob, UserSupport, Value, ValueKind, WaitsBy,
    WindowGrowth, WireSettings, WorkloadKind, WorkloadSettings, ack_policy_table, find, knob_table,
    nearest, repetitions, round, rounds, units,
};
pub use topology::{Host, Link, LinkKind, Port, Route, StackKind, Topology};
pub use uperf::{
    ConvertedProfile, UperfFlowop, UperfGroup, UperfHandling, UperfKind, UperfOptions,
    UperfProfile, UperfRow, UperfSurroundings, UperfTransaction, UperfValue, convert_uperf_profile,
    is_uperf_profile, read_uperf_profile, uperf_table, uperf_time,
};
