//! Values in a file's syntax, before they have a meaning.

use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Value in a file's syntax, before a knob gives it a meaning.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// Integer.
    Integer(i64),
    /// Quoted text.
    Text(String),
    /// `true` or `false`.
    Boolean(bool),
    /// List, of values of any kind.
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
