//! Presentation of profiles: tables, flame graphs, the page's section.

pub(crate) mod flame;
pub(crate) mod page;
pub(crate) mod table;
