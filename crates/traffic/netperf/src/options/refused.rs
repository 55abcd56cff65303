//! Unsupported options with the reason, and options that are accepted without effect.

use super::Test;
use crate::Failure;

/// Refusal of a test that has no row, with the reason.
pub fn test(name: &str) -> Failure {
    let why = match name {
        name if name.starts_with("UDP") => "netserver sends no UDP by itself",
        name if name.starts_with("SCTP") => "SCTP is not TCP",
        "TCP_CC" => "connections without data: TCP_CRR has a byte each way",
        "TCP_MSS" => "the MSS is the selector TRANSPORT_MSS of any test",
        "TCP_TRR" | "TCP_NBRR" => "netperf itself is seldom built with it",
        "LOC_CPU" | "REM_CPU" => "/proc/stat needs no calibration",
        "UUID" => "no test: use uuidgen",
        name if ["DL", "XTI", "SDP", "EXS", "STREAM_", "DG_"]
            .iter()
            .any(|prefix| name.starts_with(prefix)) =>
        {
            "not TCP's sockets"
        }
        _ => "netperf has no such test",
    };
    Failure::usage(format!("-t {name}: {why}; supported are {}", Test::names()))
}

/// A global option that is not honoured: a note, or a refusal.
pub fn global(letter: char) -> Result<String, Failure> {
    match letter {
        'a' | 'A' | 'o' | 'O' => Ok(without_effect(
            letter,
            "buffers begin where the allocator puts them",
        )),
        'W' => Ok(without_effect(letter, "one buffer is sent again and again")),
        'd' => Ok(without_effect(letter, "there is no debugging output")),
        'k' | 'K' => Ok(without_effect(letter, "data is neither dirtied nor read")),
        'n' => Ok(without_effect(letter, "CPUs are counted")),
        'b' | 'w' => Err(refusal(
            letter,
            "bursts by the clock; a rate is -q of the test options",
        )),
        _ => Err(refusal(
            letter,
            "without netserver the receiver cannot confirm anything",
        )),
    }
}

/// A test option that is not honoured.
pub fn specific(letter: char) -> Result<String, Failure> {
    let done = known_specific(letter);
    // Before `--` these letters are other options.
    let after = |text: String| format!("-- {text}");
    done.map(after)
        .map_err(|failure| Failure::usage(after(failure.text)))
}

fn known_specific(letter: char) -> Result<String, Failure> {
    match letter {
        'I' => Ok(without_effect(
            letter,
            "write and send are the same call to a socket",
        )),
        'W' => Ok(without_effect(letter, "one buffer is sent again and again")),
        'g' => Ok(without_effect(letter, "Linux has no use for SO_DEBUG")),
        'B' => Ok(without_effect(
            letter,
            "answers come from the address that was asked",
        )),
        'l' => Ok(without_effect(letter, "only for multicast")),
        'j' | 'i' | 'w' => Ok(without_effect(
            letter,
            "netperf itself does nothing with it",
        )),
        'a' => Err(refusal(letter, "TCP_DEFER_ACCEPT")),
        'F' => Err(refusal(letter, "TCP Fast Open")),
        'f' => Err(refusal(letter, "path MTU discovery is on by default")),
        'p' => Err(refusal(
            letter,
            "the kernel chooses the ports of TCP_CRR: net.ipv4.ip_local_port_range",
        )),
        'U' => Err(refusal(
            letter,
            "a connection that cannot be made ends the test",
        )),
        _ => Err(refusal(
            letter,
            "copies are not avoided; -t TCP_SENDFILE avoids those of the sender",
        )),
    }
}

/// A test option that only UDP has.
pub fn only_for_udp(letter: char) -> String {
    format!("-- {}", without_effect(letter, "only for UDP"))
}

/// A word that is no option.
pub fn word(word: &str) -> String {
    format!("{word}: not an option, without effect")
}

/// A test option that netperf does not know, either; netperf complains and goes on.
pub fn invalid(complaint: &str) -> String {
    format!("{complaint} (after --), without effect")
}

fn without_effect(letter: char, why: &str) -> String {
    format!("-{letter}: without effect: {why}")
}

fn refusal(letter: char, why: &str) -> Failure {
    Failure::usage(format!("-{letter} is not supported: {why}"))
}
