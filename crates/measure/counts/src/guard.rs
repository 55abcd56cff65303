//! Last check of text before output: nothing that a terminal obeys passes, except colours.

use std::borrow::Cow;
use std::io::{self, Write};

use crate::printable::{escaped_json, printable_text};

/// Form of the text, which decides how a character is made harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// Lines for a reader, or CSV: as by [`printable_text`], but colours (`ESC [ 1 m`) pass.
    Lines,
    /// JSON: as by [`escaped_json`], which keeps the data.
    Json,
}

/// Writes text with its unprintable characters replaced; line feeds and tabs pass. An incomplete
/// line is held until its end or `flush`.
#[derive(Debug)]
pub struct Guard<W> {
    out: W,
    form: TextForm,
    /// The incomplete line.
    held: Vec<u8>,
}

impl<W: Write> Guard<W> {
    /// Makes a guard that writes to `out`.
    pub fn new(out: W, form: TextForm) -> Guard<W> {
        Guard {
            out,
            form,
            held: Vec::new(),
        }
    }

    /// Writes the first `length` held bytes.
    fn release(&mut self, length: usize) -> io::Result<()> {
        let rest = self.held.split_off(length);
        let bytes = std::mem::replace(&mut self.held, rest);
        let text = String::from_utf8_lossy(&bytes);
        let shown = match self.form {
            TextForm::Lines => coloured_text(&text),
            TextForm::Json => escaped_json(&text),
        };
        self.out.write_all(shown.as_bytes())
    }
}

impl<W: Write> Write for Guard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.held.len();
        self.held.extend_from_slice(bytes);
        if let Some(end) = bytes.iter().rposition(|&byte| byte == b'\n') {
            self.release(before + end + 1)?;
        } else if self.held.len() > LINE_MAX {
            // An incomplete character is held until its end.
            let cut = std::str::from_utf8(&self.held)
                .err()
                .filter(|error| error.error_len().is_none())
                .map_or(self.held.len(), |error| error.valid_up_to());
            self.release(cut)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.release(self.held.len())?;
        self.out.flush()
    }
}

/// Makes a text printable as [`printable_text`] does, but lets colours pass: `ESC [`, digits and
/// semicolons, `m`.
fn coloured_text(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return printable_text(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(escape) = rest.find('\x1b') {
        out += &printable_text(&rest[..escape]);
        let length = colour_length(&rest[escape..]);
        match length {
            0 => out.push('␛'),
            _ => out += &rest[escape..escape + length],
        }
        rest = &rest[escape + length.max(1)..];
    }
    Cow::Owned(out + &printable_text(rest))
}

/// Length of the colour sequence at the start of a text; 0 without one.
fn colour_length(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\x1b[") else {
        return 0;
    };
    let digits = numbers.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
    match digits.starts_with('m') {
        true => text.len() - digits.len() + 1,
        false => 0,
    }
}

/// Limit of held bytes: a line of JSON may be a gigabyte, and a longer line is written in pieces.
const LINE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded(form: TextForm, pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut guard = Guard::new(&mut out, form);
        for piece in pieces {
            guard.write_all(piece).unwrap();
        }
        guard.flush().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_are_seen_and_colours_pass() {
        let lines = |text: &str| guarded(TextForm::Lines, &[text.as_bytes()]);
        assert_eq!(lines("\x1b[1;32ma\x1b[0m\tb\n"), "\x1b[1;32ma\x1b[0m\tb\n");
        assert_eq!(lines("\x1b[2J\x1b]0;x\x07\r\n"), "␛[2J␛]0;x␇␍\n");
        assert_eq!(lines("\x1b[31"), "␛[31");
        assert_eq!(lines("ok\n ::error::x\n"), "ok\n ∷error::x\n");
        assert_eq!(
            guarded(TextForm::Json, &[b"\"\xc2\x9b\"\n"]),
            "\"\\u009b\"\n"
        );
    }

    #[test]
    fn what_comes_in_pieces_is_seen_whole() {
        let pieces: Vec<&[u8]> = "\u{9b}µ\x1b[1mx\x1b]\n".as_bytes().chunks(1).collect();
        assert_eq!(guarded(TextForm::Lines, &pieces), "<U+009B>µ\x1b[1mx␛]\n");
        let long = "µ".repeat(LINE_MAX);
        let pieces: Vec<&[u8]> = long.as_bytes().chunks(1021).collect();
        assert_eq!(guarded(TextForm::Lines, &pieces), long);
    }
}
