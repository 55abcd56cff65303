//! TOML with line numbers: reads a table and reports its errors.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;

use tcpcost_counts::{is_unprintable, printable, printable_text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::derived::{Derived, DerivedError};
use crate::raw::{Raw, raw, raw_text};
use tcpcost_knobs::{KnobError, Knobs, find_full, instead, nearest};

/// Error in a study file: its place, its key, and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}{}{expected}", if key.is_empty() { "" } else { ": " })]
pub struct StudyError {
    /// Name of the file, as the caller gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Key. Empty if the file is not TOML.
    pub key: String,
    /// Expected value, and the nearest valid name if one was misspelt.
    pub expected: String,
}

/// Text of the file, and its name; converts spans to lines.
pub(crate) struct Source<'a> {
    pub file: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    pub fn error(&self, span: Range<usize>, key: &str, expected: impl Into<String>) -> StudyError {
        let line = 1 + self.text[..span.start.min(self.text.len())]
            .matches('\n')
            .count();
        StudyError {
            file: self.file.to_string(),
            line,
            key: key.to_string(),
            expected: expected.into(),
        }
    }

    pub fn root(&self) -> Result<Spanned<DeTable<'_>>, StudyError> {
        let root = DeTable::parse(self.text).map_err(|error| {
            let first = error
                .message()
                .lines()
                .next()
                .unwrap_or("not TOML")
                .to_string();
            self.error(error.span().unwrap_or(0..0), "", first)
        })?;
        for (key, value) in root.get_ref() {
            // Names and sentences are printed in rows and lines.
            let has_lines = matches!(&**key.get_ref(), "about" | "title");
            self.check_printable(key, value, has_lines)?;
        }
        Ok(root)
    }

    /// Refuses a key, or a text in a value, with a control character of terminals.
    fn check_printable(
        &self,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
        has_lines: bool,
    ) -> Result<(), StudyError> {
        let check = |text: &str, span: Range<usize>| {
            let is_wrong = |c: &char| is_unprintable(*c) && !(has_lines && "\n\r\t".contains(*c));
            let Some(c) = text.chars().find(is_wrong) else {
                return Ok(());
            };
            let code = u32::from(c);
            let expected = format!("expected a printable text in one line: it has U+{code:04X}");
            Err(self.error(span, &printable(key.get_ref()), expected))
        };
        check(key.get_ref(), key.span())?;
        match value.get_ref() {
            DeValue::String(text) => check(text, value.span()),
            DeValue::Array(items) => items
                .iter()
                .try_for_each(|item| self.check_printable(key, item, has_lines)),
            DeValue::Table(entries) => entries
                .iter()
                .try_for_each(|(key, value)| self.check_printable(key, value, false)),
            _ => Ok(()),
        }
    }
}

/// Parses a number, whole or not. `None` for another kind of value.
pub(crate) fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(x) => x.as_str().replace('_', "").parse().ok(),
        _ => match raw(value) {
            Raw::Integer(n) => Some(n as f64),
            _ => None,
        },
    }
}

/// Parses a whole number that fits the type. `None` for another value.
pub(crate) fn whole<T: TryFrom<i64>>(value: &DeValue<'_>) -> Option<T> {
    match raw(value) {
        Raw::Integer(n) => T::try_from(n).ok(),
        _ => None,
    }
}

/// Parses a list. `None` for another kind of value, or if an item is wrong.
pub(crate) fn list<T>(
    value: &DeValue<'_>,
    read: impl Fn(&DeValue<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let DeValue::Array(items) = value else {
        return None;
    };
    items.iter().map(|item| read(item.get_ref())).collect()
}

/// Table of the file. Keys are taken out one by one; a key that is left at the end is unknown.
pub(crate) struct Section<'a> {
    source: &'a Source<'a>,
    /// Name for errors; `""` at the top level.
    name: String,
    /// Keys with their spans and values, in the order of the file.
    entries: Vec<(String, Range<usize>, &'a Spanned<DeValue<'a>>)>,
    /// Keys that were requested, for finding the nearest.
    known: Vec<String>,
    /// Place of its first key.
    start: Range<usize>,
}

impl<'a> Section<'a> {
    pub fn new(source: &'a Source<'a>, name: &str, table: &'a DeTable<'a>) -> Section<'a> {
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), key.span(), value))
            .collect();
        entries.sort_by_key(|(_, span, _)| span.start);
        let start = entries.first().map_or(0..0, |(_, span, _)| span.clone());
        Section {
            source,
            name: name.to_string(),
            entries,
            known: Vec::new(),
            start,
        }
    }

    /// Full name of a key, with its table.
    pub fn full(&self, key: &str) -> String {
        if self.name.is_empty() {
            key.to_string()
        } else {
            format!("{}.{key}", self.name)
        }
    }

    /// Place of the first key, which the error of a missing key points at.
    pub fn start(&self) -> Range<usize> {
        self.start.clone()
    }

    /// Creates an error at a key's value.
    pub fn error(&self, span: Range<usize>, key: &str, expected: impl Into<String>) -> StudyError {
        self.source.error(span, &self.full(key), expected)
    }

    /// Takes a key out. `None` if it is missing.
    pub fn take(&mut self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key.to_string());
        let at = self.entries.iter().position(|(name, _, _)| name == key)?;
        Some(self.entries.remove(at).2)
    }

    /// Takes all entries that are left, in the order of the file.
    pub fn rest(&mut self) -> Vec<(String, Range<usize>, &'a Spanned<DeValue<'a>>)> {
        std::mem::take(&mut self.entries)
    }

    /// Takes a key and parses its value. The error of `parse` says what it expects. `None` if the
    /// key is missing.
    pub fn read<T, E: fmt::Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, StudyError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        parse(value.get_ref())
            .map(Some)
            .map_err(|error| self.error(value.span(), key, format!("expected {error}")))
    }

    /// Takes a key and parses it as [`Section::read`] does, in place of the default.
    pub fn set<T, E: fmt::Display>(
        &mut self,
        field: &mut T,
        key: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Result<T, E>,
    ) -> Result<(), StudyError> {
        if let Some(value) = self.read(key, parse)? {
            *field = value;
        }
        Ok(())
    }

    /// Takes a key that must not be missing, and parses it as [`Section::read`] does.
    pub fn required<T, E: fmt::Display>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&DeValue<'_>) -> Result<T, E>,
    ) -> Result<T, StudyError> {
        let value = self.read(key, parse)?;
        value.ok_or_else(|| self.missing(key))
    }

    /// Error: a key is missing.
    pub fn missing(&self, key: &str) -> StudyError {
        self.error(self.start(), key, "is missing")
    }

    /// Takes a key whose value is a table. `None` if the key is missing.
    pub fn section(&mut self, key: &str) -> Result<Option<Section<'a>>, StudyError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Section::new(self.source, &self.full(key), table))),
            _ => Err(self.error(
                value.span(),
                key,
                format!("expected a table [{}]", self.full(key)),
            )),
        }
    }

    /// Takes a key whose value is a table, and parses that. `None` if the key is missing.
    pub fn one<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(Section<'a>) -> Result<T, StudyError>,
    ) -> Result<Option<T>, StudyError> {
        self.section(key)?.map(parse).transpose()
    }

    /// Keys that are left and whose values are tables.
    pub fn tables(&self) -> Vec<String> {
        let tables = self.entries.iter();
        tables
            .filter(|(_, _, value)| matches!(value.get_ref(), DeValue::Table(_)))
            .map(|(key, _, _)| key.clone())
            .collect()
    }

    /// Takes a key whose value is a list of tables. Empty if the key is missing.
    pub fn sections(&mut self, key: &str) -> Result<Vec<Section<'a>>, StudyError> {
        let Some(value) = self.take(key) else {
            return Ok(Vec::new());
        };
        let wrong = || {
            self.error(
                value.span(),
                key,
                format!("expected a list of tables [[{}]]", self.full(key)),
            )
        };
        let DeValue::Array(items) = value.get_ref() else {
            return Err(wrong());
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(table) => Ok(Section::new(self.source, &self.full(key), table)),
                _ => Err(wrong()),
            })
            .collect()
    }

    /// Takes a key whose value is a list of tables, and parses each. Empty if the key is missing.
    pub fn each<T>(
        &mut self,
        key: &str,
        parse: impl FnMut(Section<'a>) -> Result<T, StudyError>,
    ) -> Result<Vec<T>, StudyError> {
        self.sections(key)?.into_iter().map(parse).collect()
    }

    /// Refuses keys that are left.
    pub fn end(self) -> Result<(), StudyError> {
        let Some((key, span, _)) = self.entries.first() else {
            return Ok(());
        };
        let known = self.known.iter().map(String::as_str);
        // Synonyms of other tools are for keys of a measurement only.
        let instead = match self.name.as_str() {
            "measure" => instead(key, known),
            _ => nearest(key, known).map(|near| format!("nearest is \"{near}\"")),
        };
        let hint = match instead {
            Some(instead) => format!("; {instead}"),
            None => format!("; known here: {}", self.known.join(", ")),
        };
        let place = if self.name.is_empty() {
            "at the top".to_string()
        } else {
            format!("in [{}]", self.name)
        };
        Err(self
            .source
            .error(span.clone(), key, format!("no such key {place}{hint}")))
    }
}

/// Parser of a value, for [`Section::read`], with a description of the right value.
pub(crate) fn expecting<T, E: fmt::Display>(
    expected: E,
    parse: impl FnOnce(&DeValue<'_>) -> Option<T>,
) -> impl FnOnce(&DeValue<'_>) -> Result<T, E> {
    |value| parse(value).ok_or(expected)
}

/// Error of [`quoted`]: a description of the right value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotQuoted<E: fmt::Display> {
    #[error("{0}")]
    Wrong(E),
    #[error("a text in quotes")]
    NoText,
}

/// Parser of a text in quotes.
pub(crate) fn quoted<T, E: fmt::Display>(
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> impl FnOnce(&DeValue<'_>) -> Result<T, NotQuoted<E>> {
    |value| {
        // Another kind of value has the error of an empty text, if that is wrong.
        let text = value.as_str().map(printable_text);
        let parsed = parse(text.as_deref().unwrap_or_default()).map_err(NotQuoted::Wrong)?;
        text.map(|_| parsed).ok_or(NotQuoted::NoText)
    }
}

/// Error of [`whole_from`], with the least number.
#[derive(Debug, thiserror::Error)]
#[error("a whole number from {0}")]
pub(crate) struct NotWhole(i64);

/// Parser of a whole number from `least`.
pub(crate) fn whole_from<T: TryFrom<i64>>(
    least: i64,
) -> impl FnOnce(&DeValue<'_>) -> Result<T, NotWhole> {
    expecting(NotWhole(least), move |value| {
        T::try_from(whole(value).filter(|n| *n >= least)?).ok()
    })
}

/// Parses `true` or `false`.
pub(crate) fn switch(value: &DeValue<'_>) -> Result<bool, &'static str> {
    value.as_bool().ok_or("true or false")
}

/// Accepts any text.
pub(crate) fn any(text: &str) -> Result<String, Infallible> {
    Ok(text.to_string())
}

/// Accepts the name of a knob.
pub(crate) fn knob_name(text: &str) -> Result<String, &'static str> {
    match find_full(text) {
        Some(_) => Ok(text.to_string()),
        None => Err("the name of a knob"),
    }
}

/// Description of a figure's name, and the error of the given one.
#[derive(Debug, thiserror::Error)]
#[error("a quantity: {0}")]
pub(crate) struct NotAQuantity(DerivedError);

/// Parses the name of a figure with its scope.
pub(crate) fn quantity(text: &str) -> Result<Derived, NotAQuantity> {
    text.parse().map_err(NotAQuantity)
}

/// Takes the knobs of `where = { knob = value }`. Empty if there is no such key.
pub(crate) fn matching(section: &mut Section<'_>) -> Result<Knobs, StudyError> {
    Ok(matching_in(section, "where")?.unwrap_or_default())
}

/// Takes the knobs of `key = { knob = value }`. `None` if there is no such key.
pub(crate) fn matching_in(
    section: &mut Section<'_>,
    key: &str,
) -> Result<Option<Knobs>, StudyError> {
    let Some(mut inner) = section.section(key)? else {
        return Ok(None);
    };
    let mut knobs = Knobs::default();
    for (key, span, value) in inner.rest() {
        set(&inner, &mut knobs, &key, &key, value, span)?;
    }
    Ok(Some(knobs))
}

/// Sets one knob from a file's value.
pub(crate) fn set(
    section: &Section<'_>,
    knobs: &mut Knobs,
    name: &str,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    key_span: Range<usize>,
) -> Result<(), StudyError> {
    // An unknown name is an error at the key; a wrong value is one at the value.
    let span = if find_full(name).is_some() {
        value.span()
    } else {
        key_span
    };
    knobs
        .set_raw(name, &raw(value.get_ref()))
        .map_err(|error| section.error(span, key, error.reason))
}

/// Sets one knob from text, as on a command line. A program has the syntax of a study file.
///
/// # Errors
/// An unknown name, or a value that the knob does not accept.
pub fn set_knob(knobs: &mut Knobs, name: &str, text: &str) -> Result<(), KnobError> {
    match raw_text(text) {
        Some(program @ Raw::List(_)) if text.contains('{') => knobs.set_raw(name, &program),
        _ => knobs.set(name, text),
    }
}
