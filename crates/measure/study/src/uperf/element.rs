//! Reader of profiles. It takes XML and what uperf's own reader takes besides (parse.c of uperf
//! 1.0.8): each such liberty becomes a note with its line. It accepts no entities except XML's five,
//! and no document types.
//!
//! uperf reads words, not elements: a tag begins an element, and it ends where the next one of its
//! kind begins. So elements have a fixed place here: profile, group, transaction, flowop.

use super::error::{Note, ProfileError, shown};
use super::rows;

/// Element with its children.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) attributes: Vec<Attribute>,
    pub(super) children: Vec<Element>,
    /// True if its tag ends with `/>`.
    is_closed: bool,
}

/// Attribute. Its value is split into words, each with its line, because options are often on lines
/// of their own.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) words: Vec<Word>,
}

#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) line: usize,
}

impl Attribute {
    /// Whole value, with a space between words.
    pub(super) fn text(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|word| word.text.as_str()).collect();
        words.join(" ")
    }
}

/// Elements, each of which contains the next.
const LEVELS: [&str; 4] = ["profile", "group", "transaction", "flowop"];
const FLOWOP: usize = 3;

/// Parses a text to the profile, and the notes on what is no XML.
pub(super) fn read(text: &str) -> Result<(Element, Vec<Note>), ProfileError> {
    let mut reader = Reader {
        text,
        at: 0,
        line: 1,
        open: Vec::new(),
        root: None,
        notes: Vec::new(),
    };
    if let Some(at) = text.find('\0') {
        reader.go_to(at);
        return Err(reader.wrong("", "a NUL byte: no XML"));
    }
    if text.starts_with('\u{feff}') {
        reader.go_to('\u{feff}'.len_utf8());
    }
    while reader.next()? {}
    reader.close_from(0);
    match reader.root {
        Some(root) => Ok((root, reader.notes)),
        None => Err(ProfileError::new(
            1,
            "",
            "no profile: expected <profile> with groups in it",
        )),
    }
}

const DTD: &str = "a document type (DTD), with which a file could grow without end: take it out";

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Line of `at`.
    line: usize,
    /// Open elements: a profile, its group, its transaction, its flowop.
    open: Vec<Element>,
    root: Option<Element>,
    notes: Vec<Note>,
}

impl<'a> Reader<'a> {
    fn wrong(&self, name: &str, what: &str) -> ProfileError {
        ProfileError::new(self.line, name, what)
    }

    fn note(&mut self, line: usize, text: String) {
        self.notes.push(Note { line, text });
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn go_to(&mut self, at: usize) {
        let passed = &self.text.as_bytes()[self.at..at];
        self.line += passed.iter().filter(|&&byte| byte == b'\n').count();
        self.at = at;
    }

    /// Goes behind a text, if it is next.
    fn takes(&mut self, text: &str) -> bool {
        let is_next = self.rest().starts_with(text);
        if is_next {
            self.go_to(self.at + text.len());
        }
        is_next
    }

    /// Goes behind the end of a part. `otherwise`: the error without an end.
    fn skip(&mut self, end: &str, otherwise: &str) -> Result<(), ProfileError> {
        match self.rest().find(end) {
            Some(length) => {
                self.go_to(self.at + length + end.len());
                Ok(())
            }
            None => Err(self.wrong("", otherwise)),
        }
    }

    /// Goes behind spaces. uperf takes all control characters for spaces.
    fn skip_spaces(&mut self) {
        let rest = self.rest();
        let word = rest.trim_start_matches(is_space);
        self.go_to(self.at + rest.len() - word.len());
    }

    /// Takes characters as long as they belong to a word.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.go_to(self.at + end);
        &rest[..end]
    }

    /// Reads a tag, a comment or the like. False at the end.
    fn next(&mut self) -> Result<bool, ProfileError> {
        self.skip_spaces();
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(false);
        }
        if rest.starts_with("<!--") {
            self.skip("-->", "a comment without its end -->")?;
        } else if rest.starts_with("<?") {
            self.skip("?>", "a declaration without its end ?>")?;
        } else if rest.starts_with("<![CDATA[") {
            return Err(self.wrong("", "CDATA: a profile has no text"));
        } else if rest.starts_with("<!") {
            return Err(self.wrong("", DTD));
        } else if rest.starts_with('&') {
            return Err(self.wrong("", "an entity: a profile has no text"));
        } else if self.takes("</") {
            self.closing_tag()?;
        } else if self.takes("<") {
            self.opening_tag()?;
        } else if self.takes("/>") || self.takes(">") {
            self.note(self.line, "a > that closes nothing".to_string());
        } else {
            let word = self.word(|c| !is_space(c) && c != '<');
            let what = "text between the elements: a profile has none";
            return Err(self.wrong(word, what));
        }
        Ok(true)
    }

    /// Reads the name in a tag and returns its level.
    fn name(&mut self) -> Result<usize, ProfileError> {
        let line = self.line;
        self.skip_spaces();
        if self.rest().is_empty() {
            return Err(ProfileError::new(line, "", "a tag without its closing >"));
        }
        let is_name = |c: char| !is_space(c) && !"</>=\"'".contains(c);
        let name = self.word(is_name);
        let lower = name.to_ascii_lowercase();
        let level = LEVELS.iter().position(|level| lower.starts_with(level));
        let Some(level) = level else {
            return Err(rows::no_element(line, name));
        };
        if lower != LEVELS[level] {
            let text = format!("<{}>: uperf reads it as <{}>", shown(name), LEVELS[level]);
            self.note(line, text);
        }
        Ok(level)
    }

    fn closing_tag(&mut self) -> Result<(), ProfileError> {
        let line = self.line;
        let level = self.name()?;
        let name = LEVELS[level];
        self.skip_spaces();
        if !self.takes(">") {
            self.note(line, format!("</{name} without its >"));
        }
        match self.open.get(level) {
            Some(element) if !element.is_closed => {
                self.close_from(level + 1);
                // The element itself is closed by this tag.
                self.open[level].is_closed = true;
                self.close_from(level);
            }
            _ if level == FLOWOP => {
                let what = "closes nothing: it was not opened";
                return Err(ProfileError::new(line, "", format!("</{name}> {what}")));
            }
            _ => self.note(line, format!("</{name}> closes nothing")),
        }
        Ok(())
    }

    /// Closes the open elements of this level and those inside it. An element that no tag closed
    /// becomes a note.
    fn close_from(&mut self, level: usize) {
        while self.open.len() > level
            && let Some(done) = self.open.pop()
        {
            if !done.is_closed {
                self.note(done.line, format!("</{}> is left out", done.name));
            }
            match self.open.last_mut() {
                Some(parent) => parent.children.push(done),
                None => self.root = Some(done),
            }
        }
    }

    fn opening_tag(&mut self) -> Result<(), ProfileError> {
        let line = self.line;
        let level = self.name()?;
        self.close_from(level);
        let name = LEVELS[level];
        match level.checked_sub(1) {
            None => {
                if let Some(before) = self.root.take() {
                    self.note(line, "a second profile: its groups are added".to_string());
                    self.open.push(before);
                    self.open[0].is_closed = false;
                    return self.attributes(level);
                }
            }
            Some(outer) if self.open.len() == level => {
                let outer = &self.open[outer];
                if outer.is_closed {
                    let text = format!("<{name}> after <{}/>: it is part of it", outer.name);
                    self.note(line, text);
                }
            }
            Some(0) => {
                self.note(line, format!("<{name}> outside of a profile"));
                let profile = self.root.take();
                self.open.push(profile.unwrap_or_else(|| new(0, line)));
            }
            Some(outer) => {
                let what = format!("found outside of a <{}>", LEVELS[outer]);
                return Err(ProfileError::new(line, name, what));
            }
        }
        self.open.push(new(level, line));
        self.attributes(level)
    }

    /// Reads the attributes of the last open element, and the end of its tag.
    fn attributes(&mut self, level: usize) -> Result<(), ProfileError> {
        let line = self.line;
        loop {
            self.skip_spaces();
            if self.takes("/>") {
                self.open[level].is_closed = true;
                return Ok(());
            }
            if self.takes(">") {
                // A flowop has nothing inside it: only `</flowop>` may follow.
                return Ok(());
            }
            match self.rest().chars().next() {
                None => {
                    return Err(ProfileError::new(line, "", "a tag without its closing >"));
                }
                Some('<') => {
                    let text = format!("<{} without its closing >", LEVELS[level]);
                    self.note(line, text);
                    return Ok(());
                }
                Some(_) => self.attribute(level)?,
            }
        }
    }

    fn attribute(&mut self, level: usize) -> Result<(), ProfileError> {
        let line = self.line;
        let name = self.word(|c| !is_space(c) && !"</>=\"'".contains(c));
        if name.is_empty() {
            let word = self.word(|c| !is_space(c) && c != '<');
            return Err(ProfileError::new(line, word, "no attribute"));
        }
        self.skip_spaces();
        if !self.takes("=") {
            return Err(self.wrong(name, "an attribute without ="));
        }
        self.skip_spaces();
        let line = self.line;
        let words = self.value(name)?;
        let attribute = Attribute {
            name: name.to_string(),
            line,
            words,
        };
        let owner = rows::owner(name, LEVELS[level]);
        let owner = LEVELS.iter().position(|level| Some(*level) == owner);
        let owner = match owner {
            Some(owner) if owner < level => {
                let text = format!(
                    "{} in <{}>: uperf takes it for the <{}>'s",
                    shown(name),
                    LEVELS[level],
                    LEVELS[owner]
                );
                self.note(line, text);
                owner
            }
            _ => level,
        };
        let same = |other: &&mut Attribute| other.name.eq_ignore_ascii_case(name);
        match self.open[owner].attributes.iter_mut().find(same) {
            Some(before) => {
                *before = attribute;
                self.note(line, format!("{}: a second time: it counts", shown(name)));
            }
            None => self.open[owner].attributes.push(attribute),
        }
        Ok(())
    }

    /// Reads a value. It ends with its quote, and without quotes before a space or the tag's end.
    fn value(&mut self, name: &str) -> Result<Vec<Word>, ProfileError> {
        let line = self.line;
        for quote in ["\"", "'"] {
            if self.takes(quote) {
                let rest = self.rest();
                let Some(end) = rest.find(quote) else {
                    let what = "a value without its closing quote";
                    return Err(ProfileError::new(line, name, what));
                };
                let words = words(&rest[..end], line)?;
                self.go_to(self.at + end + 1);
                return Ok(words);
            }
        }
        let rest = self.rest();
        let ends = |(at, c): (usize, char)| {
            is_space(c) || "<>\"".contains(c) || rest[at..].starts_with("/>")
        };
        let end = rest.char_indices().find(|part| ends(*part));
        let value = &rest[..end.map_or(rest.len(), |(at, _)| at)];
        if value.is_empty() {
            return Err(self.wrong(name, "an attribute without a value"));
        }
        if rest[value.len()..].starts_with('"') {
            return Err(self.wrong(name, "a value that begins before its quote"));
        }
        let text = format!("{}={}: a value without quotes", shown(name), shown(value));
        self.note(line, text);
        self.go_to(self.at + value.len());
        words(value, line)
    }
}

fn new(level: usize, line: usize) -> Element {
    Element {
        name: LEVELS[level].to_string(),
        line,
        attributes: Vec::new(),
        children: Vec::new(),
        is_closed: false,
    }
}

fn is_space(c: char) -> bool {
    c <= ' '
}

/// Splits a value that begins on a line into words.
fn words(value: &str, line: usize) -> Result<Vec<Word>, ProfileError> {
    let mut words = Vec::new();
    for (lines, part) in value.split('\n').enumerate() {
        let line = line + lines;
        for word in part.split(is_space).filter(|word| !word.is_empty()) {
            let text = unescape(word).ok_or_else(|| {
                ProfileError::new(line, word, "an entity that is none of XML's own five")
            })?;
            words.push(Word { text, line });
        }
    }
    Ok(words)
}

/// Replaces XML's five entities. `None` for others.
fn unescape(word: &str) -> Option<String> {
    let mut parts = word.split('&');
    let mut text = parts.next()?.to_string();
    for part in parts {
        let (entity, rest) = part.split_once(';')?;
        text.push(match entity {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            _ => return None,
        });
        text += rest;
    }
    Some(text)
}
