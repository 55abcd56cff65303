//! Values in a file's syntax, before they have a meaning.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tcpcost_counts::printable_text;
use toml::Spanned;
use toml::de::DeValue;

/// Value in a file's syntax, before a knob gives it a meaning.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    Integer(i64),
    Text(String),
    Boolean(bool),
    List(Vec<Raw>),
    /// Keys and values, in the order of the file.
    Table(Vec<(String, Raw)>),
    /// Float or date, which is never a knob's value.
    Other,
}

impl fmt::Display for Raw {
    /// Formats as a study file writes it; `…` for a value that no knob has.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Integer(n) => write!(f, "{n}"),
            Raw::Text(text) => write!(f, "{text:?}"),
            Raw::Boolean(on) => write!(f, "{on}"),
            Raw::List(items) => {
                let items: Vec<String> = items.iter().map(Raw::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Raw::Table(entries) if entries.is_empty() => f.write_str("{}"),
            Raw::Table(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| format!("{key} = {value}"));
                write!(f, "{{ {} }}", entries.collect::<Vec<_>>().join(", "))
            }
            Raw::Other => f.write_str("…"),
        }
    }
}

impl Serialize for Raw {
    /// Serializes in JSON as in TOML.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Raw::Integer(n) => serializer.serialize_i64(*n),
            Raw::Text(text) => serializer.serialize_str(text),
            Raw::Boolean(on) => serializer.serialize_bool(*on),
            Raw::List(items) => items.serialize(serializer),
            Raw::Table(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            Raw::Other => serializer.serialize_unit(),
        }
    }
}

impl From<&serde_json::Value> for Raw {
    fn from(value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Bool(on) => Raw::Boolean(*on),
            serde_json::Value::String(text) => Raw::Text(text.clone()),
            serde_json::Value::Number(n) => n.as_i64().map_or(Raw::Other, Raw::Integer),
            serde_json::Value::Array(items) => Raw::List(items.iter().map(Raw::from).collect()),
            serde_json::Value::Object(entries) => Raw::Table(
                entries
                    .iter()
                    .map(|(key, value)| (key.clone(), Raw::from(value)))
                    .collect(),
            ),
            _ => Raw::Other,
        }
    }
}

pub(crate) fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(printable_text(text).into_owned()),
        DeValue::Boolean(on) => Raw::Boolean(*on),
        DeValue::Integer(n) => {
            i64::from_str_radix(n.as_str(), n.radix()).map_or(Raw::Other, Raw::Integer)
        }
        DeValue::Array(items) => Raw::List(items.iter().map(|item| raw(item.get_ref())).collect()),
        DeValue::Table(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| key.span().start);
            let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                (printable_text(key).into_owned(), raw(value.get_ref()))
            };
            Raw::Table(entries.into_iter().map(entry).collect())
        }
        DeValue::Float(_) | DeValue::Datetime(_) => Raw::Other,
    }
}

/// Parses a single value, as on a command line. `None` if it is not TOML.
pub(crate) fn raw_text(text: &str) -> Option<Raw> {
    let value = DeValue::parse(text).ok()?;
    Some(raw(value.get_ref()))
}
