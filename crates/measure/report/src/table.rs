//! A text table whose columns are as wide as their widest cell.

/// Width that a table should not exceed.
pub(crate) const WIDTH: usize = 100;

/// Rows of cells under a header.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Text of a missing number.
pub(crate) const ABSENT: &str = "–";

impl Table {
    pub(crate) fn new(header: &[&str]) -> Table {
        Table {
            header: header.iter().map(|title| (*title).to_string()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a line with only a heading among the rows.
    pub(crate) fn heading(&mut self, text: &str) {
        let mut row = vec![String::new(); self.header.len()];
        row[0] = text.to_string();
        self.rows.push(row);
    }

    /// Adds a row, which must be as long as the header.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Lines of the table. The first column is left-aligned, the others right-aligned. Columns without any
    /// number are omitted. Marks (a column without a title) follow the column on their left without a gap. If
    /// the table is wider than `width`, each name gets its own line, and columns that still do not fit go
    /// into further tables below. `header` styles a header's line.
    pub(crate) fn lines(&self, width: usize, header: impl Fn(&str) -> String) -> Vec<String> {
        let kept: Vec<usize> = (1..self.header.len())
            .filter(|&column| {
                self.rows
                    .iter()
                    .any(|row| !row[column].is_empty() && row[column] != ABSENT)
            })
            .collect();
        let names = self.width_of(0);
        let whole: usize = kept.iter().map(|&column| self.room(column)).sum();
        if names + whole <= width {
            return self.block(&kept, Some(names), &header);
        }
        let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
        let mut used = 0;
        for &column in &kept {
            let room = self.room(column);
            if used + room > width && used > 0 {
                blocks.push(Vec::new());
                used = 0;
            }
            used += room;
            blocks.last_mut().expect("one block at least").push(column);
        }
        let of_block = |columns: &Vec<usize>| self.block(columns, None, &header);
        blocks.iter().flat_map(of_block).collect()
    }

    /// Table of the given columns. The names come before them in `names` characters, or on separate lines.
    fn block(
        &self,
        columns: &[usize],
        names: Option<usize>,
        header: &impl Fn(&str) -> String,
    ) -> Vec<String> {
        let numbers = |row: &[String]| {
            let mut line = String::new();
            for &column in columns {
                let width = self.width_of(column);
                line += &format!("{}{:>width$}", self.gap(column), row[column]);
            }
            line
        };
        let mut lines = Vec::new();
        for (row, is_header) in
            std::iter::once((&self.header, true)).chain(self.rows.iter().map(|row| (row, false)))
        {
            let text = match names {
                _ if !is_header && is_heading(row) => row[0].clone(),
                Some(width) => format!("{:<width$}{}", row[0], numbers(row)),
                None => format!("{}\n{}", row[0], numbers(row)),
            };
            for line in text.split('\n').map(str::trim_end) {
                lines.push(if is_header {
                    header(line)
                } else {
                    line.to_string()
                });
            }
        }
        lines
    }

    fn gap(&self, column: usize) -> &'static str {
        match self.header[column].is_empty() {
            true => " ",
            false => "  ",
        }
    }

    /// Characters that a column and the gap before it take.
    fn room(&self, column: usize) -> usize {
        self.gap(column).len() + self.width_of(column)
    }

    fn width_of(&self, column: usize) -> usize {
        std::iter::once(&self.header)
            .chain(self.rows.iter().filter(|row| !is_heading(row)))
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    }
}

/// True if only the first column has text. Such a row widens no column.
fn is_heading(row: &[String]) -> bool {
    row[1..].iter().all(String::is_empty)
}

/// Wraps words into lines of at most `width` characters and indents later lines. A longer word gets its own
/// line.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(width: usize) -> Vec<String> {
        let mut table = Table::new(&["cell", "one", "", "two", "none"]);
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_string()).collect();
        table.row(row(&["a long name", "1.00", "!", "10", ABSENT]));
        table.row(row(&["b", "22.00", "", "3", ABSENT]));
        table.lines(width, str::to_string)
    }

    #[test]
    fn what_is_too_wide_has_its_names_on_lines_of_their_own_and_then_folds() {
        let whole = [
            "cell           one    two",
            "a long name   1.00 !   10",
            "b            22.00      3",
        ];
        assert_eq!(folded(25), whole);
        assert_eq!(
            folded(24),
            [
                "cell",
                "    one    two",
                "a long name",
                "   1.00 !   10",
                "b",
                "  22.00      3"
            ]
        );
        assert_eq!(
            folded(10),
            [
                "cell",
                "    one",
                "a long name",
                "   1.00 !",
                "b",
                "  22.00",
                "cell",
                "  two",
                "a long name",
                "   10",
                "b",
                "    3"
            ]
        );
    }
}
