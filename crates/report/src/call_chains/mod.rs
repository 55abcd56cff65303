//! Profiles as they are shown: tables, flame graphs, the page's part.

pub(crate) mod flame;
pub(crate) mod page;
pub(crate) mod table;
