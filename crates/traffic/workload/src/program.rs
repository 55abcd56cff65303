//! Programs: the operations of each connection of a group.
//!
//! `code.rs` converts the operations to instructions, for either side; `step.rs` executes one, in a
//! turn of a worker (`program_turn.rs`) or on a thread (`blocking/thread.rs`). `stream`, `rr` and `crr` are not programs here: their loops do less work for each byte.

mod calls;
mod code;
mod kinds;
mod running;
mod sleepers;
mod step;

pub(crate) use calls::Calls;
pub(crate) use code::{Code, Instruction, Timed};
pub(crate) use kinds::as_program;
pub(crate) use running::{Running, draw};
pub(crate) use sleepers::Sleepers;
pub(crate) use step::{Executor, Step};
