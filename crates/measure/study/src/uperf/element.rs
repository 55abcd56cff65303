//! XML parser that makes elements with their lines. It accepts no entities except XML's five, no
//! document types, and no deeper nesting than a profile needs.

use quick_xml::Reader;
use quick_xml::errors::{Error, IllFormedError, SyntaxError};
use quick_xml::escape::unescape;
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesStart, Event};
use tcpcost_counts::printable;

/// Error with its place.
#[derive(Debug)]
pub(super) struct ProfileError {
    /// Line, from 1.
    pub(super) line: usize,
    /// Name of the element, attribute or option. Empty for a place without a name.
    pub(super) name: String,
    pub(super) what: String,
}

impl ProfileError {
    pub(super) fn new(line: usize, name: &str, what: impl Into<String>) -> ProfileError {
        ProfileError {
            line,
            name: shown(name),
            what: what.into(),
        }
    }
}

/// Makes a word of the file safe for any terminal, and cuts it if it is long.
pub(super) fn shown(word: &str) -> String {
    let word = printable(word);
    let mut text: String = word.chars().take(SHOWN).collect();
    if word.chars().count() > SHOWN {
        text.push('…');
    }
    text
}

const SHOWN: usize = 60;

/// XML element with its children.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) attributes: Vec<Attribute>,
    pub(super) children: Vec<Element>,
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

/// Limit of nested elements. A profile has four.
const DEPTH_MAX: usize = 8;

/// Parses a text to its outermost element.
pub(super) fn read(text: &str) -> Result<Element, ProfileError> {
    let lines = Lines(text);
    if let Some(at) = text.find('\0') {
        return Err(ProfileError::new(lines.at(at), "", "a NUL byte: no XML"));
    }
    let mut reader = Reader::from_str(text);
    // Elements that are open, the outermost first.
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    loop {
        let at = position(reader.buffer_position());
        let event = reader.read_event().map_err(|error| {
            let line = lines.at(position(reader.error_position()));
            malformed(line, &error)
        })?;
        let line = lines.at(at);
        let wrong = |what: &str| Err(ProfileError::new(line, "", what));
        match event {
            Event::Start(tag) | Event::Empty(tag) if open.len() >= DEPTH_MAX => {
                let name = String::from_utf8_lossy(tag.name().into_inner()).into_owned();
                return Err(ProfileError::new(
                    line,
                    &name,
                    "elements inside each other too deep",
                ));
            }
            Event::Start(tag) => open.push(element(&tag, at, &lines)?),
            Event::Empty(tag) => {
                let done = element(&tag, at, &lines)?;
                close(done, &mut open, &mut root)?;
            }
            Event::End(_) => {
                // The reader has checked the name.
                if let Some(done) = open.pop() {
                    close(done, &mut open, &mut root)?;
                }
            }
            Event::Text(text) => {
                let text = text.decode().unwrap_or_default();
                if let Some(word) = text
                    .trim_start_matches('\u{feff}')
                    .split_whitespace()
                    .next()
                {
                    let before = text.find(word).unwrap_or(0);
                    let line = lines.at(at + before);
                    return Err(ProfileError::new(
                        line,
                        word,
                        "text between the elements: a profile has none",
                    ));
                }
            }
            Event::CData(_) => return wrong("CDATA: a profile has no text"),
            Event::GeneralRef(_) => return wrong("an entity: a profile has no text"),
            Event::DocType(_) => {
                return wrong(
                    "a document type (DTD), with which a file could grow without end: take it out",
                );
            }
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => break,
        }
    }
    if let Some(left) = open.last() {
        let what = format!("no closing tag: </{}> is missing", shown(&left.name));
        return Err(ProfileError::new(left.line, &left.name, what));
    }
    root.ok_or_else(|| ProfileError::new(1, "", "no profile: expected <profile> with groups in it"))
}

fn close(
    done: Element,
    open: &mut [Element],
    root: &mut Option<Element>,
) -> Result<(), ProfileError> {
    match open.last_mut() {
        Some(parent) => parent.children.push(done),
        None if root.is_some() => {
            let what = "a second element after the profile: only one profile per file";
            return Err(ProfileError::new(done.line, &done.name, what));
        }
        None => *root = Some(done),
    }
    Ok(())
}

fn element(tag: &BytesStart<'_>, at: usize, lines: &Lines<'_>) -> Result<Element, ProfileError> {
    let name = String::from_utf8_lossy(tag.name().into_inner()).into_owned();
    let line = lines.at(at);
    let mut attributes = Vec::new();
    // Offset after `<`.
    let inside = at + 1;
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|error| {
            let (place, what) = match error {
                AttrError::ExpectedEq(place) => (place, "an attribute without ="),
                AttrError::ExpectedValue(place) => (place, "an attribute without a value"),
                AttrError::UnquotedValue(place) => (place, "a value without quotes"),
                AttrError::ExpectedQuote(place, _) => (place, "a value without its closing quote"),
                AttrError::Duplicated(place, _) => (place, "an attribute twice"),
            };
            ProfileError::new(lines.at(inside + place), &name, what)
        })?;
        let key = String::from_utf8_lossy(attribute.key.into_inner()).into_owned();
        let value = String::from_utf8_lossy(&attribute.value).into_owned();
        let start = lines.offset_of(&attribute.value).unwrap_or(inside);
        let mut words = Vec::new();
        for word in value.split_ascii_whitespace() {
            let within = word.as_ptr() as usize - value.as_ptr() as usize;
            let line = lines.at(start + within);
            let text = unescape(word).map_err(|_| {
                ProfileError::new(line, word, "an entity that is none of XML's own five")
            })?;
            words.push(Word {
                text: text.into_owned(),
                line,
            });
        }
        attributes.push(Attribute {
            name: key,
            line: lines.at(start),
            words,
        });
    }
    Ok(Element {
        name,
        line,
        attributes,
        children: Vec::new(),
    })
}

fn malformed(line: usize, error: &Error) -> ProfileError {
    let what = match error {
        Error::Syntax(SyntaxError::UnclosedTag) => "a tag without its closing >".to_string(),
        Error::Syntax(SyntaxError::UnclosedComment) => "a comment without its end -->".to_string(),
        Error::Syntax(
            SyntaxError::UnclosedSingleQuotedAttributeValue
            | SyntaxError::UnclosedDoubleQuotedAttributeValue,
        ) => "a value without its closing quote".to_string(),
        Error::Syntax(SyntaxError::UnclosedDoctype) => {
            "a document type (DTD), with which a file could grow without end: take it out"
                .to_string()
        }
        Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => format!(
            "</{}> closes <{}>: its own closing tag is missing",
            shown(found),
            shown(expected)
        ),
        Error::IllFormed(IllFormedError::UnmatchedEndTag(name)) => {
            format!("</{}> closes nothing: it was not opened", shown(name))
        }
        error => format!("no XML: {}", shown(&error.to_string())),
    };
    ProfileError::new(line, "", what)
}

fn position(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// Text of the file, for finding lines.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    /// Line of a byte, from 1.
    fn at(&self, offset: usize) -> usize {
        let before = &self.0.as_bytes()[..offset.min(self.0.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }

    /// Offset of a part of the text. `None` if it is not part of it.
    fn offset_of(&self, part: &[u8]) -> Option<usize> {
        let at = (part.as_ptr() as usize).checked_sub(self.0.as_ptr() as usize)?;
        (at <= self.0.len()).then_some(at)
    }
}
