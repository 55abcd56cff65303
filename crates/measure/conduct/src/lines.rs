//! Input from another program: reads lines of a limited length.
//!
//! Does not know what a line means.

use std::io::{self, BufRead, Read};

/// Reads the next line, and returns it without its end. `None` at the end of the input, also if the last line has no end.
///
/// # Errors
/// The line has more than `max` bytes or is not UTF-8, or the input cannot be read.
pub fn read_line(source: &mut impl BufRead, max: usize) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    source
        .by_ref()
        .take(max as u64 + 1)
        .read_until(b'\n', &mut line)?;
    if line.len() > max {
        let reason = format!("sent a line of more than {} bytes", max);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line)
        .map(Some)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "sent a line that is not UTF-8"))
}

/// Shortens a text of another program for a message.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// Length limit of an excerpt: enough for a reason and its causes. A whole line can have megabytes.
const EXCERPT_CHARS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_bounded_and_a_line_without_an_end_is_none() {
        let mut source = &b"abc\nde\r\n\nrest"[..];
        let mut next = || read_line(&mut source, 4);
        assert_eq!(next().unwrap().as_deref(), Some("abc"));
        assert_eq!(next().unwrap().as_deref(), Some("de"));
        assert_eq!(next().unwrap().as_deref(), Some(""));
        assert_eq!(next().unwrap(), None);
        let kind = |text: &[u8]| read_line(&mut &text[..], 3).unwrap_err().kind();
        assert_eq!(kind(b"abcd"), io::ErrorKind::FileTooLarge);
        assert_eq!(kind(b"\xff\n"), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_excerpt_ends_between_characters() {
        let text = "é".repeat(EXCERPT_CHARS);
        assert_eq!(excerpt(&text), text);
        assert_eq!(excerpt(&format!("{text}x")), format!("{text}…"));
    }
}
