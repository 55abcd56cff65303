//! The same figures on a terminal, with history. [`state`] is what keys and samples do, [`draw`] what
//! it looks like, [`terminal`] where it is drawn and keys come from.

pub mod draw;
pub mod state;
pub mod terminal;
