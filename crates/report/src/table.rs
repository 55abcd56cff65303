//! A table of text: columns as wide as their widest cell.

/// Columns to stay within where the content allows.
pub(crate) const WIDTH: usize = 100;

/// Rows of cells under a header.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// What stands where there is no number.
pub(crate) const ABSENT: &str = "–";

impl Table {
    pub(crate) fn new(header: &[&str]) -> Table {
        Table {
            header: header.iter().map(|title| (*title).to_string()).collect(),
            rows: Vec::new(),
        }
    }

    /// A line of its own among the rows.
    pub(crate) fn heading(&mut self, text: &str) {
        let mut row = vec![String::new(); self.header.len()];
        row[0] = text.to_string();
        self.rows.push(row);
    }

    /// A row as long as the header.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines: first column to the left, others to the right; columns without any number left
    /// out; marks (a column without a title) close to the left of them. `header` styles the header's line.
    pub(crate) fn lines(&self, header: impl Fn(&str) -> String) -> Vec<String> {
        let kept: Vec<usize> = (0..self.header.len())
            .filter(|&column| {
                column == 0
                    || self
                        .rows
                        .iter()
                        .any(|row| !row[column].is_empty() && row[column] != ABSENT)
            })
            .collect();
        let widths: Vec<usize> = kept
            .iter()
            .map(|&column| {
                std::iter::once(&self.header)
                    .chain(self.rows.iter().filter(|row| !is_heading(row)))
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |row: &Vec<String>| {
            if is_heading(row) {
                return row[0].clone();
            }
            let mut line = String::new();
            for (&column, &width) in kept.iter().zip(&widths) {
                if column == 0 {
                    line += &format!("{:<width$}", row[column]);
                } else {
                    let gap = if self.header[column].is_empty() {
                        " "
                    } else {
                        "  "
                    };
                    line += &format!("{gap}{:>width$}", row[column]);
                }
            }
            line.trim_end().to_string()
        };
        std::iter::once(header(&line(&self.header)))
            .chain(self.rows.iter().map(line))
            .collect()
    }
}

/// Nothing but the first column: it widens none.
fn is_heading(row: &[String]) -> bool {
    row[1..].iter().all(String::is_empty)
}

/// Words in lines of at most `width` characters, later lines indented; a longer word stands alone.
pub(crate) fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        let empty = line.trim().is_empty();
        if !empty && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
