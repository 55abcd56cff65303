//! Programs as a study file contains them.

use std::time::Duration;

use proptest::prelude::*;

use crate::raw::{Raw, raw_text};
use tcpcost_knobs::{
    CloseBy, MessageSize, Operation, PauseAt, Program, ProgramError, ReceiveWith, SendWith, Times,
};

/// Parses a program from its text in a study file.
pub(crate) fn from_text(text: &str) -> Result<Program, ProgramError> {
    Program::read(&raw_text(text).expect("TOML"))
}

fn wrong(text: &str) -> String {
    from_text(text).unwrap_err().to_string()
}

#[test]
fn a_program_is_printed_as_it_can_be_written() {
    for text in [
        r#"[{ send = "4KiB" }]"#,
        r#"[{ send = ["1KiB", "8KiB"], with = "zerocopy", count = 3 }, { receive = "1B", with = "recv-trunc" }]"#,
        r#"[{ connect = {} }, { send = "1B" }, { receive = "1B" }, { close = {} }]"#,
        r#"[{ connect = {} }, { for = "5s", do = [{ send = "1B" }] }, { think = "1ms" }, { close = { by = "connector" } }]"#,
        r#"[{ repeat = 10, at_rate = "100/s", do = [{ send = "1B" }, { sleep = "10us" }] }]"#,
        r#"[{ connect = {} }, { receive = "90B" }, { repeat = "forever", do = [{ send = "1B" }] }]"#,
        r#"[{ connect = { can_fail = true } }, { close = {} }]"#,
        r#"[{ accept = {} }, { think = "1ms", at = "both" }, { nop = {} }, { close = {} }]"#,
        r#"[{ accept = {} }, { repeat = "forever", do = [{ send = "1B" }, { receive = "2B" }] }]"#,
        r#"[{ connect = {} }, { connect = { conn = 2 } }, { repeat = "forever", do = [{ send = "1B" }, { receive = "1B", conn = 2 }] }]"#,
        r#"[{ send = "1B", count = 2, conn = 3 }, { receive = "1B" }]"#,
    ] {
        let program = from_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(program.to_string(), text);
    }
    let sugar = from_text(r#"[{ sendfile = 1024 }]"#).unwrap();
    assert_eq!(
        sugar.to_string(),
        r#"[{ send = "1KiB", with = "sendfile" }]"#
    );
}

#[test]
fn what_does_not_go_together_is_said_with_what_to_do() {
    for (text, reason) in [
        ("[]", "neither sends nor receives"),
        ("{}", "expected a list of operations"),
        (r#"["send"]"#, "operation 1: expected a table"),
        (
            r#"[{ sned = "1B" }]"#,
            "operation 1: no such operation \"sned\"; nearest is \"send\"",
        ),
        (r#"[{ accept = {} }]"#, "end it with { close = {} }"),
        (
            r#"[{ accept = {} }, { for = "1s", do = [{ send = "1B" }] }, { close = { by = "connector" } }]"#,
            "`for` needs the side that connects",
        ),
        (
            r#"[{ connect = {} }, { accept = { conn = 2 } }, { repeat = "forever", do = [{ send = "1B" }] }]"#,
            "either connects or accepts",
        ),
        (
            r#"[{ connect = { conn = 2 } }, { repeat = "forever", do = [{ send = "1B" }] }]"#,
            "connection 2 is opened as number 1",
        ),
        (
            r#"[{ connect = {} }, { repeat = "forever", do = [{ send = "1B", conn = 3 }] }]"#,
            "uses connection 3 and opens 1",
        ),
        (
            r#"[{ connect = {} }, { connect = { conn = 2 } }, { send = "1B", conn = 2 }, { close = {} }]"#,
            "several connections of a flow are opened once",
        ),
        (
            r#"[{ connect = { can_fail = true } }, { repeat = "forever", do = [{ send = "1B" }] }]"#,
            "can_fail is only for connections that come and go",
        ),
        (r#"[{ send = "1B", conn = 17 }]"#, "1 to 16"),
        (
            r#"[{ connect = { can_fail = 1 } }]"#,
            "expected true or false",
        ),
        (
            r#"[{ connect = { con = 1 } }]"#,
            "connect has no \"con\"; nearest is \"conn\"",
        ),
        (
            r#"[{ think = "1ms", at = "there" }]"#,
            "at: expected one of",
        ),
        (r#"[{ forward = {} }]"#, "part of a relay"),
        (
            r#"[{ send = "1KB" }]"#,
            "operation 1: send: expected a size",
        ),
        (r#"[{ send = "0B" }]"#, "operation 1: send: expected a size"),
        (
            r#"[{ send = ["2B", "1B"] }]"#,
            "the first of two sizes is the smaller",
        ),
        (
            r#"[{ send = "1B", with = "sendfiel" }]"#,
            "send: with: expected one of",
        ),
        (
            r#"[{ send = "1B", count = 0 }]"#,
            "send: count: expected a whole number from 1",
        ),
        (
            r#"[{ send = "1B", receive = "1B" }]"#,
            "send and receive are two operations",
        ),
        (
            r#"[{ send = "1B", cuont = 2 }]"#,
            "send has no \"cuont\"; nearest is \"count\"",
        ),
        (
            r#"[{ think = "0s" }, { send = "1B" }]"#,
            "operation 1: think: expected a time",
        ),
        (r#"[{ think = "1ms" }]"#, "neither sends nor receives"),
        (r#"[{ repeat = 3 }]"#, "operation 1: repeat needs do"),
        (
            r#"[{ repeat = 3, do = [] }, { send = "1B" }]"#,
            "do = [] does nothing",
        ),
        (
            r#"[{ repeat = 2, do = [{ repeat = 3, do = [{ snd = 1 }] }] }]"#,
            "operation 1.1.1: no such",
        ),
        (
            r#"[{ repeat = 2, do = [{ connect = {} }] }]"#,
            "connect is the first",
        ),
        (
            r#"[{ connect = {} }, { send = "1B" }]"#,
            "end it with { close = {} }",
        ),
        (
            r#"[{ send = "1B" }, { close = {} }]"#,
            "begin with { connect = {} }",
        ),
        (
            r#"[{ for = "1s", do = [{ send = "1B" }] }]"#,
            "`for` ends with its connection",
        ),
        (
            r#"[{ connect = {} }, { for = "1s", do = [{ receive = "1B" }] }, { close = { by = "connector" } }]"#,
            "must begin with send",
        ),
        (
            r#"[{ repeat = "forever", do = [{ send = "1B" }] }, { send = "2B" }]"#,
            "operations after repeat",
        ),
        (
            r#"[{ connect = {} }, { send = ["1B", "2B"] }, { close = {} }]"#,
            "random sizes need connections that stay open",
        ),
        (
            r#"[{ close = { by = "me" } }]"#,
            "close: by: expected one of",
        ),
    ] {
        let error = wrong(text);
        assert!(error.contains(reason), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn timed_operations_have_the_places_that_messages_tell() {
    let text = r#"[{ connect = {} }, { repeat = 2, do = [{ think = "1ms" }, { send = "1KiB", count = 3 }] }, { receive = "2B", conn = 1 }, { close = {} }]"#;
    let program = from_text(text).unwrap();
    let timed = program.timed();
    let timed: Vec<String> = timed
        .iter()
        .map(|(place, operation)| format!("{place} {}", operation.label()))
        .collect();
    assert_eq!(
        timed,
        ["1 connect", "2.2 send 1KiB", "3 receive 2B", "4 close"]
    );
    // The set-up connected, and that is not timed.
    let stands = r#"[{ connect = {} }, { connect = { conn = 2 } }, { repeat = "forever", do = [{ sendfile = "1KiB", conn = 2 }] }]"#;
    let program = from_text(stands).unwrap();
    assert_eq!(program.connections(), 2);
    let timed = program.timed();
    assert_eq!(timed.len(), 1);
    assert_eq!(
        (timed[0].0.as_str(), timed[0].1.label()),
        ("3.1", "sendfile 1KiB on 2".to_string())
    );
}

#[test]
fn loops_and_operations_have_a_limit() {
    let deep = |depth: usize| {
        let (open, close) = ("[{ repeat = 2, do = ".repeat(depth), "}]".repeat(depth));
        from_text(&format!("{open}[{{ send = \"1B\" }}]{close}"))
    };
    assert!(deep(Program::DEPTH_MAX).is_ok());
    assert_eq!(deep(Program::DEPTH_MAX + 1), Err(ProgramError::TooDeep));
    let many = vec![r#"{ send = "1B" }"#; Program::OPERATIONS_MAX + 1].join(",");
    assert!(wrong(&format!("[{many}]")).contains("1001 operations"));
}

fn size() -> impl Strategy<Value = MessageSize> {
    (1..=Program::MESSAGE_MAX, 0..100_000u32).prop_map(|(least, more)| MessageSize {
        least,
        most: (least + more).min(Program::MESSAGE_MAX),
    })
}

fn time() -> impl Strategy<Value = Duration> {
    (1..=3_600_000_000u64).prop_map(Duration::from_micros)
}

fn pause() -> impl Strategy<Value = PauseAt> {
    prop_oneof![Just(PauseAt::Here), Just(PauseAt::Both)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let word = |words: &'static [&'static str]| prop::option::of(prop::sample::select(words));
    let leaf = prop_oneof![
        (size(), word(SendWith::WORDS), 1..9u32).prop_map(|(size, with, count)| {
            let with = with.and_then(SendWith::from_word);
            Operation::Send {
                size,
                with,
                count,
                conn: 0,
            }
        }),
        (size(), word(ReceiveWith::WORDS), 1..9u32).prop_map(|(size, with, count)| {
            let with = with.and_then(ReceiveWith::from_word);
            Operation::Receive {
                size,
                with,
                count,
                conn: 0,
            }
        }),
        (time(), pause()).prop_map(|(time, at)| Operation::Think { time, at }),
        (time(), pause()).prop_map(|(time, at)| Operation::Sleep { time, at }),
        Just(Operation::Nop),
        (0..3u8, any::<bool>()).prop_map(|(conn, can_fail)| Operation::Connect { conn, can_fail }),
        (0..3u8).prop_map(|conn| Operation::Accept { conn }),
        Just(Operation::Close {
            by: CloseBy::Connector
        }),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let times = prop_oneof![
            (1..=u32::MAX).prop_map(Times::Count),
            time().prop_map(Times::For),
            Just(Times::Forever),
        ];
        let body = prop::collection::vec(inner, 0..4);
        (times, prop::option::of(1..1_000_000u64), body).prop_map(|(times, at_rate, body)| {
            Operation::Loop {
                times,
                at_rate,
                body,
            }
        })
    })
}

fn raw() -> impl Strategy<Value = Raw> {
    let key = prop::sample::select(vec![
        "send", "receive", "sendfile", "connect", "close", "think", "sleep", "repeat", "for", "do",
        "with", "count", "by", "at_rate", "accept", "nop", "conn", "at", "can_fail", "x",
    ]);
    let leaf = prop_oneof![
        any::<i64>().prop_map(Raw::Integer),
        any::<bool>().prop_map(Raw::Boolean),
        "[a-z0-9KiB/ ]{0,9}".prop_map(Raw::Text),
        prop::sample::select(vec!["1KiB", "1ms", "10/s", "forever", "send"])
            .prop_map(|text| Raw::Text(text.to_string())),
        Just(Raw::Other),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        let entry = (key.clone().prop_map(String::from), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Raw::List),
            prop::collection::vec(entry, 0..4).prop_map(Raw::Table),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_may_be_is_read_back_as_it_was(operations in prop::collection::vec(operation(), 0..5)) {
        if let Ok(program) = Program::new(operations) {
            prop_assert_eq!(from_text(&program.to_string()), Ok(program.clone()));
            let json = serde_json::to_value(&program).unwrap();
            prop_assert_eq!(Program::read(&Raw::from(&json)), Ok(program));
        }
    }

    #[test]
    fn nothing_makes_it_panic_or_write_two_lines(raw in raw()) {
        match Program::read(&raw) {
            Ok(program) => prop_assert_eq!(from_text(&program.to_string()), Ok(program)),
            Err(error) => prop_assert!(!error.to_string().contains('\n'), "{}", error),
        }
    }
}
