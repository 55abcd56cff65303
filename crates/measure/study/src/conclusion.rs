//! Conclusions of a study: `[[conclusion]]` and `[[fit]]`. Their arithmetic and sentences are in
//! `report`.

use std::collections::BTreeSet;

use toml::de::DeValue;

use crate::cell::Cell;
use crate::derived::Derived;
use crate::parse::{
    Section, StudyError, any, expecting, knob_name, list, matching, matching_in, number, quantity,
    quoted, switch,
};
use crate::raw::{Raw, raw};
use crate::statement::Statement;
use tcpcost_knobs::{Expects, Knob, Knobs, Value, find_full};

/// `[[conclusion]]`: a sentence about cells, or about the effect of a knob between cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Start of the sentence: what was done.
    pub text: String,
    /// True if it continues the sentence of the conclusion before.
    pub continues: bool,
    /// Quantity to report. `None` for each cell's main quantity.
    pub quantity: Option<Derived>,
    /// Cells that it is about: those that have these knobs.
    pub matching: Knobs,
    /// Knob that varies. `None` reports the quantity itself.
    pub change: Option<Change>,
    /// Published figure of the quantity itself, in its unit.
    pub published: Option<f64>,
    /// Published expectation of the change.
    pub expects: Option<Expects>,
    /// Published upper limit of the quantity itself.
    pub at_most: Option<f64>,
    /// Published lower limit of the quantity itself.
    pub at_least: Option<f64>,
    /// Id of the published statement that it tests.
    pub statement: Option<String>,
    /// Knobs of cells with whose change this change is compared.
    pub than: Option<Knobs>,
    /// Knob over whose values the change is followed, to find the value at which its sign changes.
    pub over: Option<String>,
}

/// Change from one value of a knob to others, all else being equal.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Name of the knob.
    pub knob: String,
    /// Value with which the others are compared.
    pub from: Value,
    /// Other values.
    pub to: Vec<Value>,
    /// Published changes in percent of `from`, one for each value of `to`. Empty if there are none.
    pub published_percent: Vec<f64>,
    /// Published changes of the instructions, in percent, for a study whose published figures are of time or cycles. Empty if there are
    /// none.
    pub published_instructions_percent: Vec<f64>,
}

/// `[[fit]]`: a straight line through the trials of several cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Meaning of the slope, in words.
    pub text: String,
    /// True if it continues the sentence of the fit before.
    pub continues: bool,
    /// Quantity on the y axis. `None` for each cell's main quantity.
    pub quantity: Option<Derived>,
    /// Quantity on the x axis.
    pub over: Derived,
    /// Cells of the fit: those that have these knobs.
    pub matching: Knobs,
    /// Published slope, in the unit of `quantity` per unit of `over`.
    pub published: Option<f64>,
}

impl Conclusion {
    /// True if `some` of the cells test it at each value that `all` test it at.
    pub(crate) fn is_tested_alike(&self, all: &[Cell], some: &[Cell]) -> bool {
        let mut matching = std::iter::once(&self.matching).chain(&self.than);
        matching.all(|matching| self.values(all, matching) == self.values(some, matching))
    }

    /// Values of its knob in cells that match, as words; one empty word if it has no knob and a cell matches.
    fn values(&self, cells: &[Cell], matching: &Knobs) -> BTreeSet<String> {
        let of_it = cells.iter().filter(|cell| cell.knobs.has(matching));
        let Some(change) = &self.change else {
            return of_it.map(|_| String::new()).collect();
        };
        let values = of_it.filter_map(|cell| cell.knobs.value(&change.knob));
        let asked = values.filter(|value| *value == change.from || change.to.contains(value));
        asked.map(|value| value.to_string()).collect()
    }

    pub(crate) fn parse(
        mut section: Section<'_>,
        statements: &[Statement],
    ) -> Result<Conclusion, StudyError> {
        let mut conclusion = Conclusion {
            text: section.required("text", quoted(any))?,
            continues: section.read("continues", switch)?.unwrap_or_default(),
            quantity: section.read("quantity", quoted(quantity))?,
            matching: matching(&mut section)?,
            change: change(&mut section)?,
            published: None,
            expects: None,
            at_most: None,
            at_least: None,
            statement: None,
            than: None,
            over: None,
        };
        if conclusion.change.is_some() {
            let expects =
                |text: &str| Expects::from_word(text).ok_or("\"less\", \"more\" or \"same\"");
            conclusion.expects = section.read("expects", quoted(expects))?;
            conclusion.over = section.read("over", quoted(knob_name))?;
            if conclusion.over.is_none() {
                conclusion.than = matching_in(&mut section, "than")?;
            }
        } else {
            conclusion.published = section.read("published", a_number)?;
            conclusion.at_most = section.read("at_most", a_number)?;
            conclusion.at_least = section.read("at_least", a_number)?;
        }
        let limits = conclusion.at_most.or(conclusion.at_least);
        let tests = conclusion.expects.is_some() || limits.is_some();
        let statement = |text: &str| {
            if !statements.iter().any(|one| one.id == text) {
                Err("the id of a [[statement]]")
            } else if !tests {
                Err("no statement without `expects` of a change, or `at_most` or `at_least`")
            } else {
                Ok(text.to_string())
            }
        };
        conclusion.statement = section.read("statement", quoted(statement))?;
        section.end()?;
        Ok(conclusion)
    }
}

fn a_number(value: &DeValue<'_>) -> Result<f64, &'static str> {
    number(value).ok_or("a number")
}

pub(crate) fn change(section: &mut Section<'_>) -> Result<Option<Change>, StudyError> {
    let Some(name) = section.read("knob", quoted(knob_name))? else {
        return Ok(None);
    };
    let knob = find_full(&name).expect("just found");
    let value = |value: &DeValue<'_>| knob.read(&raw(value));
    let from = section.required("from", expecting(knob.expected(), value))?;
    let expected = format!("a list of values, each {}", knob.expected());
    let list_of_values = expecting(expected, |value| values(&knob, &raw(value)));
    let to = section.required("to", list_of_values)?;
    let expected = format!("{} numbers, the changes in percent", to.len());
    let mut numbers = |key: &str| {
        let numbers = expecting(expected.clone(), |value| {
            list(value, number).filter(|numbers| numbers.len() == to.len())
        });
        let published: Option<Vec<f64>> = section.read(key, numbers)?;
        Ok(published.unwrap_or_default())
    };
    let published_percent = numbers("published_percent")?;
    let published_instructions_percent = numbers("published_instructions_percent")?;
    Ok(Some(Change {
        knob: name,
        from,
        to,
        published_percent,
        published_instructions_percent,
    }))
}

/// Values of a knob from a list of at least one. `None` for anything else.
pub(crate) fn values(knob: &Knob, raw: &Raw) -> Option<Vec<Value>> {
    match raw {
        Raw::List(items) if !items.is_empty() => items.iter().map(|item| knob.read(item)).collect(),
        _ => None,
    }
}

impl Fit {
    pub(crate) fn parse(mut section: Section<'_>) -> Result<Fit, StudyError> {
        let fit = Fit {
            text: section.required("text", quoted(any))?,
            continues: section.read("continues", switch)?.unwrap_or_default(),
            quantity: section.read("quantity", quoted(quantity))?,
            over: section.required("over", quoted(quantity))?,
            matching: matching(&mut section)?,
            published: section.read("published", a_number)?,
        };
        section.end()?;
        Ok(fit)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Study, Value};

    fn parse(text: &str) -> Result<Study, String> {
        Study::parse("s", text, "s.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_change_has_a_published_figure_for_each_of_its_values_or_none() {
        let text = |published: &str| {
            format!(
                "[[conclusion]]\ntext = \"more\"\nknob = \"server.ack_filter\"\nfrom = 2\nto = [8, 16]\n{published}"
            )
        };
        let study = parse(&text("published_percent = [-23, -29.4]")).unwrap();
        let change = study.conclusions[0].change.as_ref().unwrap();
        assert_eq!(change.to, [Value::Count(8), Value::Count(16)]);
        assert_eq!(change.published_percent, [-23.0, -29.4]);
        assert!(parse(&text("")).is_ok());
        assert_eq!(
            parse(&text("published_percent = [-23]")).unwrap_err(),
            "s.toml:6: conclusion.published_percent: expected 2 numbers, the changes in percent"
        );
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, expected) in [
            (
                "[[conclusion]]\nquantity = \"acks_per_kib\"\n",
                "s.toml:2: conclusion.text: is missing",
            ),
            (
                "[[conclusion]]\ntext = \"x\"\nknob = \"flows\"\nfrom = 0\n",
                "s.toml:4: conclusion.from: expected a whole number from 1 to 30000",
            ),
            (
                "[[conclusion]]\ntext = \"x\"\nknob = \"flows\"\nfrom = 1\nto = [2]\nexpects = \"lots\"\n",
                "s.toml:6: conclusion.expects: expected \"less\", \"more\" or \"same\"",
            ),
            (
                "[[conclusion]]\ntext = \"x\"\nat_most = 1\nstatement = \"tail\"\n",
                "s.toml:4: conclusion.statement: expected the id of a [[statement]]",
            ),
            (
                "[[statement]]\nid = \"a\"\nsource = \"b\"\ntext = \"c\"\n[[conclusion]]\ntext = \"x\"\nstatement = \"a\"\n",
                "s.toml:7: conclusion.statement: expected no statement without `expects` of a change, or `at_most` or `at_least`",
            ),
            (
                "[[statement]]\nid = \"a\"\nsource = \"b\"\ntext = \"c\"\n[[statement]]\nid = \"a\"\n",
                "s.toml:6: statement.id: expected a name of its own; there is a \"a\" already",
            ),
            (
                "[[fit]]\ntext = \"x\"\nover = \"acks\"\n",
                "s.toml:3: fit.over: expected a quantity: no such quantity; nearest is \"acks_per_kib\"",
            ),
            (
                "[[fit]]\ntext = \"x\"\nover = \"acks_per_kib\"\nfrom = 2\n",
                "s.toml:4: from: no such key in [fit]; known here: text, continues, quantity, over, where, published",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), expected);
        }
    }
}
