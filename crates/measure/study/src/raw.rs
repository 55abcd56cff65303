//! Values of a TOML file, before a knob gives them a meaning.

use tcpcost_counts::printable_text;
pub(crate) use tcpcost_knobs::Raw;
use toml::Spanned;
use toml::de::DeValue;

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
