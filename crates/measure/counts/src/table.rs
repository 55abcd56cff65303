//! Text for a terminal: tables whose columns are as wide as their widest cell, and wrapped lines.

/// Width that a table or a line should not exceed, columns. It fits a terminal next to another
/// window, or a mail.
pub const WIDTH: usize = 100;

/// Text of a missing number.
pub const ABSENT: &str = "–";

/// Side of a column at which its cells begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Rows of cells under a header.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<String>,
    aligns: Vec<Align>,
    gap: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Table of a left-aligned column of names, and right-aligned columns of numbers.
    pub fn new(header: &[&str]) -> Table {
        let mut align = Align::Left;
        let columns = header
            .iter()
            .map(|title| (*title, std::mem::replace(&mut align, Align::Right)));
        Table::aligned(&columns.collect::<Vec<_>>())
    }

    /// Table of columns with these titles and sides. No header line is printed if all titles are
    /// empty.
    pub fn aligned(columns: &[(&str, Align)]) -> Table {
        Table {
            header: columns
                .iter()
                .map(|(title, _)| (*title).to_string())
                .collect(),
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            gap: 2,
            rows: Vec::new(),
        }
    }

    /// Sets the number of spaces between two columns. The default is two.
    pub fn with_gap(self, gap: usize) -> Table {
        Table { gap, ..self }
    }

    /// Adds a line with only a heading among the rows.
    pub fn heading(&mut self, text: &str) {
        let mut row = vec![String::new(); self.header.len()];
        row[0] = text.to_string();
        self.rows.push(row);
    }

    /// Adds a row, which must be as long as the header.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    /// True if the table has neither rows nor headings.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Text of the table within `width` columns, each line indented by `indent` spaces. See
    /// [`Table::lines`].
    pub fn text(&self, indent: usize, width: usize) -> String {
        let lines = self.lines(width.saturating_sub(indent), str::to_string);
        let line = |line: &String| format!("{:indent$}{line}", "").trim_end().to_string() + "\n";
        lines.iter().map(line).collect()
    }

    /// Lines of the table. Columns without any value are omitted. Marks (a column without a title) follow the
    /// column on their left after one space. If the table is wider than `width`, each name gets its own line,
    /// and columns that still do not fit go into further tables below. `header` styles a header's line.
    pub fn lines(&self, width: usize, header: impl Fn(&str) -> String) -> Vec<String> {
        let kept: Vec<usize> = (1..self.header.len())
            .filter(|&column| {
                let has_value =
                    |row: &Vec<String>| !row[column].is_empty() && row[column] != ABSENT;
                self.rows.is_empty() || self.rows.iter().any(has_value)
            })
            .collect();
        let whole: usize = kept.iter().map(|&column| self.room(column)).sum();
        if self.width_of(0) + whole <= width {
            return self.block(&kept, Names::Before, &header);
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
        let of_block = |columns: &Vec<usize>| self.block(columns, Names::Above, &header);
        blocks.iter().flat_map(of_block).collect()
    }

    /// Table of the given columns. The names come before them, or on separate lines.
    fn block(
        &self,
        columns: &[usize],
        names: Names,
        header: &impl Fn(&str) -> String,
    ) -> Vec<String> {
        let numbers = |row: &[String]| {
            let mut line = String::new();
            for &column in columns {
                line += &" ".repeat(self.gap(column));
                line += &self.cell(column, &row[column]);
            }
            line
        };
        let mut lines = Vec::new();
        let titles = Some((&self.header, true)).filter(|_| self.has_titles());
        for (row, is_header) in titles
            .into_iter()
            .chain(self.rows.iter().map(|row| (row, false)))
        {
            let text = match names {
                _ if !is_header && is_heading(row) => row[0].clone(),
                Names::Before => self.cell(0, &row[0]) + &numbers(row),
                Names::Above => format!("{}\n{}", row[0], numbers(row)),
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

    /// Text of a cell, as wide as its column.
    fn cell(&self, column: usize, text: &str) -> String {
        let width = self.width_of(column);
        match self.aligns[column] {
            Align::Left => format!("{text:<width$}"),
            Align::Right => format!("{text:>width$}"),
        }
    }

    fn has_titles(&self) -> bool {
        !self.header.iter().all(String::is_empty)
    }

    /// Spaces before a column.
    fn gap(&self, column: usize) -> usize {
        let is_mark = self.header[column].is_empty() && self.has_titles();
        if is_mark { 1 } else { self.gap }
    }

    /// Characters that a column and the gap before it take.
    fn room(&self, column: usize) -> usize {
        self.gap(column) + self.width_of(column)
    }

    fn width_of(&self, column: usize) -> usize {
        std::iter::once(&self.header)
            .chain(self.rows.iter().filter(|row| !is_heading(row)))
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    }
}

/// Place of the first column.
#[derive(Clone, Copy)]
enum Names {
    /// In the line of the other columns.
    Before,
    /// On lines of their own.
    Above,
}

/// True if only the first column has text. Such a row widens no column.
fn is_heading(row: &[String]) -> bool {
    row[1..].iter().all(String::is_empty)
}

/// Wraps words into lines of at most `width` characters and indents later lines. A longer word gets its own
/// line.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    wrap_after("", text, width, indent)
}

/// Wraps words as [`wrap`] does, after `first`.
pub fn wrap_after(first: &str, text: &str, width: usize, indent: &str) -> String {
    let mut out = first.to_string();
    let mut column = first.chars().count();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if is_begun && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = indent.chars().count();
        } else if is_begun {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        is_begun = true;
    }
    out
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

    #[test]
    fn words_are_left_aligned_and_a_table_without_titles_has_no_header() {
        use Align::{Left, Right};
        let mut table = Table::aligned(&[("ms", Right), ("frame", Left), ("who", Left)]);
        table.row(["1.5", "12", "A"].map(String::from).to_vec());
        table.row(["10.25", "7", "B sent"].map(String::from).to_vec());
        table.heading("2 more");
        assert_eq!(
            table.text(2, WIDTH),
            "     ms  frame  who\n    1.5  12     A\n  10.25  7      B sent\n  2 more\n"
        );
        let mut table = Table::aligned(&[("", Right), ("", Right)]);
        table.row(["1", "2"].map(String::from).to_vec());
        assert_eq!(table.text(0, WIDTH), "1  2\n");
    }

    #[test]
    fn a_line_breaks_between_words_before_column_101() {
        let words = "abcdefghi ".repeat(20);
        let text = wrap_after("  1. ", &words, WIDTH, "     ");
        let lines: Vec<&str> = text.lines().collect();
        // Nine words of nine letters and the spaces between them fill 89 of 95 columns.
        assert_eq!(lines[0].len(), 94);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("     abc"), "{text}");
        let text = wrap(&format!("a {} b", "x".repeat(120)), WIDTH, "  ");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
