//! Figures on a terminal, with history. [`state`] handles keys and samples, [`draw`] draws, [`terminal`]
//! connects to the terminal.

pub mod draw;
pub mod state;
pub mod terminal;
