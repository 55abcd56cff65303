//! Knobs as plain data: a row for each, its values and units, what it needs, and which TCP supports
//! it. No file format, no Linux, no privileges.
//!
//! [`KNOBS`] is the table. [`Knobs`] are the values that are set for the hosts of a trial, and
//! [`WorkloadSettings`], [`DeviceSettings`] and [`WireSettings`] are what they mean at one host.
//!
//! ```
//! use tcpcost_knobs::Knobs;
//! let mut knobs = Knobs::default();
//! knobs.set("write_size", "64KiB").unwrap();
//! assert_eq!(knobs.bytes("write_size"), Some(65536));
//! assert!(knobs.set("write_sise", "64KiB").is_err());
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod ack_policies;
mod bed;
mod choices;
mod flow_group;
mod host_name;
mod host_reach;
mod kernel_name;
mod knob;
mod knob_error;
mod knobs;
mod nearest;
mod needs;
mod pattern;
mod program;
mod raw;
mod reach;
mod relay_mode;
mod rounds;
mod row;
mod settings;
mod share;
mod side;
mod synonyms;
mod tables;
mod traffic;
pub mod units;
mod value;
mod wire;
mod words;

pub use ack_policies::{AckKind, AckPolicyRow};
pub use bed::Bed;
pub use choices::{
    Carrier, Cork, Expects, FileSpread, ReceiveWith, Segmentation, SendWith, TailSplit, WaitsBy,
    WindowGrowth, WorkloadKind,
};
pub use flow_group::{FlowGroup, group_of};
pub use host_name::{HostName, HostNameError};
pub use host_reach::{Reach, ReachError};
pub use kernel_name::{DeviceName, KernelNameError, SysctlName};
pub use knob::{Knobs, find_full, instead, new_name, split_host};
pub use knob_error::KnobError;
pub use knobs::{KNOBS, find};
pub use nearest::nearest;
pub use needs::Needs;
pub use pattern::{Arranged, Pattern};
pub use program::{CloseBy, MessageSize, Operation, PauseAt, Program, ProgramError, Times};
pub use raw::Raw;
pub use reach::{DeviceOwner, Unmet};
pub use relay_mode::{RelayMode, RelayModeError, RelayModeRow, RelayNeeds};
pub use rounds::{repetitions, round, rounds};
pub use row::{
    AppliesTo, CheckedEnds, FileTable, KernelSupport, Knob, KnobCondition, Need, Required,
    UserKnob, UserSupport, ValueKind,
};
pub use settings::{AckFilterRule, DeviceSettings, WorkloadSettings};
pub use share::{Share, ShareError};
pub use side::Side;
pub use tables::{ack_policy_table, knob_table};
pub use traffic::Traffic;
pub use value::Value;
pub use wire::{CarrierAsked, WireSettings};
