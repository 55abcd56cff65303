//! What lines and screen show of a figure, and which figure where several tell the same by better or lesser meters.

use tcpcost_counts::{Figure, MeterName, Source};

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its head.
    pub head: &'static str,
    /// What people read: the value times this.
    pub scale: f64,
    /// Digits after the point.
    pub decimals: usize,
    /// What it shows: the first whose meters are there.
    pub figures: &'static [Figure],
}

impl Column {
    /// The value of what is shown, where it can be had.
    pub fn value(&self, from: &dyn Source, has: impl Fn(MeterName) -> bool) -> Option<f64> {
        let is_there = |figure: &&Figure| figure.meters().into_iter().all(&has);
        self.figures.iter().find(is_there)?.value(from)
    }

    /// A value for people: `-` where it is absent.
    pub fn text(&self, value: Option<f64>) -> String {
        value.map_or_else(
            || "-".to_string(),
            |value| format!("{:.*}", self.decimals, value * self.scale),
        )
    }
}

/// A row of a table of columns.
pub const fn column(
    head: &'static str,
    scale: f64,
    decimals: usize,
    figures: &'static [Figure],
) -> Column {
    Column {
        head,
        scale,
        decimals,
        figures,
    }
}
