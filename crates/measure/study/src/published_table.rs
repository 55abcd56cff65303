//! `[published_table]`: a published table, with a row for each setting of some knobs, shown row by
//! row next to ours.

use toml::Spanned;
use toml::de::DeValue;

use crate::derived::Derived;
use crate::parse::{
    Section, StudyError, any, expecting, knob_name, list, matching, number, quantity, quoted,
};
use crate::raw::{Raw, raw};
use tcpcost_knobs::{Knobs, Value, find_full};

/// A published table.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedTable {
    /// Author, year and place of the publication.
    pub source: String,
    /// Knobs whose settings are the rows.
    pub knobs: Vec<String>,
    /// Columns: heading, and quantity in our terms.
    pub columns: Vec<(String, Derived)>,
    /// Cells next to which it is shown: those that have these knobs.
    pub matching: Knobs,
    /// Rows: a value of each knob, and a figure for each column.
    pub rows: Vec<(Vec<Value>, Vec<f64>)>,
}

impl PublishedTable {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<PublishedTable, StudyError> {
        let source = section.required("source", quoted(any))?;
        let knob = |item: &DeValue<'_>| knob_name(item.as_str()?).ok();
        let knobs = expecting("a list of names of knobs", |value| list(value, knob));
        let knobs = section.required("knobs", knobs)?;
        let column = |pair: &DeValue<'_>| match raw(pair) {
            Raw::List(pair) => match pair.as_slice() {
                [Raw::Text(heading), Raw::Text(of)] => Some((heading.clone(), quantity(of).ok()?)),
                _ => None,
            },
            _ => None,
        };
        let columns = expecting("a list of [\"heading\", \"quantity\"] pairs", |value| {
            list(value, column)
        });
        let columns = section.required("columns", columns)?;
        let matching = matching(&mut section)?;
        let expected = format!(
            "rows of {} values of knobs and {} figures",
            knobs.len(),
            columns.len()
        );
        let row = |row: &DeValue<'_>| {
            let row = row
                .as_array()
                .filter(|row| row.len() == knobs.len() + columns.len())?;
            let (values, figures) = row.split_at(knobs.len());
            let value = |(knob, value): (&String, &Spanned<DeValue<'_>>)| {
                find_full(knob)?.read(&raw(value.get_ref()))
            };
            let values = knobs.iter().zip(values).map(value);
            let figures = figures.iter().map(|figure| number(figure.get_ref()));
            Some((
                values.collect::<Option<_>>()?,
                figures.collect::<Option<_>>()?,
            ))
        };
        let rows = expecting(expected, |value| list(value, row));
        let rows = section.required("rows", rows)?;
        section.end()?;
        Ok(PublishedTable {
            source,
            knobs,
            columns,
            matching,
            rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Study, Value};

    fn parse(rows: &str) -> Result<Study, String> {
        let text = format!(
            "[published_table]\nsource = \"x\"\nknobs = [\"write_size\", \"flows\"]\n\
             columns = [[\"idle\", \"client_idle_ratio\"]]\nrows = {rows}\n"
        );
        Study::parse("s", &text, "s.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_values_of_the_knobs_and_figures_of_the_columns() {
        let study = parse("[[\"64KiB\", 4, 0.95], [\"8KiB\", 1, 0.9]]").unwrap();
        let table = study.published_table.unwrap();
        let (values, figures) = &table.rows[0];
        assert_eq!(values[1], Value::Count(4));
        assert_eq!(*figures, [0.95]);
        assert_eq!(table.columns[0].1.to_string(), "client_idle_ratio");
        for wrong in ["[[\"64KiB\", 4]]", "[[4, \"64KiB\", 1]]", "4"] {
            assert_eq!(
                parse(wrong).unwrap_err(),
                "s.toml:5: published_table.rows: expected rows of 2 values of knobs and 1 figures"
            );
        }
    }
}
