//! Wrapping of text at 100 columns, which fit a terminal next to another window, or a mail.

const COLUMNS: usize = 100;

/// Appends `first` and `text`, broken between words. Further lines begin with `indent` spaces. A
/// word longer than a line gets a line of its own.
pub(crate) fn wrapped(out: &mut String, first: &str, indent: usize, text: &str) {
    *out += first;
    let mut column = first.chars().count();
    let mut is_begun = false;
    for word in text.split(' ') {
        let length = word.chars().count();
        if is_begun && column + 1 + length > COLUMNS {
            *out = format!("{}\n{:indent$}", out.trim_end(), "");
            column = indent;
        } else if is_begun {
            *out += " ";
            column += 1;
        }
        *out += word;
        column += length;
        is_begun = true;
    }
    *out += "\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_between_words_before_column_101() {
        let mut out = String::new();
        wrapped(&mut out, "  1. ", 5, &"abcdefghi ".repeat(20));
        let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
        // Nine words of nine letters and the spaces between them fill 89 of 95 columns.
        assert_eq!(lines[0].len(), 94);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("     abc"), "{out}");
        let mut out = String::new();
        wrapped(&mut out, "", 2, &format!("a {} b", "x".repeat(120)));
        assert_eq!(out.lines().count(), 3, "{out}");
    }
}
