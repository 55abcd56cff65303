//! Parser of packetdrill's notation, as far as the scripts use it.

use std::time::Duration;

use tcpcost_tcp::SeqNum;
use tcpcost_tcp::wire::{AckRate, Ecn, FastOpen, Flags, Options, Timestamps};

/// Line of a script.
pub struct Line {
    pub number: usize,
    pub text: String,
    pub time: Duration,
    pub relative: bool,
    pub event: Event,
}

pub enum Event {
    In(Expected),
    Out(Expected),
    /// ICMP error: our packet with this sequence number was larger than `mtu`.
    TooBig {
        mtu: u16,
        seq: u32,
    },
    Call(Call),
}

/// Segment with relative numbers.
pub struct Expected {
    pub ecn: Option<Ecn>,
    /// Flags without ACK, which `ack` represents.
    pub flags: Flags,
    pub seq: u32,
    pub bytes: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    /// Expected options; `None`: any.
    pub options: Option<Options>,
    pub fast_open: Option<FastOpen>,
}

pub struct Call {
    pub name: String,
    pub arguments: Vec<String>,
    pub result: String,
}

impl Call {
    pub fn argument(&self, n: usize) -> Result<&str, String> {
        let argument = self.arguments.get(n).map(String::as_str);
        argument.ok_or("an argument is missing".to_string())
    }

    pub fn number(&self, n: usize) -> Result<i64, String> {
        let number = self.argument(n)?.parse();
        number.map_err(|_| format!("argument {n}"))
    }
}

pub fn lines(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line
            .split("//")
            .next()
            .unwrap_or("")
            .split('#')
            .next()
            .unwrap_or("")
            .trim();
        if code.is_empty() || code.starts_with("--") || code.starts_with('`') {
            continue;
        }
        let parsed = parse_line(code).ok_or(format!("line {}: cannot read: {line}", index + 1))?;
        lines.push(Line {
            number: index + 1,
            text: code.into(),
            ..parsed
        });
    }
    Ok(lines)
}

fn parse_line(code: &str) -> Option<Line> {
    let (time, rest) = code.split_once(char::is_whitespace)?;
    let relative = time.starts_with('+');
    let time = Duration::from_secs_f64(time.trim_start_matches('+').parse().ok()?);
    let rest = rest.trim();
    let event = if let Some(message) = rest.strip_prefix("< icmp unreachable frag_needed mtu") {
        let (mtu, about) = message.trim().split_once(" [")?;
        let seq = about.split(':').next()?.parse().ok()?;
        Event::TooBig {
            mtu: mtu.parse().ok()?,
            seq,
        }
    } else if let Some(segment) = rest.strip_prefix('<') {
        Event::In(parse_segment(segment)?)
    } else if let Some(segment) = rest.strip_prefix('>') {
        Event::Out(parse_segment(segment)?)
    } else {
        Event::Call(parse_call(rest)?)
    };
    Some(Line {
        number: 0,
        text: String::new(),
        time,
        relative,
        event,
    })
}

fn parse_segment(text: &str) -> Option<Expected> {
    let (text, options) = match text.split_once('<') {
        Some((text, options)) => (text, parse_options(options.trim().strip_suffix('>')?)?),
        None => (text, (Some(Options::default()), None)),
    };
    let (options, fast_open) = options;
    let mut words = text.split_whitespace().peekable();
    let ecn = match words.next_if(|word| word.starts_with('[')) {
        Some("[ce]") => Some(Ecn::Congested),
        Some("[ect0]") => Some(Ecn::Capable0),
        Some("[noecn]") => Some(Ecn::NotCapable),
        Some(_) => return None,
        None => None,
    };
    let mut flags = Flags::none();
    for letter in words.next()?.chars() {
        flags = flags
            | match letter {
                'S' => Flags::SYN,
                'F' => Flags::FIN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                'E' => Flags::ECE,
                'W' => Flags::CWR,
                '.' => Flags::none(),
                _ => return None,
            };
    }
    let (seq, rest) = words.next()?.split_once(':')?;
    let (_, bytes) = rest.split_once('(')?;
    let mut expected = Expected {
        ecn,
        flags,
        seq: seq.parse().ok()?,
        bytes: bytes.strip_suffix(')')?.parse().ok()?,
        ack: None,
        window: None,
        options,
        fast_open,
    };
    while let Some(word) = words.next() {
        match word {
            "ack" => expected.ack = Some(words.next()?.parse().ok()?),
            "win" => expected.window = Some(words.next()?.parse().ok()?),
            _ => return None,
        }
    }
    Some(expected)
}

/// Parses options. `None` options: any.
fn parse_options(text: &str) -> Option<(Option<Options>, Option<FastOpen>)> {
    if text.trim() == "..." {
        return Some((None, None));
    }
    let (mut options, mut fast_open) = (Options::default(), None);
    for option in text.split(',') {
        let words: Vec<&str> = option.split_whitespace().collect();
        match words.as_slice() {
            [] | ["nop"] => {}
            ["FO"] => fast_open = Some(FastOpen::REQUEST),
            ["FO", cookie] => {
                let byte = |at| u8::from_str_radix(cookie.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..cookie.len()).step_by(2).map(byte).collect();
                fast_open = Some(FastOpen::cookie(&bytes?)?);
            }
            ["mss", mss] => options.mss = Some(mss.parse().ok()?),
            ["sackOK"] => options.sack_permitted = true,
            ["wscale", shift] => options.window_scale = Some(shift.parse().ok()?),
            ["TS", "val", value, "ecr", echo] => {
                options.timestamps = Some(Timestamps {
                    value: value.parse().ok()?,
                    echo: echo.parse().ok()?,
                });
            }
            ["tarr"] => options.ack_rate = Some(AckRate::ANNOUNCED),
            ["tarr", rate] => options.ack_rate = Some(AckRate::request(rate.parse().ok()?)),
            ["sack", blocks @ ..] => {
                for block in blocks {
                    let (start, end) = block.split_once(':')?;
                    options.sack.push(
                        SeqNum::new(start.parse().ok()?),
                        SeqNum::new(end.parse().ok()?),
                    );
                }
            }
            _ => return None,
        }
    }
    Some((Some(options), fast_open))
}

fn parse_call(text: &str) -> Option<Call> {
    let (call, result) = text.rsplit_once('=')?;
    let (name, arguments) = call.trim().split_once('(')?;
    let arguments = arguments
        .strip_suffix(')')?
        .split(',')
        .map(|argument| argument.trim().into())
        .collect();
    // The text in parentheses, as in `-1 EAGAIN (Try again)`, is a comment.
    let result = result.split('(').next()?.trim().into();
    Some(Call {
        name: name.trim().into(),
        arguments,
        result,
    })
}
