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

mod ack_policies;
mod capture;
mod cell;
mod choices;
mod conclusion;
mod cpu_distance;
mod derived;
mod flow_group;
mod host_name;
mod host_reach;
mod incomplete;
mod kernel_name;
mod knob;
mod knobs;
mod measure;
mod meter_trials;
mod nearest;
mod needs;
mod parse;
mod pattern;
mod program;
mod published;
mod published_table;
mod quick;
mod raw;
mod reach;
mod record;
mod rounds;
mod row;
mod series;
mod settings;
mod share;
mod side;
mod statement;
mod study;
mod synonyms;
mod tables;
mod topology;
mod traffic;
pub mod units;
mod uperf;
mod value;
mod wire;
mod words;

pub use ack_policies::{AckKind, AckPolicyRow};
pub use capture::{Brackets, Capture, CaptureSettings, PublishedOpening};
pub use cell::{Cell, MeterTrial, Shuffle};
pub use choices::{
    Carrier, Cork, Expects, ReceiveWith, RelayMode, Segmentation, SendWith, TailSplit, WaitsBy,
    WindowGrowth, WorkloadKind,
};
pub use conclusion::{Change, Conclusion, Fit};
pub use cpu_distance::{Distant, NearAndFar};
pub use derived::{Derived, Scope};
pub use flow_group::FlowGroup;
pub use host_name::{HostName, HostNameError};
pub use host_reach::{Reach, ReachError};
pub use kernel_name::{DeviceName, KernelNameError, SysctlName};
pub use knob::{Knobs, UnknownKnob};
pub use knobs::{KNOBS, find};
pub use measure::{
    CONTRAST_TIME, FixedWork, Measure, Published, PublishedFunctions, Series, Threshold,
    ThresholdOf,
};
pub use nearest::nearest;
pub use needs::Needs;
pub use parse::StudyError;
pub use pattern::Pattern;
pub use program::{CloseBy, MessageSize, Operation, PauseAt, Program, Times};
pub use published_table::PublishedTable;
pub use quick::Quick;
pub use reach::{Unavailable, Unmet};
pub use record::{
    BufferSizes, BuffersFound, ClockOffset, ClockOffsets, CpuDistance, CpuId, Environment,
    HostRecord, Machine, Nic, OperationRecord, Outcome, Record, RecordError, SCHEMA_VERSION,
    Warning, WarningCode,
};
pub use rounds::{repetitions, round, rounds};
pub use row::{At, Group, Is, Kernel, Kind, Knob, Need, Of, Term, User, UserKnob};
pub use series::{ConnectionSeries, Look};
pub use settings::{AckFilterRule, DeviceSettings, SettingsError, WorkloadSettings};
pub use share::{Share, ShareError};
pub use side::Side;
pub use statement::Statement;
pub use study::{CellPair, Sides, Study};
pub use tables::{ack_policy_table, knob_table, tcp_table};
/// Types that records contain, from the crate that defines them: to read a records file this crate
/// suffices.
pub use tcpcost_counts::{
    ByConnection, CallChain, CallChains, Counts, Figure, FigureOf, MeterName, Opening, Quantity,
    Reading, Sequences, Snapshot, Spread, TaskClass, Totals, UNKNOWN, WentBackwards, Whose,
};
pub use topology::{Bed, DeviceOwner, Host, Link, LinkKind, Port, Route, StackKind, Topology};
pub use traffic::Traffic;
pub use uperf::{
    ConvertedProfile, UperfHandling, UperfRow, UperfSurroundings, convert_uperf_profile,
    is_uperf_profile, uperf_table,
};
pub use value::Value;
pub use wire::{CarrierAsked, WireSettings};
