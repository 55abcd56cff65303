//! Forms of a report: text, HTML, Markdown, JSON, CSV and exports for other programs.

pub(crate) mod csv;
pub(crate) mod export;
pub(crate) mod flame;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod markdown;
pub(crate) mod page_policy;
pub(crate) mod text;
