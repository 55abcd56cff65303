//! Tables as text, with columns as wide as their widest cell.

use super::Style;
use crate::sections::model::{Cell, Column, Kind, Row, Table, Tone};

/// Lines of a table. Names and the first column are left-aligned, numbers right-aligned. Marks (a column without
/// a title) follow the column on their left without a gap. If the table is wider than `width`, each name gets its
/// own line, and columns that still do not fit go into further tables below.
pub(super) fn lines(table: &Table, width: usize, style: &Style) -> Vec<String> {
    let layout = Layout::new(table, style);
    let columns: Vec<usize> = (1..table.columns.len()).collect();
    let names = layout.widths[0];
    let whole: usize = columns.iter().map(|&column| layout.room(column)).sum();
    if names + whole <= width {
        return layout.block(&columns, Some(names));
    }
    let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
    let mut used = 0;
    for column in columns {
        let room = layout.room(column);
        if used + room > width && used > 0 {
            blocks.push(Vec::new());
            used = 0;
        }
        used += room;
        blocks.last_mut().expect("one block at least").push(column);
    }
    let of_block = |columns: &Vec<usize>| layout.block(columns, None);
    blocks.iter().flat_map(of_block).collect()
}

/// A table with the widths of its columns.
struct Layout<'a> {
    columns: &'a [Column],
    /// Cells of the header and of the rows. A heading among the rows has one cell.
    grid: Vec<Vec<Cell>>,
    widths: Vec<usize>,
    style: &'a Style,
}

impl<'a> Layout<'a> {
    fn new(table: &'a Table, style: &'a Style) -> Layout<'a> {
        let has_headings = table.rows.iter().any(Row::is_heading);
        let indent = if has_headings { "  " } else { "" };
        let titles = table.columns.iter().map(|one| one.title.as_str());
        let mut grid: Vec<Vec<Cell>> = vec![titles.map(Cell::from).collect()];
        for row in &table.rows {
            let mut cells = row.cells.clone();
            if !row.is_heading() {
                let name = shortened(&cells[0].text, table.name_max);
                cells[0].text = format!("{indent}{name}");
            }
            grid.push(cells);
        }
        // A heading widens no column.
        let width = |column: usize| {
            let rows = grid.iter().filter(|row| row.len() > 1);
            rows.map(|row| length(&row[column].text)).max()
        };
        let widths = (0..table.columns.len()).map(|column| width(column).unwrap_or(0));
        Layout {
            columns: &table.columns,
            widths: widths.collect(),
            grid,
            style,
        }
    }

    /// Table of the given columns. The names come before them in `names` characters, or on separate lines.
    fn block(&self, columns: &[usize], names: Option<usize>) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, row) in self.grid.iter().enumerate() {
            let name = &row[0].text;
            let numbers = columns
                .iter()
                .filter_map(|&column| Some((column, row.get(column)?)));
            let numbers: String = numbers
                .map(|(column, cell)| self.padded(column, cell))
                .collect();
            let text = match names {
                _ if row.len() == 1 => name.clone(),
                Some(width) => format!("{name:<width$}{numbers}"),
                None => format!("{name}\n{numbers}"),
            };
            lines.extend(text.split('\n').map(|line| match index {
                0 => self.style.dim(line.trim_end()),
                _ => line.trim_end().to_string(),
            }));
        }
        lines
    }

    /// A cell in its column's width, with the gap before it.
    fn padded(&self, column: usize, cell: &Cell) -> String {
        let free = " ".repeat(self.widths[column] - length(&cell.text));
        let text = match cell.tone {
            Tone::Bad if !cell.text.is_empty() => self.style.bad(&cell.text),
            _ => cell.text.clone(),
        };
        let gap = self.gap(column);
        match self.columns[column].kind {
            Kind::Number => format!("{gap}{free}{text}"),
            Kind::Name | Kind::Sentence => format!("{gap}{text}{free}"),
        }
    }

    fn gap(&self, column: usize) -> &'static str {
        match self.columns[column].title.is_empty() {
            true => " ",
            false => "  ",
        }
    }

    /// Characters that a column and the gap before it take.
    fn room(&self, column: usize) -> usize {
        self.gap(column).len() + self.widths[column]
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A name of at most `limit` characters.
fn shortened(name: &str, limit: usize) -> String {
    match name.char_indices().nth(limit) {
        Some(_) => name.chars().take(limit - 1).chain(['…']).collect(),
        None => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(width: usize) -> Vec<String> {
        let mut table = Table::new([
            Column::name("cell"),
            Column::number("one"),
            Column::name(""),
            Column::number("two"),
        ]);
        let row = |cells: [&str; 4]| cells.map(Cell::from).to_vec();
        table.row(row(["a long name", "1.00", "!", "10"]));
        table.row(row(["b", "22.00", "", "3"]));
        lines(&table, width, &Style(false))
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
    fn a_name_keeps_its_first_characters() {
        assert_eq!(shortened("a_name", 6), "a_name");
        assert_eq!(shortened("a_longer_name", 6), "a_lon…");
    }
}
