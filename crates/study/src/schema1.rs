//! Conversion of records of schema 1, which had a client and a server on one machine, to the
//! current schema.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::host_name::HostName;
use crate::knob::Knobs;
use crate::topology::{Bed, Topology};

/// Name of the machine of those records, which did not contain it.
const MACHINE: &str = "unknown";

/// Converts a line of schema 1 to a record of `version`.
pub(crate) fn upgrade(line: &str, version: u32) -> Result<Value, serde_json::Error> {
    let mut record: Value = serde_json::from_str(line)?;
    rename(&mut record);
    let Some(fields) = record.as_object_mut() else {
        return Err(serde::de::Error::custom("no object"));
    };
    let mut take = |name: &str| fields.remove(name).unwrap_or(Value::Null);
    let knobs = Knobs::deserialize(&take("knobs"))?;
    let bed = take("bed");
    let machine = take("host");
    let of_pair = take("core_to_core");
    let ends: BTreeMap<HostName, Map<String, Value>> = match take("ends") {
        Value::Null => BTreeMap::new(),
        ends => Deserialize::deserialize(ends)?,
    };
    // A trial without a bed has no known machine.
    let is_known = machine["kernel"]
        .as_str()
        .is_some_and(|kernel| !kernel.is_empty());
    let topology = bed
        .as_str()
        .and_then(Bed::from_word)
        .and_then(|bed| Topology::of(bed, &knobs).ok())
        .unwrap_or_default();
    let hosts: BTreeMap<HostName, Map<String, Value>> = ends
        .into_iter()
        .map(|(host, mut found)| {
            let environment = found.remove("environment").unwrap_or_default();
            let device = environment["device"]
                .as_str()
                .unwrap_or_default()
                .to_string();
            found.insert("ports".into(), json!({ device: environment }));
            found.insert("machine".into(), MACHINE.into());
            (host, found)
        })
        .collect();
    let distance: Option<Map<String, Value>> = Deserialize::deserialize(of_pair)?;
    let cpu_distances = distance.map(|mut distance| {
        let of_pair = distance.remove("cpus").unwrap_or_default();
        let cpu = |host: HostName, index: usize| json!({"host": host, "cpu": of_pair[index]});
        let cpus = json!([cpu(HostName::CLIENT, 0), cpu(HostName::SERVER, 1)]);
        distance.insert("cpus".into(), cpus);
        distance
    });
    let cpu_distances: Vec<Map<String, Value>> = cpu_distances.into_iter().collect();
    let warnings = match take("warnings") {
        Value::Null => json!([]),
        warnings => warnings,
    };
    let machines = match is_known {
        true => json!({ MACHINE: machine }),
        false => json!({}),
    };
    for (name, value) in [
        ("schema_version", version.into()),
        ("knobs", serde_json::to_value(&knobs)?),
        ("bed", bed),
        ("topology", serde_json::to_value(&topology)?),
        ("machines", machines),
        ("hosts", serde_json::to_value(&hosts)?),
        ("cpu_distances", cpu_distances.into()),
        ("warnings", warnings),
    ] {
        fields.insert(name.to_string(), value);
    }
    Ok(record)
}

/// Old and new names since schema 1: of knobs, meters, counts and warnings; then of a knob's
/// values.
const RENAMED: &[(&str, &str)] = &[
    ("ack_thin", "ack_filter"),
    ("thin_acks_passed", "ack_filter_passed_acks"),
    ("thin_acks_held", "ack_filter_held_acks"),
    ("thin_acks_flushed", "ack_filter_flushed_acks"),
    ("cpus_apart", "cpus_far"),
];
const RENAMED_SPLITS: &[(&str, &str)] = &[("always", "split"), ("nagle", "keep")];

fn today<'a>(name: &'a str, renamed: &[(&str, &'a str)]) -> &'a str {
    let found = renamed.iter().find(|(before, _)| *before == name);
    found.map_or(name, |(_, now)| now)
}

/// Replaces old names all through a record, in keys (of a host's knob after `HOST.`) and values.
fn rename(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, mut value) in std::mem::take(fields) {
                rename(&mut value);
                let (host, name) = key
                    .rsplit_once('.')
                    .map_or(("", &key[..]), |(host, name)| (host, name));
                if let ("tail_split", Some(rule)) = (name, value.as_str()) {
                    value = today(rule, RENAMED_SPLITS).into();
                }
                let name = today(name, RENAMED);
                let key = match host {
                    "" => name.to_string(),
                    host => format!("{host}.{name}"),
                };
                fields.insert(key, value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(rename),
        Value::String(name) => *name = today(name, RENAMED).to_string(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tcpcost_counts::MeterName;

    use super::*;

    #[test]
    fn what_was_renamed_since_has_todays_name() {
        let mut record = json!({
            "knobs": {"server.ack_thin": 4, "tail_split": "nagle", "ack_policy": "always"},
            "readings": [{"meter": "ack_thin", "counts": {"thin_acks_held": 3}}],
            "warnings": [{"code": "cpus_apart", "text": "cpus_apart"}],
        });
        rename(&mut record);
        let expected = json!({
            "knobs": {"server.ack_filter": 4, "tail_split": "keep", "ack_policy": "always"},
            "readings": [{"meter": MeterName::AckFilter.name(), "counts": {"ack_filter_held_acks": 3}}],
            "warnings": [{"code": "cpus_far", "text": "cpus_far"}],
        });
        assert_eq!(record, expected);
    }
}
