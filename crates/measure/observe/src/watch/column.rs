//! A column of lines and screen: how it shows a figure, and which figure if several meters offer one.

use tcpcost_counts::{Figure, MeterName, Source};

#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Head of the column.
    pub head: &'static str,
    /// Factor from the figure's base unit to the unit that is shown.
    pub scale: f64,
    /// Digits after the decimal point.
    pub decimals: usize,
    /// Figures in order of preference: the first whose meters are available is shown.
    pub figures: &'static [Figure],
}

impl Column {
    /// Value of the figure that is shown. `None` if it is unknown.
    pub fn value(&self, from: &dyn Source, has: impl Fn(MeterName) -> bool) -> Option<f64> {
        let is_there = |figure: &&Figure| figure.meters().into_iter().all(&has);
        self.figures.iter().find(is_there)?.value(from)
    }

    /// Text of a value, `-` if it is `None`.
    pub fn text(&self, value: Option<f64>) -> String {
        value.map_or_else(
            || "-".to_string(),
            |value| format!("{:.*}", self.decimals, value * self.scale),
        )
    }
}

/// Makes a row of a table of columns.
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
