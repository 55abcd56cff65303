//! JSON that a reader does not expect: changed copies of lines that are still JSON, for fuzz
//! targets and tests.

use serde_json::{Value, json};

use crate::Random;

/// Returns a copy of `text` in which one to four values of one JSON line are changed: to the ends
/// of ranges, to other types, to strings that are hard to print, to values from elsewhere in the
/// line, or doubled or removed. A line may have a word before its object. The same seed gives the
/// same copy; a text without a JSON line is returned unchanged.
pub fn change_json(text: &[u8], seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut lines: Vec<Vec<u8>> = text.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
    let first = random.below(lines.len());
    let Some((line, at, mut value)) = (0..lines.len()).find_map(|step| {
        let line = (first + step) % lines.len();
        let at = lines[line].iter().position(|&byte| byte == b'{')?;
        let value = serde_json::from_slice::<Value>(&lines[line][at..]).ok()?;
        Some((line, at, value))
    }) else {
        return text.to_vec();
    };
    for _ in 0..1 + random.below(4) {
        let count = count(&value);
        let elsewhere = nth(&mut value, &mut random.below(count)).cloned();
        let changed = nth(&mut value, &mut random.below(count));
        if let (Some(changed), Some(elsewhere)) = (changed, elsewhere) {
            change(changed, elsewhere, &mut random);
        }
    }
    let changed = serde_json::to_vec(&value).expect("a value has only text keys");
    lines[line].splice(at.., changed);
    lines.join(&b'\n')
}

/// Runs a fuzz target on the files of its corpus and on changed copies of each: 20, or as many as
/// the environment variable `ROUNDS` says.
///
/// # Panics
/// If the target does, with the file and the seed on standard error; if the corpus cannot be read,
/// or is empty.
pub fn over_corpus(folder: &str, target: fn(&[u8])) {
    let rounds = std::env::var("ROUNDS").ok();
    let rounds = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(20);
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        let input = std::fs::read(&path).expect("a file");
        target(&input);
        for seed in 0..rounds {
            let copy = change_json(&input, seed);
            if let Err(panic) = std::panic::catch_unwind(|| target(&copy)) {
                eprintln!("{} failed with seed {seed}", path.display());
                std::panic::resume_unwind(panic);
            }
        }
        count += 1;
    }
    assert!(count > 0, "{folder} is empty");
}

fn change(value: &mut Value, elsewhere: Value, random: &mut Random) {
    match (random.below(4), &mut *value) {
        (0, Value::Object(fields)) if !fields.is_empty() => {
            let key = fields.keys().nth(random.below(fields.len())).cloned();
            let taken = key.as_ref().and_then(|key| fields.remove(key));
            // Renamed or removed.
            if let (0, Some(taken)) = (random.below(2), taken) {
                fields.insert(STRINGS[random.below(STRINGS.len())].to_string(), taken);
            }
        }
        (0, Value::Array(values)) if !values.is_empty() => {
            let index = random.below(values.len());
            match random.below(3) {
                0 => drop(values.remove(index)),
                1 => values.insert(index, values[index].clone()),
                _ => values.clear(),
            }
        }
        (0 | 1, _) => *value = elsewhere,
        (2, Value::Number(number)) => {
            let near = number.as_f64().unwrap_or(0.0);
            *value = match random.below(4) {
                0 => json!(near * 1e9),
                1 => json!(-near),
                2 => json!(number.as_u64().unwrap_or(0) / 2),
                _ => json!(number.as_u64().unwrap_or(0).saturating_add(1)),
            };
        }
        _ => {
            *value = match random.below(11) {
                0 => Value::Null,
                1 => json!(0),
                2 => json!(-1),
                3 => json!(u64::MAX),
                4 => json!(i64::MAX),
                5 => json!(u32::MAX),
                6 => json!(1e308),
                7 => json!([]),
                8 => json!({}),
                9 => json!(random.below(2) == 0),
                _ => json!(STRINGS[random.below(STRINGS.len())]),
            }
        }
    }
}

const STRINGS: &[&str] = &[
    "",
    " ",
    "client",
    "server",
    "a|b\nc\r\t<b>&\"'`",
    "\u{1b}[2J\u{202e}\u{0}",
    "../../etc/passwd",
    "=1+1",
    "\u{10ffff}\u{301}\u{fffd}",
    "AAAA",
    "127.0.0.1:1",
    "::",
    "99999999999999999999",
    "-0",
    "1e400",
];

/// Number of values within a value, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Value with this number, in depth-first order.
fn nth<'a>(value: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(values) => values.iter_mut().find_map(|value| nth(value, number)),
        Value::Object(fields) => fields.values_mut().find_map(|value| nth(value, number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_line_is_still_json_behind_its_word_and_other_lines_are_as_they_were() {
        let text = b"title\nclient {\"a\":[1,2,{\"b\":\"c\"}],\"d\":null}\nend";
        let mut copies = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let copy = String::from_utf8(change_json(text, seed)).unwrap();
            let lines: Vec<&str> = copy.split('\n').collect();
            assert_eq!((lines[0], lines[2]), ("title", "end"));
            let json = lines[1].strip_prefix("client ").unwrap();
            serde_json::from_str::<Value>(json).unwrap();
            assert_eq!(change_json(text, seed), copy.as_bytes());
            copies.insert(copy);
        }
        assert!(copies.len() > 100, "{}", copies.len());
        assert_eq!(change_json(b"none", 1), b"none");
    }
}
