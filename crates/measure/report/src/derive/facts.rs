//! Conversion of a structure to a flat list of its fields.

/// Names and values of a structure's fields, with nested names joined by a space.
pub(crate) fn facts(of: &impl serde::Serialize) -> Vec<(String, String)> {
    fn walk(name: &str, value: &serde_json::Value, facts: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    let name = if name.is_empty() {
                        key.clone()
                    } else {
                        format!("{name} {key}")
                    };
                    walk(&name, value, facts);
                }
            }
            serde_json::Value::String(text) => facts.push((name.to_string(), text.clone())),
            other => facts.push((name.to_string(), other.to_string())),
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(of) {
        walk("", &value, &mut found);
    }
    found
}
