//! The options after `--`.

use super::{Direction, Ends, Family, Form, Test, Transport, family, port, refused};
use crate::Failure;
use crate::getopt::{Found, Words};
use crate::number::{both, leading, pair, sizes};

/// Letters of the options, in the form of getopt(3).
const LETTERS: &str = "aBb:cCd:De:fFgG:hH:i:Ij:kK:l:L:m:M:nNoOp:P:q:r:R:s:S:t:T:u:UVw:W:46";

/// Values of the options.
pub struct Specific {
    pub transport: Transport,
    pub direction: Direction,
    pub is_connect_test: bool,
    pub data_host: Option<String>,
    pub data_local_host: Option<String>,
    pub data_family: Option<Family>,
    pub data_port: Ends<u16>,
    pub burst: i32,
    pub nodelay: bool,
    pub cork: bool,
    pub mss: Option<i32>,
    pub pacing: Option<u32>,
    pub routed: Option<bool>,
    pub patience: Option<i32>,
    pub connected: Ends<bool>,
    pub congestion: Ends<String>,
    pub send_size: Ends<Option<i32>>,
    pub receive_size: Ends<Option<i32>>,
    pub request: i32,
    pub response: i32,
    pub send_buffer: Ends<Option<i32>>,
    pub receive_buffer: Ends<Option<i32>>,
    pub uuid: Option<String>,
    pub notes: Vec<String>,
    pub form: Form,
    pub selection: Option<String>,
}

/// A test, or only a text.
pub enum Asked {
    Options(Box<Specific>),
    Text(String, u8),
    Selectors(bool),
}

/// Bits of a direction (`NETPERF_XMIT`, `NETPERF_RECV`).
const SEND: u32 = 2;
const RECEIVE: u32 = 4;

/// Takes the rest of the words.
pub fn parse(words: &mut Words, test: &Test) -> Result<Asked, Failure> {
    let one = if test.direction == Some(Direction::Both) {
        1
    } else {
        -1
    };
    let mut specific = Specific {
        transport: test.transport,
        direction: Direction::Send,
        is_connect_test: test.is_connect_test,
        data_host: None,
        data_local_host: None,
        data_family: None,
        data_port: Ends::default(),
        burst: 0,
        nodelay: false,
        cork: false,
        mss: None,
        pacing: None,
        routed: None,
        patience: None,
        connected: Ends::default(),
        congestion: Ends::default(),
        send_size: Ends::default(),
        receive_size: Ends::default(),
        request: one,
        response: one,
        send_buffer: Ends::default(),
        receive_buffer: Ends::default(),
        uuid: None,
        notes: Vec::new(),
        form: if test.direction.is_none() {
            Form::Human
        } else {
            Form::Classic
        },
        selection: None,
    };
    let mut told = None;
    let mut implied = 0;
    while let Some(found) = words.next(LETTERS) {
        match found {
            Found::Option('h') => return Ok(Asked::Text(super::usage().help(), 0)),
            Found::Option(letter @ ('k' | 'o' | 'O')) => {
                let spec = words.next_if(|next| !next.starts_with('-'));
                if spec.as_deref() == Some("?") {
                    return Ok(Asked::Selectors(letter != 'O'));
                }
                specific.selection = spec;
                specific.form = match letter {
                    'k' => Form::Keyval,
                    'o' => Form::Csv,
                    _ => Form::Human,
                };
            }
            Found::Option(letter) => specific.option(letter)?,
            Found::With('d', argument) if test.direction.is_none() => {
                specific.is_connect_test |= argument.eq_ignore_ascii_case("crr");
                told = Some(direction(&argument)?);
            }
            Found::With('d', _) => specific
                .notes
                .push("-d: without effect: only for OMNI".to_string()),
            Found::With(letter, argument) => implied |= specific.with(letter, &argument)?,
            Found::Word(word) => specific.notes.push(refused::word(&word)),
            Found::Invalid(complaint) => specific.notes.push(refused::invalid(&complaint)),
        }
    }
    specific.check_transport(test)?;
    // A connection test without directions is TCP_CC, which the caller refuses.
    let chosen = || match told.unwrap_or(implied) {
        0 | SEND => Direction::Send,
        RECEIVE => Direction::Receive,
        _ => Direction::Both,
    };
    specific.direction = test.direction.unwrap_or_else(chosen);
    if specific.direction == Direction::Both {
        for size in [&mut specific.request, &mut specific.response] {
            if *size == -1 {
                *size = 1;
            }
            if *size == 0 {
                return Err(Failure::usage(
                    "-r: a request and a response have at least one byte",
                ));
            }
        }
    } else {
        // Sizes of requests have no meaning one way; netserver would take them for transactions.
        (specific.request, specific.response) = (-1, -1);
    }
    Ok(Asked::Options(Box::new(specific)))
}

impl Specific {
    /// Refuses UDP where a test has none, and notes options that TCP has not.
    fn check_transport(&mut self, test: &Test) -> Result<(), Failure> {
        if test.direction.is_some() && self.transport != test.transport {
            return Err(Failure::usage(format!(
                "-T: {} has its own protocol; -t OMNI, UDP_STREAM and UDP_RR have UDP",
                test.name
            )));
        }
        if self.transport == Transport::Tcp {
            let given = [
                ('e', self.patience.is_some()),
                ('n', self.connected.local),
                ('N', self.connected.remote),
            ];
            for (letter, _) in given.iter().filter(|(_, is_given)| *is_given) {
                self.notes.push(refused::only_for_udp(*letter));
            }
        }
        Ok(())
    }

    fn option(&mut self, letter: char) -> Result<(), Failure> {
        match letter {
            'c' => self.is_connect_test = true,
            'n' => self.connected.local = true,
            'N' => self.connected.remote = true,
            'C' => self.cork = true,
            'D' => self.nodelay = true,
            '4' => self.data_family = Some(Family::V4),
            '6' => self.data_family = Some(Family::V6),
            letter => self.notes.push(refused::specific(letter)?),
        }
        Ok(())
    }

    /// Gives the directions that it implies for OMNI.
    fn with(&mut self, letter: char, argument: &str) -> Result<u32, Failure> {
        let option = format!("-{letter}");
        let option = option.as_str();
        let mut implied = 0;
        match letter {
            'b' => self.burst = self.leading(option, argument)?,
            'e' => self.patience = Some(self.leading(option, argument)?),
            'G' => self.mss = Some(self.leading(option, argument)?),
            'q' => self.pacing = Some(self.leading(option, argument)?.cast_unsigned()),
            'R' => self.routed = Some(self.leading(option, argument)? != 0),
            'H' | 'L' => {
                let (host, of) = pair(argument);
                if host.as_deref().is_some_and(|host| host.contains('/')) {
                    return Err(Failure::usage(format!(
                        "{option} {argument}: random addresses by a mask are not supported"
                    )));
                }
                match letter {
                    'H' => self.data_host = host.or_else(|| self.data_host.take()),
                    _ => self.data_local_host = host.or_else(|| self.data_local_host.take()),
                }
                if let Some(of) = of {
                    self.data_family = family(option, &of)?;
                }
            }
            'K' => {
                let (local, remote) = both(argument);
                for name in [&local, &remote].into_iter().flatten() {
                    if name.len() > 15 {
                        return Err(Failure::usage(format!(
                            "-K {name}: a congestion control's name has at most 15 bytes"
                        )));
                    }
                }
                self.congestion = Ends {
                    local: local.unwrap_or_default(),
                    remote: remote.unwrap_or_default(),
                };
            }
            'm' => {
                let (local, remote) = sizes(option, pair(argument))?;
                let (local, remote) = (positive(option, local)?, positive(option, remote)?);
                implied |= if local.is_some() { SEND } else { 0 };
                implied |= if remote.is_some() { RECEIVE } else { 0 };
                self.send_size.local = local.or(self.send_size.local);
                self.send_size.remote = remote.or(self.send_size.remote);
            }
            'M' => {
                let (remote, local) = sizes(option, pair(argument))?;
                let (local, remote) = (positive(option, local)?, positive(option, remote)?);
                implied |= if remote.is_some() { SEND } else { 0 };
                implied |= if local.is_some() { RECEIVE } else { 0 };
                self.receive_size.local = local.or(self.receive_size.local);
                self.receive_size.remote = remote.or(self.receive_size.remote);
            }
            'P' => {
                let (local, remote) = both(argument);
                if let Some(local) = local {
                    self.data_port.local = port(option, &local)?;
                }
                if let Some(remote) = remote {
                    self.data_port.remote = port(option, &remote)?;
                }
            }
            'r' => {
                implied = SEND | RECEIVE;
                let (request, response) = sizes(option, both(argument))?;
                self.request = request.unwrap_or(self.request);
                self.response = response.unwrap_or(self.response);
            }
            's' => {
                let (send, receive) = sizes(option, both(argument))?;
                self.send_buffer.local = send;
                self.receive_buffer.local = receive;
            }
            'S' => {
                let (send, receive) = sizes(option, both(argument))?;
                self.send_buffer.remote = send;
                self.receive_buffer.remote = receive;
            }
            't' if argument.contains("stream") => {}
            't' if argument.contains("dgram") && self.transport == Transport::Udp => {}
            't' => {
                return Err(Failure::usage(format!(
                    "-t {argument}: only stream is supported, and dgram after -T udp"
                )));
            }
            'T' if argument.eq_ignore_ascii_case("tcp") => self.transport = Transport::Tcp,
            'T' if argument.eq_ignore_ascii_case("udp") => self.transport = Transport::Udp,
            'T' => {
                return Err(Failure::usage(format!(
                    "-T {argument}: only tcp and udp are supported"
                )));
            }
            'u' => self.uuid = Some(argument.chars().take(37).collect()),
            letter => self.notes.push(refused::specific(letter)?),
        }
        Ok(implied)
    }
}

impl Specific {
    /// A number that netperf reads by atoi(3), with a note if something follows its digits.
    fn leading(&mut self, option: &str, argument: &str) -> Result<i32, Failure> {
        let (number, has_rest) = leading(option, argument)?;
        if has_rest {
            self.notes.push(format!(
                "-- {option} {argument}: read as {number}, as netperf does"
            ));
        }
        Ok(number)
    }
}

/// A buffer of no bytes moves nothing.
fn positive(option: &str, size: Option<i32>) -> Result<Option<i32>, Failure> {
    match size {
        Some(0) => Err(Failure::usage(format!(
            "{option} 0: expected at least one byte"
        ))),
        size => Ok(size),
    }
}

/// Names or numbers, joined by `|`.
fn direction(text: &str) -> Result<u32, Failure> {
    let mut bits = 0;
    for name in text.split('|') {
        bits |= match name.to_ascii_lowercase().as_str() {
            "xmit" | "send" | "stream" | "transmit" | "2" | "0x2" => SEND,
            "recv" | "receive" | "maerts" | "4" | "0x4" => RECEIVE,
            "rr" | "crr" | "6" | "0x6" => SEND | RECEIVE,
            _ => {
                return Err(Failure::usage(format!(
                    "-d {text}: expected send, recv, rr, crr, or 2, 4, 6"
                )));
            }
        };
    }
    Ok(bits)
}
