//! A column of lines and screen: how it shows a figure, and which figure if several meters offer one.

use tcpcost_counts::{Figure, MeterName, Source};

#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Digits after the decimal point.
    pub decimals: usize,
    /// Figures in order of preference: the first whose meters are available is shown. The first one has the
    /// column's heading.
    pub figures: &'static [Figure],
}

impl Column {
    /// Heading of the column.
    pub fn heading(&self) -> &'static str {
        self.figures[0].heading()
    }

    /// Value of the figure that is shown. `None` if it is unknown.
    pub fn value(&self, from: &dyn Source, has: impl Fn(MeterName) -> bool) -> Option<f64> {
        let is_there = |figure: &&Figure| figure.meters().into_iter().all(&has);
        self.figures.iter().find(is_there)?.value(from)
    }

    /// Text of a value, `-` if it is `None`.
    pub fn text(&self, value: Option<f64>) -> String {
        value.map_or_else(
            || "-".to_string(),
            |value| {
                format!(
                    "{:.*}",
                    self.decimals,
                    value * self.figures[0].shown_unit().1
                )
            },
        )
    }
}

/// Makes a row of a table of columns.
pub const fn column(decimals: usize, figures: &'static [Figure]) -> Column {
    Column { decimals, figures }
}
