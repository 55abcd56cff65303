//! Profile made from XML elements: groups of transactions of flowops. Each word of the language is
//! looked up in its row.

use std::time::Duration;

use super::UperfSurroundings;
use super::element::{Attribute, Element, Word};
use super::error::{Note, ProfileError, shown};
use super::number::{leading, time, whole};
use super::rows::{self, UperfHandling, WordKind};
use tcpcost_knobs::{MessageSize, Program};

/// A profile: what its words say, with uperf's defaults.
#[derive(Debug)]
pub struct Profile {
    /// Name of the profile. Empty without one.
    pub name: String,
    /// Groups, at least one.
    pub groups: Vec<Group>,
    pub(super) notes: Vec<Note>,
}

/// Group of threads that do the same.
#[derive(Debug)]
pub struct Group {
    pub(super) line: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Number of threads, 1 to 30000.
    pub threads: u32,
    /// True if uperf would start processes.
    pub is_processes: bool,
    /// Work of each thread, one after the other.
    pub transactions: Vec<Transaction>,
}

/// Transaction: flowops that are done again and again.
#[derive(Debug)]
pub struct Transaction {
    pub(super) line: usize,
    /// Number of passes, if there is no duration.
    pub iterations: u32,
    /// How long it is done.
    pub duration: Option<Duration>,
    /// Passes per second of each thread.
    pub rate: Option<u32>,
    /// Work of a pass.
    pub flowops: Vec<Flowop>,
}

/// Operation.
#[derive(Debug)]
pub struct Flowop {
    pub(super) line: usize,
    /// Word of its type.
    pub name: &'static str,
    /// Kind of work.
    pub kind: Kind,
    /// How it does it.
    pub options: Options,
}

/// Kind of a flowop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are uperf's")]
pub enum Kind {
    Connect,
    Accept,
    Disconnect,
    /// Also `recv`.
    Read,
    /// Also `send`.
    Write,
    Sendfile,
    Sendfilev,
    Think,
    Nop,
}

/// Options of a flowop, with uperf's defaults filled in.
#[derive(Debug)]
pub struct Options {
    /// Bytes of a message.
    pub size: Option<MessageSize>,
    /// `rsize`: bytes that the slave takes with a read.
    pub read_bytes: Option<u32>,
    /// `nfiles`.
    pub files: u32,
    /// `dir`.
    pub folder: Option<Value>,
    /// How often the flowop is done.
    pub count: u32,
    /// Number of the connection; 0 for the one without a name.
    pub conn: u32,
    /// `remotehost`.
    pub host: Option<Value>,
    /// Port at which a slave listens, 0 for any.
    pub port: u16,
    /// `wndsz`, bytes.
    pub window: Option<u32>,
    /// `tcp_nodelay`.
    pub nodelay: bool,
    /// `canfail`: a failure is no error.
    pub can_fail: bool,
    /// `duration` of a think.
    pub time: Option<Duration>,
    /// `timeout` of a read.
    pub timeout: Option<Duration>,
    /// A think keeps the CPU busy.
    pub is_busy: bool,
    /// `cc`.
    pub congestion_control: Option<String>,
}

/// Value with its line.
#[derive(Debug)]
pub struct Value {
    /// The value, of a variable if it names one.
    pub text: String,
    /// Text for messages: the name of a variable, whose value may be a secret.
    pub shown: String,
    pub(super) line: usize,
}

/// Limit of all flowops: the limit of operations of a program, for each of as many groups as a cell
/// may have.
const FLOWOPS_MAX: usize = 100_000;

impl Profile {
    pub(super) fn read(
        root: &Element,
        notes: Vec<Note>,
        surroundings: &UperfSurroundings<'_>,
    ) -> Result<Profile, ProfileError> {
        let mut reader = Reader {
            surroundings,
            notes,
            flowops: 0,
        };
        let mut name = String::new();
        for attribute in &root.attributes {
            word(
                WordKind::Attribute("profile"),
                &attribute.name,
                attribute.line,
            )?;
            name = attribute.text();
        }
        let mut groups = Vec::new();
        for child in &root.children {
            groups.push(reader.group(child)?);
        }
        if groups.is_empty() {
            return Err(ProfileError::new(
                root.line,
                &root.name,
                "no group in it: nothing to do",
            ));
        }
        Ok(Profile {
            name,
            groups,
            notes: reader.notes,
        })
    }
}

fn word(kind: WordKind, name: &str, line: usize) -> Result<&'static rows::UperfRow, ProfileError> {
    rows::find(kind, name, line, name)
}

struct Reader<'a> {
    surroundings: &'a UperfSurroundings<'a>,
    notes: Vec<Note>,
    flowops: usize,
}

impl Reader<'_> {
    fn note(&mut self, line: usize, text: String) {
        let note = Note { line, text };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn group(&mut self, of: &Element) -> Result<Group, ProfileError> {
        let (mut name, mut threads, mut is_processes) = (None, None, false);
        for attribute in &of.attributes {
            let row = word(
                WordKind::Attribute("group"),
                &attribute.name,
                attribute.line,
            )?;
            match row.name {
                "name" => name = Some(attribute.text()),
                key => {
                    threads = Some(self.number(attribute)?);
                    if key == "nprocs" {
                        is_processes = true;
                        let text = "nprocs: threads, not processes".to_string();
                        self.note(attribute.line, text);
                    }
                }
            }
        }
        let Some(threads) = threads else {
            let what = "no nthreads and no nprocs: nothing would run";
            return Err(ProfileError::new(of.line, &of.name, what));
        };
        if !(1..=30_000).contains(&threads) {
            let what = format!("nthreads {threads}: expected 1 to 30000");
            return Err(ProfileError::new(of.line, &of.name, what));
        }
        let mut transactions = Vec::new();
        for child in &of.children {
            transactions.push(self.transaction(child)?);
        }
        Ok(Group {
            line: of.line,
            name,
            threads,
            is_processes,
            transactions,
        })
    }

    fn transaction(&mut self, of: &Element) -> Result<Transaction, ProfileError> {
        let mut transaction = Transaction {
            line: of.line,
            iterations: 1,
            duration: None,
            rate: None,
            flowops: Vec::new(),
        };
        for attribute in &of.attributes {
            let row = word(
                WordKind::Attribute("transaction"),
                &attribute.name,
                attribute.line,
            )?;
            match row.name {
                "iterations" => transaction.iterations = self.number(attribute)?,
                "duration" => {
                    let time = time(&self.value(attribute)?.text);
                    let wrong = |what| ProfileError::new(attribute.line, &attribute.name, what);
                    transaction.duration = Some(time.map_err(wrong)?);
                }
                _ => {
                    let rate = self.number(attribute)?;
                    if rate == 0 {
                        let what = "expected a number from 1";
                        return Err(ProfileError::new(attribute.line, &attribute.name, what));
                    }
                    transaction.rate = Some(rate);
                }
            }
        }
        for child in &of.children {
            self.flowops += 1;
            if self.flowops > FLOWOPS_MAX {
                let what = format!("more than {FLOWOPS_MAX} flowops");
                return Err(ProfileError::new(child.line, &child.name, what));
            }
            transaction.flowops.push(self.flowop(child)?);
        }
        Ok(transaction)
    }

    fn flowop(&mut self, of: &Element) -> Result<Flowop, ProfileError> {
        let (mut kind, mut options) = (None, None);
        for attribute in &of.attributes {
            let row = word(
                WordKind::Attribute("flowop"),
                &attribute.name,
                attribute.line,
            )?;
            match row.name {
                "type" => {
                    let value = self.value(attribute)?;
                    let row = rows::find(WordKind::Flowop, &value.text, value.line, &value.shown)?;
                    kind = Some((row.name, kind_of(row.name)));
                }
                _ => options = Some(attribute),
            }
        }
        let (name, kind) =
            kind.ok_or_else(|| ProfileError::new(of.line, &of.name, "no type: which flowop?"))?;
        Ok(Flowop {
            line: of.line,
            name,
            kind,
            options: self.options(options, kind)?,
        })
    }

    fn options(&mut self, of: Option<&Attribute>, kind: Kind) -> Result<Options, ProfileError> {
        let mut options = Options {
            size: None,
            read_bytes: None,
            files: 1,
            folder: None,
            count: 1,
            conn: 0,
            host: None,
            port: 0,
            window: None,
            nodelay: false,
            can_fail: false,
            time: None,
            timeout: None,
            is_busy: false,
            congestion_control: None,
        };
        for one in of.map_or(&[][..], |attribute| &attribute.words) {
            self.option(one, kind, &mut options)?;
        }
        Ok(options)
    }

    fn option(
        &mut self,
        one: &Word,
        kind: Kind,
        options: &mut Options,
    ) -> Result<(), ProfileError> {
        if !one
            .text
            .starts_with(|first: char| first.is_ascii_alphabetic())
        {
            let text = format!("{}: no option, without effect", shown(&one.text));
            self.note(one.line, text);
            return Ok(());
        }
        let (key, value) = match one.text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (one.text.as_str(), None),
        };
        let row = word(WordKind::Option, key, one.line)?;
        let wrong = |what: &str| ProfileError::new(one.line, row.name, what);
        match (row.name, value) {
            ("tcp_nodelay", _) => options.nodelay = true,
            ("busy", _) => options.is_busy = true,
            ("idle" | "non_blocking", _) => {}
            ("canfail", _) => options.can_fail = true,
            (_, None | Some("")) => return Err(wrong("expected a value after =")),
            (name, Some(value)) => {
                let value = self.expanded(value, one.line)?;
                match name {
                    "size" => options.size = Some(value.size(row.name)?),
                    "rsize" => options.read_bytes = Some(value.bytes(row.name, &value.text)?),
                    "nfiles" => options.files = value.count(row.name)?,
                    "dir" => options.folder = Some(value),
                    "count" => options.count = self.leading(&value, row.name)?,
                    "conn" => {
                        options.conn = self.leading(&value, row.name)?;
                        if options.conn == 0 {
                            return Err(wrong("expected a number from 1"));
                        }
                    }
                    "remotehost" => options.host = Some(value),
                    "protocol" => {
                        let name = format!("protocol {}", value.shown);
                        rows::find(WordKind::Protocol, &value.text, one.line, &name)?;
                    }
                    "port" => {
                        let port = self.leading(&value, row.name)?;
                        let wrong = |_| value.wrong(row.name, "expected 0 to 65535");
                        options.port = u16::try_from(port).map_err(wrong)?;
                    }
                    "timeout" => options.timeout = Some(time(&value.text).map_err(wrong)?),
                    "wndsz" => {
                        let window = value.bytes(row.name, &value.text)?;
                        if !WINDOWS.contains(&window) {
                            return Err(value.wrong(row.name, "expected 2k to 1g"));
                        }
                        options.window = Some(window);
                    }
                    "cc" => {
                        let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
                        if !value.text.chars().all(is_word) || value.text.len() > 15 {
                            return Err(wrong("expected a name such as cubic"));
                        }
                        options.congestion_control = Some(value.text);
                    }
                    "duration" => {
                        options.time = Some(time(&value.text).map_err(wrong)?);
                        if kind != Kind::Think {
                            let text = "duration: of a flowop that is no think it has no effect, as in uperf";
                            self.note(one.line, text.to_string());
                        }
                    }
                    _ => {}
                }
            }
        }
        if row.handling == UperfHandling::NoEffect && !["localhost", "port"].contains(&row.name) {
            self.note(one.line, format!("{}: no effect: {}", row.name, row.here));
        }
        Ok(())
    }

    /// Value of an attribute; if it begins with `$`, the value of a variable.
    fn value(&self, of: &Attribute) -> Result<Value, ProfileError> {
        self.expanded(&of.text(), of.line)
    }

    fn expanded(&self, value: &str, line: usize) -> Result<Value, ProfileError> {
        let given = |text: String| Value {
            text,
            shown: shown(value),
            line,
        };
        let Some(name) = value.strip_prefix('$') else {
            return Ok(given(value.to_string()));
        };
        let variable = |name: &str| (self.surroundings.variable)(name);
        // uperf converts the whole file to lower case.
        let found = variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
        match found.filter(|value| !value.is_empty()) {
            Some(value) if value.contains('\0') => Err(ProfileError::new(
                line,
                &format!("${name}"),
                "a NUL byte in it",
            )),
            Some(value) => Ok(given(value)),
            None => {
                let name = shown(name);
                let what =
                    format!("the environment has no such variable: {name}=... tcpcost run ...");
                Err(ProfileError::new(line, &format!("${name}"), what))
            }
        }
    }

    /// Number of an option that uperf reads by atoi(3).
    fn leading(&mut self, value: &Value, name: &str) -> Result<u32, ProfileError> {
        let (number, has_rest) = leading(&value.text).map_err(|what| value.wrong(name, what))?;
        if has_rest {
            let text = format!("{name}: {}: uperf reads only its first digits", value.shown);
            self.note(value.line, text);
        }
        Ok(number)
    }

    fn number(&self, of: &Attribute) -> Result<u32, ProfileError> {
        self.value(of)?.count(&of.name)
    }
}

fn kind_of(name: &str) -> Kind {
    match name {
        "connect" => Kind::Connect,
        "accept" => Kind::Accept,
        "disconnect" => Kind::Disconnect,
        "read" | "recv" => Kind::Read,
        "write" | "send" => Kind::Write,
        "sendfile" => Kind::Sendfile,
        "sendfilev" => Kind::Sendfilev,
        "think" => Kind::Think,
        _ => Kind::Nop,
    }
}

impl Value {
    /// Creates the error that this is no value of the option or attribute `name`.
    fn wrong(&self, name: &str, what: &str) -> ProfileError {
        ProfileError::new(self.line, name, format!("{}: {what}", self.shown))
    }

    fn count(&self, name: &str) -> Result<u32, ProfileError> {
        whole(&self.text).map_err(|what| self.wrong(name, what))
    }

    /// Parses a size that a message may have, bytes. `text`: the value or a part of it.
    fn bytes(&self, name: &str, text: &str) -> Result<u32, ProfileError> {
        let most = Program::MESSAGE_MAX;
        match whole(text) {
            Ok(bytes @ 1..) if bytes <= most => Ok(bytes),
            Ok(_) => Err(self.wrong(name, &format!("expected 1 to {most} bytes"))),
            Err(what) => Err(self.wrong(name, what)),
        }
    }

    fn size(&self, name: &str) -> Result<MessageSize, ProfileError> {
        let lower = self.text.to_ascii_lowercase();
        let Some(two) = lower.strip_prefix("rand(") else {
            return self.bytes(name, &self.text).map(MessageSize::exactly);
        };
        let two = two.strip_suffix(')').and_then(|two| two.split_once(','));
        let (least, most) =
            two.ok_or_else(|| self.wrong(name, "expected rand(least,most), without spaces"))?;
        let (least, most) = (
            self.bytes(name, least.trim())?,
            self.bytes(name, most.trim())?,
        );
        if least > most {
            return Err(self.wrong(name, "the first is the smaller one"));
        }
        Ok(MessageSize { least, most })
    }
}

/// Range of `wndsz`, bytes: that of the knobs `send_buffer` and `receive_buffer`.
const WINDOWS: std::ops::RangeInclusive<u32> = 2048..=1 << 30;
