//! Parser of programs.

use std::time::Duration;

use super::{CloseBy, MessageSize, Operation, PauseAt, Program, ProgramError, Times};
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
    /// The operation, its mistake, and what was expected.
    pub fn read(raw: &Raw) -> Result<Program, ProgramError> {
        let Raw::List(items) = raw else {
            return Err(ProgramError::expected(LIST));
        };
        Program::new(operations(items, "", 0)?)
    }
}

/// Description of a program, for error messages.
pub(crate) const LIST: &str =
    "a list of operations such as [{ send = \"1KiB\" }, { receive = \"8KiB\" }]";

/// Parses operations. `within`: place of the loop that contains them, for messages.
fn operations(items: &[Raw], within: &str, depth: usize) -> Result<Vec<Operation>, ProgramError> {
    if depth > Program::DEPTH_MAX {
        return Err(ProgramError::TooDeep);
    }
    let place = |index: usize| match within {
        "" => (index + 1).to_string(),
        _ => format!("{within}.{}", index + 1),
    };
    let numbered = items.iter().enumerate().map(|(index, item)| {
        let place = place(index);
        operation(item, &place, depth).map_err(|wrong| match wrong {
            // An error in the body of a loop has its place already.
            ProgramError::Operation(..) | ProgramError::TooDeep => wrong,
            _ => ProgramError::Operation(place, wrong.into()),
        })
    });
    numbered.collect()
}

fn operation(raw: &Raw, place: &str, depth: usize) -> Result<Operation, ProgramError> {
    let Raw::Table(entries) = raw else {
        return Err(ProgramError::expected(
            "a table such as { send = \"1KiB\" }",
        ));
    };
    let mut entries = Entries(entries.iter().collect());
    let Some((name, value)) = OPERATIONS
        .iter()
        .find_map(|name| Some((*name, entries.take(name)?)))
    else {
        return Err(match entries.0.first() {
            None => ProgramError::Empty(OPERATIONS.join(", ")),
            Some((key, _)) if key == "forward" => ProgramError::Rule(
                "forward is the part of a relay: topology = \"chain\" with relay_mode",
            ),
            Some((key, _)) => {
                ProgramError::NoOperation(key.clone(), hint(key, &OPERATIONS, "there are"))
            }
        });
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
    let read = read.map_err(|wrong| wrong.at(name))?;
    entries.end(name)?;
    Ok(read)
}

fn send(value: &Raw, entries: &mut Entries<'_>) -> Result<Operation, ProgramError> {
    Ok(Operation::Send {
        size: size(value)?,
        with: entries.word("with", SendWith::from_word, SendWith::WORDS)?,
        count: entries.count()?,
        conn: entries.conn()?,
    })
}

fn looped(
    name: &'static str,
    value: &Raw,
    mut entries: Entries<'_>,
    place: &str,
    depth: usize,
) -> Result<Operation, ProgramError> {
    let times = match (name, value) {
        ("for", _) => time(value).map(Times::For),
        (_, Raw::Text(word)) if word == "forever" => Ok(Times::Forever),
        (_, value) => count(value)
            .map(Times::Count)
            .ok_or_else(|| ProgramError::expected(format!("{COUNT}, or \"forever\""))),
    };
    let times = times.map_err(|wrong| wrong.at(name))?;
    let at_rate = match entries.take("at_rate") {
        None => Ok(None),
        Some(Raw::Text(text)) => units::per_s(text)
            .map(Some)
            .map_err(|error| error.to_string()),
        Some(_) => Err("passes per second such as \"100/s\"".to_string()),
    };
    let at_rate = at_rate.map_err(|what| ProgramError::Expected(what).at("at_rate"))?;
    let body = entries.take("do").ok_or(ProgramError::NoBody(name))?;
    entries.end(name)?;
    let Raw::List(body) = body else {
        return Err(ProgramError::expected(LIST).at("do"));
    };
    let body = operations(body, place, depth + 1)?;
    Ok(Operation::Loop {
        times,
        at_rate,
        body,
    })
}

const COUNT: &str = "a whole number from 1 to 4294967295";

/// Parses a [`COUNT`]. `None` if the value is another one.
fn count(value: &Raw) -> Option<u32> {
    let Raw::Integer(count) = value else {
        return None;
    };
    u32::try_from(*count).ok().filter(|&count| count > 0)
}

/// Parses an operation that is a table of options, which may be empty.
fn options(
    value: &Raw,
    of: &'static str,
    read: impl FnOnce(&mut Entries<'_>) -> Result<Operation, ProgramError>,
) -> Result<Operation, ProgramError> {
    let Raw::Table(entries) = value else {
        return Err(ProgramError::Expected(match known_options(of) {
            [] => "{}: it has no options".to_string(),
            known => format!("{{}}, or a table with {}", known.join(", ")),
        }));
    };
    let mut entries = Entries(entries.iter().collect());
    let operation = read(&mut entries)?;
    entries.end(of)?;
    Ok(operation)
}

fn size(value: &Raw) -> Result<MessageSize, ProgramError> {
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
                ProgramError::expected("a size such as \"4KiB\" (1B to 64MiB), or [\"1KiB\", \"8KiB\"] for one at random from the first to the second")
            })
    };
    match value {
        Raw::List(items) => match items.as_slice() {
            [least, most] => {
                let (least, most) = (one(least)?, one(most)?);
                if least > most {
                    let rule = "the first of two sizes is the smaller one";
                    return Err(ProgramError::Rule(rule));
                }
                Ok(MessageSize { least, most })
            }
            _ => Err(ProgramError::expected(
                "one size, or two: the least and the most",
            )),
        },
        value => one(value).map(MessageSize::exactly),
    }
}

fn time(value: &Raw) -> Result<Duration, ProgramError> {
    let time = match value {
        Raw::Text(text) => units::duration(text).ok(),
        _ => None,
    };
    time.filter(|time| !time.is_zero() && *time <= TIME_MAX)
        .ok_or_else(|| {
            ProgramError::expected("a time such as \"1ms\" (ns, us, ms, s, min), to 1 hour")
        })
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
        key: &'static str,
        from_word: fn(&str) -> Option<T>,
        words: &[&str],
    ) -> Result<Option<T>, ProgramError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let word = match value {
            Raw::Text(word) => from_word(word),
            _ => None,
        };
        let expected = || format!("one of \"{}\"", words.join("\", \""));
        let wrong = || ProgramError::Expected(expected()).at(key);
        word.map(Some).ok_or_else(wrong)
    }

    fn count(&mut self) -> Result<u32, ProgramError> {
        let count = self.take("count").map_or(Some(1), count);
        count.ok_or_else(|| ProgramError::expected(COUNT).at("count"))
    }

    /// Parses the number of a connection, from 1, and returns its index.
    fn conn(&mut self) -> Result<u8, ProgramError> {
        let most = Program::CONNECTIONS_MAX;
        let number = match self.take("conn") {
            None => Some(1),
            Some(Raw::Integer(number)) => u8::try_from(*number).ok(),
            Some(_) => None,
        };
        let number = number.filter(|number| (1..=most).contains(number));
        let index = number.map(|number| number - 1);
        index.ok_or_else(|| {
            ProgramError::expected(format!("the number of a connection, 1 to {most}")).at("conn")
        })
    }

    fn switch(&mut self, key: &'static str) -> Result<bool, ProgramError> {
        match self.take(key) {
            None => Ok(false),
            Some(Raw::Boolean(on)) => Ok(*on),
            Some(_) => Err(ProgramError::expected("true or false").at(key)),
        }
    }

    fn pause(&mut self) -> Result<PauseAt, ProgramError> {
        let at = self.word("at", PauseAt::from_word, PauseAt::WORDS)?;
        Ok(at.unwrap_or(PauseAt::Here))
    }

    /// Refuses entries that are left.
    fn end(self, of: &'static str) -> Result<(), ProgramError> {
        let Some((key, _)) = self.0.first() else {
            return Ok(());
        };
        if OPERATIONS.contains(&key.as_str()) {
            return Err(ProgramError::Two(of, key.clone()));
        }
        let hint = match known_options(of) {
            [] => "it has no options".to_string(),
            known => hint(key, known, "it has"),
        };
        Err(ProgramError::NoKey(of, key.clone(), hint))
    }
}

/// Word that was probably meant, else all that are known after the words `all`.
fn hint(word: &str, known: &[&str], all: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("nearest is \"{near}\""),
        None => format!("{all} {}", known.join(", ")),
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
