//! Model of a report's parts: charts, tables and sentences. It knows no form; `render/` prints it.

use tcpcost_study::Derived;

use crate::derive::cell::CellSummary;
use crate::derive::number::ABSENT;
use crate::sections::charts::Chart;
use crate::words::labels::owned;

/// Amount that a reader asks for. Each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// A comment on a pull request.
    Gist,
    /// The text on a terminal.
    Answer,
    /// The text with details.
    Details,
    /// The page.
    Page,
}

/// Form of a section's sentences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prose {
    /// Results of the study.
    Findings,
    /// Paragraphs.
    Paragraphs,
    /// Notes on the numbers.
    Notes,
    /// Facts about the run.
    Facts,
    /// Warnings.
    Warnings,
}

/// A part of a report: a heading, then charts, tables, a flame graph and sentences, as far as it has them.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(crate) level: Level,
    /// Empty for a section without a heading.
    pub(crate) heading: String,
    /// True if the page shows only the heading until the reader opens it.
    pub(crate) is_folded: bool,
    pub(crate) charts: Vec<Chart>,
    pub(crate) tables: Vec<Table>,
    /// Cell whose call chains a flame graph shows.
    pub(crate) flame: Option<&'a CellSummary>,
    pub(crate) prose: Vec<String>,
    pub(crate) prose_form: Prose,
}

impl<'a> Section<'a> {
    pub(crate) fn new(level: Level, heading: impl Into<String>) -> Section<'a> {
        Section {
            level,
            heading: heading.into(),
            is_folded: false,
            charts: Vec::new(),
            tables: Vec::new(),
            flame: None,
            prose: Vec::new(),
            prose_form: Prose::Notes,
        }
    }

    pub(crate) fn table(mut self, table: Table) -> Section<'a> {
        self.tables.push(table);
        self
    }

    pub(crate) fn notes(mut self, notes: impl IntoIterator<Item = String>) -> Section<'a> {
        self.prose.extend(notes);
        self
    }

    pub(crate) fn prose(
        mut self,
        form: Prose,
        sentences: impl IntoIterator<Item = String>,
    ) -> Section<'a> {
        self.prose_form = form;
        self.notes(sentences)
    }

    pub(crate) fn charts(mut self, charts: Vec<Chart>) -> Section<'a> {
        self.charts = charts;
        self
    }

    pub(crate) fn folded(mut self) -> Section<'a> {
        self.is_folded = true;
        self
    }

    /// The section for a reader who asks for `level`. `None` if nothing is left of it.
    pub(crate) fn up_to(mut self, level: Level) -> Option<Section<'a>> {
        let tables = self.tables.into_iter();
        self.tables = tables.filter_map(|table| table.up_to(level)).collect();
        let is_empty = self.charts.is_empty()
            && self.tables.is_empty()
            && self.flame.is_none()
            && self.prose.is_empty();
        (self.level <= level && !is_empty).then_some(self)
    }
}

/// Rows of cells under a header.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// Limit on the characters of a name in the text.
    pub(crate) name_max: usize,
}

/// Contents of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A short text.
    Name,
    /// A number, perhaps with its interval.
    Number,
    /// A text that may need several lines.
    Sentence,
}

/// A column of a table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// Empty for marks of the column on its left.
    pub(crate) title: String,
    pub(crate) kind: Kind,
    pub(crate) level: Level,
    /// Definition of the column's figure. Empty for other columns.
    pub(crate) definition: &'static str,
}

/// A row of a table. A row with one cell is a heading among the rows.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) level: Level,
    pub(crate) cells: Vec<Cell>,
}

/// Judgement that a cell's colour shows, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Cell {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell {
            text: text.into(),
            tone,
        }
    }

    /// True if the cell shows neither a text nor a number.
    fn is_absent(&self) -> bool {
        self.text.is_empty() || self.text == ABSENT
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::toned(text, Tone::Plain)
    }
}

impl Column {
    fn new(kind: Kind, title: impl Into<String>) -> Column {
        Column {
            title: title.into(),
            kind,
            level: Level::Gist,
            definition: "",
        }
    }

    pub(crate) fn name(title: impl Into<String>) -> Column {
        Column::new(Kind::Name, title)
    }

    pub(crate) fn number(title: impl Into<String>) -> Column {
        Column::new(Kind::Number, title)
    }

    pub(crate) fn sentence(title: impl Into<String>) -> Column {
        Column::new(Kind::Sentence, title)
    }

    /// Column of a quantity under its own heading.
    pub(crate) fn quantity(of: Derived) -> Column {
        Column::figure(owned(of.scope, of.kind.heading()), of)
    }

    /// Column of a figure under another title.
    pub(crate) fn figure(title: impl Into<String>, of: Derived) -> Column {
        Column {
            definition: of.kind.definition(),
            ..Column::number(title)
        }
    }

    /// The column, only for readers who ask for `level`.
    pub(crate) fn at(self, level: Level) -> Column {
        Column { level, ..self }
    }
}

impl Row {
    pub(crate) fn is_heading(&self) -> bool {
        self.cells.len() == 1
    }
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
            name_max: usize::MAX,
        }
    }

    /// Adds a heading for the rows that follow. It is omitted if none follow.
    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.row_at(Level::Gist, vec![Cell::from(text.into())]);
    }

    /// Adds a row, which must be as long as the header.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.row_at(Level::Gist, cells);
    }

    /// Adds a row for readers who ask for `level`.
    pub(crate) fn row_at(&mut self, level: Level, cells: Vec<Cell>) {
        self.rows.push(Row { level, cells });
    }

    /// Adds a row of a name and numbers, unless all numbers are absent.
    pub(crate) fn numbers(
        &mut self,
        level: Level,
        name: impl Into<Cell>,
        numbers: impl IntoIterator<Item = String>,
    ) {
        let cells: Vec<Cell> = std::iter::once(name.into())
            .chain(numbers.into_iter().map(Cell::from))
            .collect();
        if cells[1..].iter().any(|cell| !cell.is_absent()) {
            self.row_at(level, cells);
        }
    }

    /// The table for a reader who asks for `level`: without columns that have no number, and without headings
    /// that have no row. `None` if no row is left.
    fn up_to(mut self, level: Level) -> Option<Table> {
        self.rows.retain(|row| row.level <= level);
        let mut follows = false;
        // A heading is followed by a row, not by a heading or the end.
        for index in (0..self.rows.len()).rev() {
            let is_heading = self.rows[index].is_heading();
            if is_heading && !follows {
                self.rows.remove(index);
            }
            follows = !is_heading;
        }
        let is_shown = |(index, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(index));
            column.level <= level && (index == 0 || cells.into_iter().any(|cell| !cell.is_absent()))
        };
        let shown: Vec<bool> = self.columns.iter().enumerate().map(is_shown).collect();
        for row in &mut self.rows {
            keep(&mut row.cells, &shown);
        }
        keep(&mut self.columns, &shown);
        (!self.rows.is_empty()).then_some(self)
    }
}

/// Removes the items that are not shown.
fn keep<T>(items: &mut Vec<T>, shown: &[bool]) {
    let mut shown = shown.iter();
    items.retain(|_| shown.next() == Some(&true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_its_own_columns_and_rows_and_no_heading_without_a_row() {
        let mut table = Table::new([
            Column::name("cell"),
            Column::number("a"),
            Column::number("none"),
            Column::number("b").at(Level::Page),
        ]);
        table.heading("few");
        table.numbers(Level::Gist, "x", ["1", ABSENT, "2"].map(String::from));
        table.heading("many");
        table.numbers(Level::Page, "y", ["3", ABSENT, "4"].map(String::from));
        table.numbers(Level::Gist, "z", [ABSENT; 3].map(String::from));
        let texts = |level| {
            let table = table.clone().up_to(level).unwrap();
            let rows = table.rows.iter().map(|row| {
                let texts = row.cells.iter().map(|cell| cell.text.as_str());
                texts.collect::<Vec<_>>().join(" ")
            });
            rows.collect::<Vec<_>>()
        };
        assert_eq!(texts(Level::Answer), ["few", "x 1"]);
        assert_eq!(texts(Level::Page), ["few", "x 1 2", "many", "y 3 4"]);
    }
}
