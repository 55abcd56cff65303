//! Parsers of the two forms of a segment in tcpdump's lines, and of its options.

use super::{after, leading};
use crate::segment::{Options, flag};

#[derive(Default)]
pub(super) struct Numbers {
    pub(super) flags: u8,
    pub(super) seq: Option<u32>,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) payload: u32,
    pub(super) option_bytes: u32,
    pub(super) options: Options,
}

/// Parses `Flags [P.], seq 1:257, ack 1, win 502, options [nop,nop,TS val 1 ecr 2], length 256`.
pub(super) fn new_form(text: &str) -> Option<Numbers> {
    let letters = after(text, "Flags [")?.split(']').next()?;
    let mut numbers = Numbers {
        flags: flags(letters)?,
        ..Numbers::default()
    };
    let payload = after(text, "length ").and_then(leading::<u32>);
    if let Some(seq) = after(text, " seq ") {
        numbers.seq = Some(leading(seq)?);
    }
    let from_range = after(text, " seq ").and_then(|seq| {
        let end: u32 = leading(after(seq.split(',').next()?, ":")?)?;
        Some(end.wrapping_sub(numbers.seq?))
    });
    numbers.payload = payload.or(from_range)?;
    match after(text, " ack ") {
        Some(ack) => {
            numbers.ack = leading(ack)?;
            numbers.flags |= flag::ACK;
        }
        None => numbers.flags &= !flag::ACK,
    }
    numbers.window = after(text, " win ").and_then(leading::<u32>)?.min(65535) as u16;
    if let Some(options) = after(text, "options [").and_then(|rest| rest.split(']').next()) {
        (numbers.options, numbers.option_bytes) = read_options(options);
    }
    numbers.options.complete = true;
    Some(numbers)
}

/// Parses `P 1:257(256) ack 1 win 502 <nop,nop,timestamp 1 2> (DF)`.
pub(super) fn old_form(text: &str) -> Option<Numbers> {
    let letters = text.split(' ').next()?;
    let mut numbers = Numbers {
        flags: flags(letters)?,
        ..Numbers::default()
    };
    let rest = text[letters.len()..].trim_start();
    if let Some((range, after_range)) = rest.split_once('(')
        && let Some((first, _)) = range.split_once(':')
    {
        numbers.seq = Some(first.parse().ok()?);
        numbers.payload = leading(after_range)?;
    }
    match after(text, " ack ") {
        Some(ack) => {
            numbers.ack = leading(ack)?;
            numbers.flags |= flag::ACK;
        }
        None => numbers.flags &= !flag::ACK,
    }
    numbers.window = after(text, " win ").and_then(leading::<u32>)?.min(65535) as u16;
    if let Some(options) = after(text, " <").and_then(|rest| rest.split('>').next()) {
        (numbers.options, numbers.option_bytes) = read_options(options);
        numbers.options.complete = true;
    } else {
        // Published texts often omit the options. Only a segment that is no SYN may have none.
        numbers.options.complete = numbers.flags & flag::SYN == 0;
    }
    Some(numbers)
}

/// Parses flags: `S`, `P.`, `.`, `FP`, `none`. `None` if another letter is among them.
fn flags(letters: &str) -> Option<u8> {
    if letters == "none" {
        return Some(0);
    }
    let mut flags = 0;
    for letter in letters.chars() {
        flags |= match letter {
            'S' => flag::SYN,
            'F' => flag::FIN,
            'R' => flag::RST,
            'P' => flag::PSH,
            '.' => flag::ACK,
            'E' => flag::ECE,
            'W' => flag::CWR,
            'U' | 'e' => 0,
            _ => return None,
        };
    }
    Some(flags)
}

/// Parses the options between their brackets. Returns the bytes that they take in the header, too.
fn read_options(text: &str) -> (Options, u32) {
    let mut options = Options {
        complete: true,
        ..Options::default()
    };
    let mut bytes = 0;
    for option in text.split(',') {
        let mut words = option.split([' ', ':']).filter(|word| !word.is_empty());
        let kind = words.next().unwrap_or_default();
        let mut number = || words.find_map(|word| word.parse::<u32>().ok());
        bytes += match kind {
            "nop" | "eol" => 1,
            "mss" => {
                options.mss = number().map(|mss| mss.min(65535) as u16);
                4
            }
            "wscale" => {
                options.window_scale = number().map(|scale| scale.min(14) as u8);
                3
            }
            "sackOK" => {
                options.sack_permitted = true;
                2
            }
            "TS" | "timestamp" => {
                options.timestamps = number().zip(number());
                10
            }
            "sack" => sack(option, &mut options),
            _ => 0,
        };
    }
    (options, bytes.div_ceil(4) * 4)
}

/// Parses `sack 1 {1:1449}` and the older `sack sack 1 {1:1449} `. Returns the bytes that the
/// option takes.
fn sack(text: &str, options: &mut Options) -> u32 {
    let mut blocks = 0;
    for block in text.split('{').skip(1) {
        let edges = block
            .split('}')
            .next()
            .and_then(|edges| edges.split_once(':'));
        if let Some((Ok(left), Ok(right))) = edges.map(|(l, r)| (l.parse(), r.parse())) {
            if let Some(kept) = options.sack.get_mut(usize::from(blocks)) {
                *kept = (left, right);
            }
            blocks += 1;
        }
        if blocks == 4 {
            break;
        }
    }
    options.sack_blocks = blocks;
    2 + 8 * u32::from(blocks)
}

/// Splits off the number that -# prints before a line: `    1  12:00:00.5 IP`.
pub(super) fn numbered(line: &str) -> (Option<u64>, &str) {
    let trimmed = line.trim_start_matches(' ');
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    match trimmed[digits..].strip_prefix("  ") {
        Some(rest) if digits > 0 && digits + line.len() - trimmed.len() >= 5 => {
            (trimmed[..digits].parse().ok(), rest)
        }
        _ => (None, line),
    }
}
