//! Foreign text made safe for a terminal, a CI log, a text table or CSV. Texts of a process, a
//! host, a record or a capture are data, and must not move a cursor, forge a line or begin a
//! command.
//!
//! Text is replaced where it enters ([`Printable`], [`printable_json`]). [`crate::Guard`] checks
//! all output in addition.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A text of foreign origin, as one printable line: see [`printable`]. Copies share it: the name of a process is that of each of
/// its connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Printable(Arc<str>);

impl Printable {
    /// Makes a printable line of bytes; invalid UTF-8 becomes U+FFFD.
    pub fn of_bytes(bytes: &[u8]) -> Printable {
        Printable::from(&*String::from_utf8_lossy(bytes))
    }

    /// The line as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Printable {
    fn from(text: &str) -> Printable {
        Printable(printable(text).into())
    }
}

impl From<String> for Printable {
    fn from(text: String) -> Printable {
        Printable::from(text.as_str())
    }
}

impl Deref for Printable {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Converts a text to one line that a terminal shows and does not obey.
///
/// C0 controls and DEL become their pictures (ESC is `␛`, a line feed `␊`). C1 controls,
/// bidirectional marks, and the separators U+2028 and U+2029 become `<U+202E>`. A word that a CI
/// log takes for a command (`::error::`, `##[error]`) begins with `∷` or `#＃` instead. Converting
/// the result again does not change it.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |_| false)
}

/// Makes a text of several lines printable like [`printable`] a line; line feeds and tabs stay.
pub fn printable_text(text: &str) -> Cow<'_, str> {
    replaced(text, is_layout)
}

/// True for a line feed or a tab.
pub(crate) fn is_layout(c: char) -> bool {
    matches!(c, '\n' | '\t')
}

/// True for a character that a terminal obeys or hides: a control, a bidirectional mark, a
/// separator of lines or paragraphs.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn replaced(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_plain = |c: char| stays(c) || !is_unprintable(c);
    if text.chars().all(is_plain) && !text.contains("::") && !text.contains("##") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (shown, taken) = if !is_plain(c) {
            push_visible(c, &mut out);
            ("", c.len_utf8())
        } else if begins_command(rest) && out.chars().next_back().is_none_or(char::is_whitespace) {
            ("∷", "::".len())
        } else if begins_old_command(rest) {
            ("#＃", "##".len())
        } else {
            (&rest[..c.len_utf8()], c.len_utf8())
        };
        out += shown;
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

fn push_visible(c: char, out: &mut String) {
    match c {
        '\0'..='\x1f' => out.extend(char::from_u32(0x2400 + u32::from(c))),
        '\x7f' => out.push('␡'),
        _ => *out += &format!("<U+{:04X}>", u32::from(c)),
    }
}

/// True for `::word` followed by the end, a blank or `::`, which GitHub's runner takes for a
/// command at the start of a line. False for an IPv6 address.
fn begins_command(text: &str) -> bool {
    let Some(word) = text.strip_prefix("::") else {
        return false;
    };
    let rest = word.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '-');
    let ends = rest.starts_with("::") || rest.chars().next().is_none_or(char::is_whitespace);
    rest.len() < word.len() && ends
}

/// True for `##[` and `##word[`, which GitHub's runner, Azure and TeamCity take for a command
/// anywhere in a line.
fn begins_old_command(text: &str) -> bool {
    text.strip_prefix("##").is_some_and(|word| {
        word.trim_start_matches(|c: char| c.is_ascii_alphabetic())
            .starts_with('[')
    })
}

/// Makes the strings of a JSON text printable lines, keys included: escapes such as `\n` or
/// `\u001b` and raw characters are replaced as by [`printable`], CI commands too. A text that is
/// not JSON stays invalid.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii() && byte != b'\\' && byte != 0x7f;
    if json.bytes().all(is_plain) && !json.contains("::") && !json.contains("##") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    let mut rest = json;
    while let Some(quote) = rest.find('"') {
        let (before, text) = rest.split_at(quote + 1);
        out += before;
        let length = text_length(text);
        let quoted = rest.get(quote..quote + 1 + length + 1).unwrap_or_default();
        match serde_json::from_str::<String>(quoted) {
            Ok(plain) if matches!(printable(&plain), Cow::Owned(_)) => {
                let shown = serde_json::to_string(&printable(&plain));
                let shown = shown.expect("a text is JSON");
                out += &shown[1..shown.len() - 1];
            }
            _ => out += &text[..length],
        }
        rest = &text[length..];
        if let Some(after) = rest.strip_prefix('"') {
            out.push('"');
            rest = after;
        }
    }
    out += rest;
    Cow::Owned(out)
}

/// Bytes of a JSON string before its closing quote.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.unwrap_or(text.len())
}

/// Escapes characters of a JSON text that a terminal obeys, as `\u` escapes: the same data, safe to
/// show.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let is_plain = |c: char| is_layout(c) || !is_unprintable(c);
    if json.chars().all(is_plain) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_plain(c) {
            true => out.push(c),
            false => out += &format!("\\u{:04x}", u32::from(c)),
        }
    }
    Cow::Owned(out)
}

/// Makes a CSV field text for a spreadsheet, not a formula: a field that begins with `=`, `+`, `-`,
/// `@`, a tab or a carriage return and is no number gets an apostrophe before it.
pub fn csv_field(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
    match is_formula && text.parse::<f64>().is_err() {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_obeys_is_seen_and_not_obeyed() {
        let title = "\x1b]0;x\x07";
        assert_eq!(printable(title), "␛]0;x␇");
        assert_eq!(printable("a\r\nb\tc\x7f"), "a␍␊b␉c␡");
        assert_eq!(
            printable("\u{9b}31m\u{202e}\u{2028}"),
            "<U+009B>31m<U+202E><U+2028>"
        );
        assert_eq!(printable_text("a\n\tb\x1b"), "a\n\tb␛");
        assert_eq!(Printable::of_bytes(b"\xffa\n").as_str(), "\u{fffd}a␊");
        assert!(matches!(printable("größer – 5 µs"), Cow::Borrowed(_)));
    }

    #[test]
    fn no_word_begins_a_command_of_ci() {
        assert_eq!(printable("::error::x"), "∷error::x");
        assert_eq!(printable("a ::add-mask::x"), "a ∷add-mask::x");
        assert_eq!(printable_text("a\n ::group file=b"), "a\n ∷group file=b");
        assert_eq!(
            printable("a ##[error]b ##vso[task]"),
            "a #＃[error]b #＃vso[task]"
        );
        for plain in [
            "std::io::Write",
            "::1",
            "::ffff:10.0.0.1",
            "[::]:80",
            "## a",
        ] {
            assert_eq!(printable(plain), plain);
        }
    }

    #[test]
    fn only_texts_of_json_change() {
        let json = "{\"a\\n\": [1, \"\\u001b]0;\", \"\\\"\\\\n ::error::\", \"\u{9b}\", \"\\ud83d\\ude00\"]}\n";
        let shown =
            "{\"a␊\": [1, \"␛]0;\", \"\\\"\\\\n ∷error::\", \"<U+009B>\", \"\\ud83d\\ude00\"]}\n";
        assert_eq!(printable_json(json), shown);
        assert_eq!(printable_json("{\"torn\\"), "{\"torn\\");
        assert_eq!(escaped_json("\"\u{9b}\x7fé\"\n"), "\"\\u009b\\u007fé\"\n");
    }

    #[test]
    fn a_formula_is_text_and_a_number_a_number() {
        assert_eq!(csv_field("=1+1"), "'=1+1");
        assert_eq!(csv_field("@SUM(A1)"), "'@SUM(A1)");
        assert_eq!(csv_field("-2+3"), "'-2+3");
        for plain in ["-2.5e3", "+1", "", "a=b", "100"] {
            assert_eq!(csv_field(plain), plain);
        }
    }

    /// Text made of pieces that terminals and CI systems may obey.
    fn hostile() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            any::<char>().prop_map(String::from),
            (0u32..0xa0).prop_filter_map("a character", |c| char::from_u32(c).map(String::from)),
            (0x2000u32..0x2070)
                .prop_filter_map("a character", |c| char::from_u32(c).map(String::from)),
            prop::sample::select(vec![
                "::", "##", "[", "error", " ", "\n", "\"", "\\", "\x1b["
            ])
            .prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn the_printable_form_is_one_line_without_controls_and_stable(text in hostile()) {
            let shown = printable(&text);
            prop_assert!(!shown.chars().any(is_unprintable), "{shown:?}");
            prop_assert_eq!(printable(&shown), shown.clone());
            for word in shown.split_whitespace() {
                prop_assert!(!begins_command(word), "{word:?}");
            }
            prop_assert!(!shown.contains("##["));
        }

        #[test]
        fn texts_of_printable_json_are_the_printable_texts(key in hostile(), value in hostile()) {
            let json = serde_json::json!({ key.clone(): [value.clone(), 1] }).to_string();
            let shown: serde_json::Value = serde_json::from_str(&printable_json(&json)).unwrap();
            let expected = serde_json::json!({ printable(&key): [printable(&value), 1] });
            prop_assert_eq!(shown, expected);
            let escaped = escaped_json(&json);
            prop_assert!(!escaped.chars().any(is_unprintable));
            let same: serde_json::Value = serde_json::from_str(&escaped).unwrap();
            prop_assert_eq!(same, serde_json::from_str::<serde_json::Value>(&json).unwrap());
        }
    }
}
