//! Quoting of words for a shell.

/// Joins words to a command line for bash: one line, without control characters.
pub fn command_line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(shown).collect();
    words.join(" ")
}

fn shown(word: &str) -> String {
    if !word.chars().any(char::is_control) {
        return quoted(word);
    }
    let mut text = "$'".to_string();
    for c in word.chars() {
        match c {
            '\\' | '\'' => text.extend(['\\', c]),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    text += &format!("\\x{byte:02x}");
                }
            }
            c => text.push(c),
        }
    }
    text + "'"
}

/// Quotes a word for any POSIX shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_quoted_word_is_read_back_by_a_shell() {
        for word in ["plain", "two words", "it's", "$HOME `x` \"", ""] {
            let script = format!("printf %s {}", quoted(word));
            let ran = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(ran.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_shown_command_is_one_line_and_is_read_back() {
        let words = ["a b", "it's", "\u{1b}[2J\n", "\u{9b}\\"];
        let text = command_line(words);
        assert!(!text.chars().any(char::is_control), "{text}");
        let script = format!("printf '%s\\0' {text}");
        let Ok(ran) = Command::new("bash").args(["-c", &script]).output() else {
            return; // No bash here, and POSIX has $'…' only since 2024.
        };
        let read: Vec<&[u8]> = ran.stdout.split(|byte| *byte == 0).collect();
        let words = words.map(str::as_bytes);
        assert_eq!(read[..4], words);
    }
}
