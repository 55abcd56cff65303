//! Parser of programs.

use std::time::Duration;

use super::{CloseBy, MessageSize, Operation, PauseAt, Program, Times};
use crate::choices::{ReceiveWith, SendWith};
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::units;

/// Words that begin an operation.
const OPERATIONS: [&str; 11] = [
    "connect", "accept", "send", "receive", "sendfile", "think", "sleep", "nop", "close", "repeat",
    "for",
];

/// Limit of an operation's time. A longer one is a mistake in the unit.
const TIME_MAX: Duration = Duration::from_secs(3600);

impl Program {
    /// Parses a program.
    ///
    /// # Errors
    /// One line: the operation, its mistake, and what was expected.
    pub fn read(raw: &Raw) -> Result<Program, String> {
        Program::new(operations(raw, "", 0)?)
    }
}

/// Description of a program, for error messages.
pub(crate) const LIST: &str =
    "a list of operations such as [{ send = \"1KiB\" }, { receive = \"8KiB\" }]";

/// Parses operations. `within`: place of the loop that contains them, for messages.
fn operations(raw: &Raw, within: &str, depth: usize) -> Result<Vec<Operation>, String> {
    if depth > Program::DEPTH_MAX {
        let most = Program::DEPTH_MAX;
        return Err(format!("loops may be {most} deep: take one out"));
    }
    let Raw::List(items) = raw else {
        return Err(match within {
            "" => format!("expected {LIST}"),
            _ => format!("operation {within}: do: expected {LIST}"),
        });
    };
    let place = |index: usize| match within {
        "" => (index + 1).to_string(),
        _ => format!("{within}.{}", index + 1),
    };
    let numbered = items.iter().enumerate();
    numbered
        .map(|(index, item)| operation(item, &place(index), depth))
        .collect()
}

fn operation(raw: &Raw, place: &str, depth: usize) -> Result<Operation, String> {
    let wrong = |what: String| format!("operation {place}: {what}");
    let Raw::Table(entries) = raw else {
        return Err(wrong("expected a table such as { send = \"1KiB\" }".into()));
    };
    let mut entries = Entries(entries.iter().collect());
    let known = || OPERATIONS.into_iter();
    let Some((name, value)) = OPERATIONS
        .iter()
        .find_map(|name| Some((*name, entries.take(name)?)))
    else {
        let Some((key, _)) = entries.0.first() else {
            return Err(wrong(format!("is empty; one of {}", OPERATIONS.join(", "))));
        };
        return Err(wrong(match (key.as_str(), nearest(key, known())) {
            ("forward", _) => {
                "forward is the part of a relay: topology = \"chain\" with relay_mode".into()
            }
            (_, Some(near)) => format!("no such operation \"{key}\"; nearest is \"{near}\""),
            (_, None) => format!(
                "no such operation \"{key}\"; there are {}",
                OPERATIONS.join(", ")
            ),
        }));
    };
    let read = match name {
        "connect" => options(value, "connect", |options| {
            Ok(Operation::Connect {
                conn: options.conn()?,
                can_fail: options.switch("can_fail")?,
            })
        }),
        "accept" => options(value, "accept", |options| {
            Ok(Operation::Accept {
                conn: options.conn()?,
            })
        }),
        "nop" => options(value, "nop", |_| Ok(Operation::Nop)),
        "send" => send(value, &mut entries),
        "sendfile" => size(value).and_then(|size| {
            Ok(Operation::Send {
                size,
                with: Some(SendWith::Sendfile),
                count: entries.count()?,
                conn: entries.conn()?,
            })
        }),
        "receive" => size(value).and_then(|size| {
            Ok(Operation::Receive {
                size,
                with: entries.word("with", ReceiveWith::from_word, ReceiveWith::WORDS)?,
                count: entries.count()?,
                conn: entries.conn()?,
            })
        }),
        "think" => time(value).and_then(|time| {
            let at = entries.pause()?;
            Ok(Operation::Think { time, at })
        }),
        "sleep" => time(value).and_then(|time| {
            let at = entries.pause()?;
            Ok(Operation::Sleep { time, at })
        }),
        "close" => options(value, "close", |options| {
            let by = options.word("by", CloseBy::from_word, CloseBy::WORDS)?;
            let by = by.unwrap_or(CloseBy::Listener);
            Ok(Operation::Close { by })
        }),
        _ => return looped(name, value, entries, place, depth),
    };
    let read = read.map_err(|what| wrong(format!("{name}: {what}")))?;
    entries.end(name).map_err(wrong)?;
    Ok(read)
}

fn send(value: &Raw, entries: &mut Entries<'_>) -> Result<Operation, String> {
    Ok(Operation::Send {
        size: size(value)?,
        with: entries.word("with", SendWith::from_word, SendWith::WORDS)?,
        count: entries.count()?,
        conn: entries.conn()?,
    })
}

fn looped(
    name: &str,
    value: &Raw,
    mut entries: Entries<'_>,
    place: &str,
    depth: usize,
) -> Result<Operation, String> {
    let wrong = |what: String| format!("operation {place}: {what}");
    let times = match (name, value) {
        ("for", _) => time(value)
            .map(Times::For)
            .map_err(|what| wrong(format!("for: {what}")))?,
        (_, Raw::Text(word)) if word == "forever" => Times::Forever,
        (_, Raw::Integer(count)) => u32::try_from(*count)
            .ok()
            .filter(|&count| count > 0)
            .map(Times::Count)
            .ok_or_else(|| wrong(format!("repeat: expected {COUNT}, or \"forever\"")))?,
        _ => return Err(wrong(format!("repeat: expected {COUNT}, or \"forever\""))),
    };
    let at_rate = match entries.take("at_rate") {
        None => None,
        Some(Raw::Text(text)) => {
            Some(units::per_s(text).map_err(|error| wrong(format!("at_rate: expected {error}")))?)
        }
        Some(_) => {
            return Err(wrong(
                "at_rate: expected passes per second such as \"100/s\"".into(),
            ));
        }
    };
    let body = entries.take("do").ok_or_else(|| {
        wrong(format!(
            "{name} needs do = [...]: what is done over and over"
        ))
    })?;
    entries.end(name).map_err(wrong)?;
    let body = operations(body, place, depth + 1)?;
    Ok(Operation::Loop {
        times,
        at_rate,
        body,
    })
}

const COUNT: &str = "a whole number from 1 to 4294967295";

/// Parses an operation that is a table of options, which may be empty.
fn options(
    value: &Raw,
    of: &str,
    read: impl FnOnce(&mut Entries<'_>) -> Result<Operation, String>,
) -> Result<Operation, String> {
    let Raw::Table(entries) = value else {
        return Err(match known_options(of) {
            [] => "expected {}: it has no options".to_string(),
            known => format!("expected {{}}, or a table with {}", known.join(", ")),
        });
    };
    let mut entries = Entries(entries.iter().collect());
    let operation = read(&mut entries)?;
    entries.end(of)?;
    Ok(operation)
}

fn size(value: &Raw) -> Result<MessageSize, String> {
    let one = |value: &Raw| {
        let bytes = match value {
            Raw::Integer(bytes) => u64::try_from(*bytes).ok(),
            Raw::Text(text) => units::bytes(text).ok(),
            _ => None,
        };
        let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
        bytes
            .filter(|bytes| (1..=Program::MESSAGE_MAX).contains(bytes))
            .ok_or_else(|| {
                "expected a size such as \"4KiB\" (1B to 64MiB), or [\"1KiB\", \"8KiB\"] for one at random from the first to the second".to_string()
            })
    };
    match value {
        Raw::List(items) => match items.as_slice() {
            [least, most] => {
                let (least, most) = (one(least)?, one(most)?);
                if least > most {
                    return Err("the first of two sizes is the smaller one".to_string());
                }
                Ok(MessageSize { least, most })
            }
            _ => Err("expected one size, or two: the least and the most".to_string()),
        },
        value => one(value).map(MessageSize::exactly),
    }
}

fn time(value: &Raw) -> Result<Duration, String> {
    let expected = || "expected a time such as \"1ms\" (ns, us, ms, s, min), to 1 hour".to_string();
    let Raw::Text(text) = value else {
        return Err(expected());
    };
    let time = units::duration(text).map_err(|_| expected())?;
    let is_sound = !time.is_zero() && time <= TIME_MAX;
    is_sound.then_some(time).ok_or_else(expected)
}

/// Entries of an operation's table that are not parsed yet.
struct Entries<'a>(Vec<&'a (String, Raw)>);

impl<'a> Entries<'a> {
    fn take(&mut self, key: &str) -> Option<&'a Raw> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(&self.0.remove(at).1)
    }

    fn word<T>(
        &mut self,
        key: &str,
        from_word: fn(&str) -> Option<T>,
        words: &[&str],
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let word = match value {
            Raw::Text(word) => from_word(word),
            _ => None,
        };
        let expected = || format!("{key}: expected one of \"{}\"", words.join("\", \""));
        word.map(Some).ok_or_else(expected)
    }

    fn count(&mut self) -> Result<u32, String> {
        let count = match self.take("count") {
            None => Some(1),
            Some(Raw::Integer(count)) => u32::try_from(*count).ok(),
            Some(_) => None,
        };
        let count = count.filter(|&count| count > 0);
        count.ok_or_else(|| format!("count: expected {COUNT}"))
    }

    /// Parses the number of a connection, from 1, and returns its index.
    fn conn(&mut self) -> Result<u8, String> {
        let most = Program::CONNECTIONS_MAX;
        let number = match self.take("conn") {
            None => Some(1),
            Some(Raw::Integer(number)) => u8::try_from(*number).ok(),
            Some(_) => None,
        };
        let number = number.filter(|number| (1..=most).contains(number));
        let index = number.map(|number| number - 1);
        index.ok_or_else(|| format!("conn: expected the number of a connection, 1 to {most}"))
    }

    fn switch(&mut self, key: &str) -> Result<bool, String> {
        match self.take(key) {
            None => Ok(false),
            Some(Raw::Boolean(on)) => Ok(*on),
            Some(_) => Err(format!("{key}: expected true or false")),
        }
    }

    fn pause(&mut self) -> Result<PauseAt, String> {
        let at = self.word("at", PauseAt::from_word, PauseAt::WORDS)?;
        Ok(at.unwrap_or(PauseAt::Here))
    }

    /// Refuses entries that are left.
    fn end(self, of: &str) -> Result<(), String> {
        let Some((key, _)) = self.0.first() else {
            return Ok(());
        };
        let known = known_options(of);
        if OPERATIONS.contains(&key.as_str()) {
            return Err(format!(
                "{of} and {key} are two operations: a table for each"
            ));
        }
        Err(match nearest(key, known.iter().copied()) {
            Some(near) => format!("{of} has no \"{key}\"; nearest is \"{near}\""),
            None if known.is_empty() => format!("{of} has no \"{key}\"; it has no options"),
            None => format!("{of} has no \"{key}\"; it has {}", known.join(", ")),
        })
    }
}

/// Keys of an operation, next to the key that names it or in the table after it.
fn known_options(of: &str) -> &'static [&'static str] {
    match of {
        "connect" => &["conn", "can_fail"],
        "accept" => &["conn"],
        "send" | "receive" => &["with", "count", "conn"],
        "sendfile" => &["count", "conn"],
        "think" | "sleep" => &["at"],
        "repeat" | "for" => &["at_rate", "do"],
        "close" => &["by"],
        _ => &[],
    }
}
