//! Programs: what each connection of a group does, operation by operation.
//!
//! `code.rs` makes instructions of the operations, for either side; `program_turn.rs` executes them. `stream`, `rr` and `crr` are not
//! made of them: their loops have less to do for each byte.

mod calls;
mod code;
mod kinds;
mod running;
mod sleepers;

pub(crate) use calls::Calls;
pub(crate) use code::{Code, Instruction, Timed};
pub(crate) use kinds::as_program;
pub(crate) use running::{Running, draw};
pub(crate) use sleepers::Sleepers;
