use std::collections::HashMap;
use std::io;

use proptest::prelude::*;

use super::*;
use crate::study::Study;
use tcpcost_knobs::Side;

/// Environment variables of these tests.
fn variable(name: &str) -> Option<String> {
    let all = HashMap::from([
        ("h", "server"),
        ("h1", "localhost"),
        ("proto", "tcp"),
        ("nthr", "4"),
        ("elsewhere", "192.0.2.7"),
        ("size", "rand(1k,4k)"),
        ("empty", ""),
    ]);
    all.get(name).map(|value| value.to_string())
}

fn files(folder: &Path) -> io::Result<Vec<u64>> {
    match folder.to_str() {
        Some("same") => Ok(vec![5000, 0, 5000]),
        Some("mixed") => Ok(vec![1000, 3000]),
        Some("none") => Ok(Vec::new()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    }
}

fn convert(text: &str) -> Result<ConvertedProfile, StudyError> {
    let surroundings = UperfSurroundings {
        variable: &variable,
        files: &files,
    };
    convert_uperf_profile("p", text, "p.xml", &surroundings)
}

/// Makes a profile of one group.
fn group(attributes: &str, transactions: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<profile name=\"x\">\n<group {attributes}>\n{transactions}\n</group>\n</profile>\n"
    )
}

#[track_caller]
fn study(text: &str) -> (Study, Vec<String>) {
    let ConvertedProfile { toml, notes } = convert(text).unwrap_or_else(|error| panic!("{error}"));
    let study =
        Study::parse("p", &toml, "p.toml").unwrap_or_else(|error| panic!("{error}\n{toml}"));
    (study, notes)
}

/// Converts the transactions of a profile's only group to a program.
#[track_caller]
fn program(transactions: &str) -> String {
    let (study, notes) = study(&group("nthreads=\"2\"", transactions));
    assert_eq!(notes, [""; 0]);
    study.cells[0].knobs.value("program").unwrap().to_string()
}

const CONNECT: &str = r#"<transaction iterations="1"><flowop type="connect" options="remotehost=$h protocol=tcp"/></transaction>"#;
const DISCONNECT: &str = r#"<transaction iterations="1"><flowop type="disconnect"/></transaction>"#;

/// Converts a transaction between a connect and a disconnect of their own.
fn connected(transaction: &str) -> String {
    program(&format!("{CONNECT}{transaction}{DISCONNECT}"))
}

#[test]
fn a_variable_is_in_no_title_and_no_message() {
    const SECRET: &str = "hunter2-\u{1b}[31m";
    let surroundings = UperfSurroundings {
        variable: &|_| Some(SECRET.to_string()),
        files: &|_| Err(std::io::Error::other("refused")),
    };
    let profile = |group: &str, options: &str, kind: &str| {
        format!(
            "<profile name=\"$S\"><group {group}><transaction {options}><flowop {kind}/></transaction></group></profile>"
        )
    };
    let mut profiles = vec![
        profile("nthreads=\"$S\"", "", "type=\"nop\""),
        profile(
            "name=\"$S\" nthreads=\"1\"",
            "iterations=\"$S\"",
            "type=\"nop\"",
        ),
        profile("nthreads=\"1\"", "duration=\"$S\"", "type=\"nop\""),
        profile("nthreads=\"1\"", "rate=\"$S\"", "type=\"nop\""),
        profile("nthreads=\"1\"", "", "type=\"$S\""),
    ];
    for option in [
        "size",
        "rsize",
        "nfiles",
        "dir",
        "count",
        "conn",
        "remotehost",
        "protocol",
        "wndsz",
        "cc",
        "duration",
    ] {
        for kind in ["write", "connect", "sendfile", "think"] {
            let flowop = format!("type=\"{kind}\" options=\"{option}=$S\"");
            profiles.push(profile("nthreads=\"1\"", "", &flowop));
        }
    }
    profiles.push(
        "<profile name=\"$S\"><group nthreads=\"1\" name=\"$S\"><transaction><flowop type=\"connect\" options=\"remotehost=server\"/></transaction><transaction duration=\"1s\"><flowop type=\"write\" options=\"size=90\"/></transaction></group></profile>"
            .to_string(),
    );
    let mut converted = 0;
    for profile in profiles {
        let said = match convert_uperf_profile("x", &profile, "x.xml", &surroundings) {
            Ok(study) => {
                converted += 1;
                study.toml + &study.notes.concat()
            }
            Err(error) => error.to_string(),
        };
        assert!(!said.contains("hunter"), "{profile}: {said}");
    }
    assert_eq!(converted, 1);
}

#[test]
fn a_timed_transaction_is_what_goes_on() {
    assert_eq!(
        connected(
            r#"<transaction duration="30s"><flowop type="write" options="size=90"/><flowop type="read" options="size=90 count=2"/></transaction>"#
        ),
        r#"[{ connect = {} }, { repeat = "forever", do = [{ send = "90B" }, { receive = "90B", count = 2 }] }]"#
    );
    assert_eq!(
        connected(
            r#"<transaction><flowop type="send" options="size=1k"/></transaction><transaction duration="5s" rate="100"><flowop type="recv" options="size=$size"/></transaction>"#
        ),
        r#"[{ connect = {} }, { send = "1KiB" }, { repeat = "forever", at_rate = "100/s", do = [{ receive = ["1KiB", "4KiB"] }] }]"#
    );
}

#[test]
fn iterations_are_loops_that_go_on_for_the_trial() {
    assert_eq!(
        connected(
            r#"<transaction iterations="1000"><flowop type="read" options="size=73"/></transaction>"#
        ),
        r#"[{ connect = {} }, { repeat = "forever", do = [{ receive = "73B" }] }]"#
    );
    assert_eq!(
        connected(
            r#"<transaction iterations="35"><flowop type="read" options="size=1"/></transaction><transaction iterations="0"><flowop type="nop"/></transaction><transaction iterations="5" rate="10"><flowop type="write" options="size=2"/><flowop type="nop"/></transaction>"#
        ),
        r#"[{ connect = {} }, { repeat = "forever", do = [{ repeat = 35, do = [{ receive = "1B" }] }, { repeat = 5, at_rate = "10/s", do = [{ send = "2B" }, { nop = {} }] }] }]"#
    );
}

#[test]
fn a_transaction_that_connects_and_disconnects_does_so_over_and_over() {
    let churn = |inside: &str, more: &str| {
        program(&format!(
            r#"<transaction iterations="$nthr"><flowop type="connect" options="remotehost=$h {more}"/>{inside}<flowop type="disconnect"/></transaction>"#
        ))
    };
    assert_eq!(churn("", ""), "[{ connect = {} }, { close = {} }]");
    assert_eq!(
        churn(
            r#"<flowop type="think" options="duration=1s idle"/><flowop type="think" options="duration=1ms busy count=2"/>"#,
            "canfail"
        ),
        r#"[{ connect = { can_fail = true } }, { sleep = "1s", at = "both" }, { think = "2ms", at = "both" }, { close = {} }]"#
    );
    assert_eq!(
        program(&format!("{CONNECT}{DISCONNECT}")),
        "[{ connect = {} }, { close = {} }]"
    );
}

#[test]
fn a_profile_that_accepts_is_the_listening_sides() {
    let text = program(
        r#"<transaction><flowop type="accept" options="remotehost=$h1 protocol=$proto"/></transaction><transaction duration="1s"><flowop type="write" options="size=90"/></transaction>"#,
    );
    assert_eq!(
        text,
        r#"[{ accept = {} }, { repeat = "forever", do = [{ send = "90B" }] }]"#
    );
    let program = crate::program_tests::from_text(&text).unwrap();
    assert_eq!(program.author(), Side::Listens);
    assert!(program.sends(Side::Listens) && !program.sends(Side::Connects));
}

#[test]
fn connections_are_numbered_in_the_order_in_which_they_are_opened() {
    assert_eq!(
        program(
            r#"<transaction><flowop type="connect" options="conn=7 remotehost=$h"/><flowop type="connect" options="remotehost=$h"/></transaction><transaction duration="1s"><flowop type="write" options="size=3"/><flowop type="read" options="conn=7 size=4"/></transaction><transaction><flowop type="disconnect"/><flowop type="disconnect" options="conn=7"/></transaction>"#
        ),
        r#"[{ connect = {} }, { connect = { conn = 2 } }, { repeat = "forever", do = [{ send = "3B", conn = 2 }, { receive = "4B" }] }]"#
    );
}

#[test]
fn sizes_of_calls_and_options_of_sockets_are_knobs() {
    let text = group(
        "name=\"Web 2.0!\" nthreads=\"$nthr\"",
        r#"<transaction><flowop type="connect" options="remotehost=$h protocol=TCP wndsz=50k
             tcp_nodelay cc=cubic"/></transaction><transaction duration="$nthr"><flowop type="write" options="size=8k"/><flowop type="read" options="size=100 rsize=128k"/></transaction>"#,
    );
    let (study, notes) = study(&text);
    let knobs = &study.cells[0].knobs;
    assert_eq!(notes, [""; 0]);
    for (knob, value) in [
        ("flows", "4"),
        ("io", "blocking-threads"),
        ("nodelay", "on"),
        ("send_buffer", "50KiB"),
        ("receive_buffer", "50KiB"),
        ("congestion_control", "cubic"),
        ("write_size", "8KiB"),
        ("read_size", "128KiB"),
    ] {
        assert_eq!(knobs.value(knob).unwrap().to_string(), value, "{knob}");
    }
    assert_eq!(study.title, "x");
    assert_eq!(study.measure.duration, std::time::Duration::from_secs(4));
    assert_eq!(study.measure.repetitions, 1);
}

#[test]
fn groups_have_names_of_their_own() {
    let one = |name: &str| {
        format!(
            r#"<group {name} nprocs="2">{CONNECT}<transaction duration="2s"><flowop type="write" options="size=1"/></transaction></group>"#
        )
    };
    let text = format!(
        "<profile>{}{}{}{}</profile>",
        one("name=\"Bulk load\""),
        one("name=\"bulk-load\""),
        one("name=\"client\""),
        one("")
    );
    let (study, notes) = study(&text);
    let names = study.cells[0].knobs.group_names();
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["bulk-load", "bulkload", "group-2", "group-3"]);
    assert_eq!(notes, ["p.xml:1: nprocs: threads, not processes"]);
}

#[test]
fn files_are_sent_as_long_as_they_are_in_the_mean() {
    let sendfile = |flowop: &str| {
        study(&group(
            "nthreads=\"1\"",
            &format!("{CONNECT}<transaction duration=\"1s\">{flowop}</transaction>"),
        ))
    };
    let (same, notes) =
        sendfile(r#"<flowop type="sendfilev" options="dir=same nfiles=10 size=512"/>"#);
    let knobs = &same.cells[0].knobs;
    assert_eq!(
        knobs.value("program").unwrap().to_string(),
        r#"[{ connect = {} }, { repeat = "forever", do = [{ send = "5000B", with = "sendfile", count = 10 }] }]"#
    );
    assert_eq!(knobs.value("io").unwrap().to_string(), "epoll");
    assert_eq!(knobs.value("write_size").unwrap().to_string(), "512B");
    assert_eq!(notes.len(), 1, "{notes:?}");
    let (_, notes) = sendfile(r#"<flowop type="sendfile" options="dir=mixed"/>"#);
    assert!(
        notes.iter().any(|note| note.contains("1000 to 3000 bytes")),
        "{notes:?}"
    );
}

#[test]
fn what_has_no_effect_is_said() {
    let (_, notes) = study(&group(
        "nthreads=\"1\"",
        &format!(
            "{CONNECT}<transaction duration=\"1s\">\n<flowop type=\"write\" options=\"size=1 duration=3s\n stack=rack canfail non_blocking\"/></transaction><transaction>\n<flowop type=\"think\" options=\"duration=1s\"/></transaction>"
        ),
    ));
    let notes: Vec<&str> = notes
        .iter()
        .map(|note| &note[..note.len().min(30)])
        .collect();
    assert_eq!(
        notes,
        [
            "p.xml:5: canfail: no effect on",
            "p.xml:5: duration: of a flowop",
            "p.xml:6: non_blocking: no effe",
            "p.xml:6: stack: no effect: onl",
            "p.xml:7: is not done: the tria",
        ]
    );
}

/// Texts that uperf's own reader takes though they are no XML, each with its notes, without the file's name. All
/// of them are the profile of the first.
const LAX: &[(&str, &[&str])] = &[
    (
        "<profile name=\"x\"><group nthreads=\"2\"><transaction><flowop type=\"connect\" options=\"remotehost=$h\"/></transaction>\n<transaction duration=\"3s\"><flowop type=\"write\" options=\"size=90 count=4\"/></transaction></group></profile>",
        &[],
    ),
    (
        "<?xml version=1.0?><profile name=x><group nthreads=2><transaction><flowop type=connect options=\"remotehost=$h\"/></transaction>\n<transaction duration=3s><flowop type=write options=\"size=90\n count=4\"/></transaction></group></profile>",
        &[
            "1: name=x: a value without quotes",
            "1: nthreads=2: a value without quotes",
            "1: type=connect: a value without quotes",
            "2: duration=3s: a value without quotes",
            "2: type=write: a value without quotes",
        ],
    ),
    (
        "<profile name=\"x\">\n<group nthreads=\"2\">\n<transaction>\n<flowop type=\"connect\" options=\"remotehost=$h\">\n<transaction duration=\"3s\">\n<flowop type=\"write\" options=\"size=90 count=4\">",
        &[
            "1: </profile> is left out",
            "2: </group> is left out",
            "3: </transaction> is left out",
            "4: </flowop> is left out",
            "5: </transaction> is left out",
            "6: </flowop> is left out",
        ],
    ),
    (
        "<PROFILE name=\"x\"></profile>\n<groups nthreads = \"7\" nthreads=\"2\"/>\n< transaction><flowop type=\"connect\" options=\"remotehost=$h\"/></ transaction ></transaction>\n<transaction duration=\"3s\"/><flowop type=\"write\" options=\"size=90 , count=4k\"/> >",
        &[
            "2: <group> outside of a profile",
            "2: <groups>: uperf reads it as <group>",
            "2: nthreads: a second time: it counts",
            "3: </transaction> closes nothing",
            "3: <transaction> after <group/>: it is part of it",
            "4: ,: no option, without effect",
            "4: <flowop> after <transaction/>: it is part of it",
            "4: <transaction> after <group/>: it is part of it",
            "4: a > that closes nothing",
            "4: count: 4k: uperf reads only its first digits",
        ],
    ),
    (
        "<profile>\n<group name=\"y\"\n<transaction nthreads=\"2\"><flowop type=\"connect\" options=\"remotehost=$h\"/></transaction\n<transaction><flowop type=\"write\" duration=\"3s\" options=\"size=90 count=4\"/></transaction></group></profile><profile name=\"x\"></profile>",
        &[
            "2: <group without its closing >",
            "3: </transaction without its >",
            "3: nthreads in <transaction>: uperf takes it for the <group>'s",
            "4: a second profile: its groups are added",
            "4: duration in <flowop>: uperf takes it for the <transaction>'s",
        ],
    ),
];

#[test]
fn what_uperf_reads_and_xml_does_not_is_read_with_a_note() {
    let whole = convert(LAX[0].0).unwrap_or_else(|error| panic!("{error}"));
    for (text, notes) in LAX {
        let found = convert(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(found.toml, whole.toml, "{text}");
        let found: Vec<&str> = found
            .notes
            .iter()
            .map(|note| note.strip_prefix("p.xml:").unwrap())
            .collect();
        assert_eq!(&found[..], *notes, "{text}");
    }
}

/// Wrong texts, each with the line of the error and a part of its message.
const WRONG: &[(&str, usize, &str)] = &[
    ("<", 1, "without its closing >"),
    ("<profile", 1, "without its closing >"),
    ("<!-- ", 1, "comment without its end"),
    ("<?xml ", 1, "without its end"),
    ("<profile/>", 1, "no group in it"),
    ("</profile>", 1, "no profile"),
    ("<profile>\n<transaction/>", 2, "found outside of a <group>"),
    (
        "<profile><group>\n<flowop/>",
        2,
        "found outside of a <transaction>",
    ),
    ("<profile>\n</flowop>", 2, "closes nothing"),
    ("<profile>\nhello</profile>", 2, "hello: text between"),
    ("<profile>&lol;</profile>", 1, "an entity"),
    ("<profile><![CDATA[x]]></profile>", 1, "CDATA"),
    (
        "\n<!DOCTYPE lolz [<!ENTITY lol \"lol\">]>\n<profile/>",
        2,
        "(DTD)",
    ),
    ("<profile name=/>", 1, "without a value"),
    ("<profile name=x\"y\"/>", 1, "begins before its quote"),
    ("<profile name=\"x/>", 1, "without its closing quote"),
    ("<profile name/>", 1, "without ="),
    ("<profile / >", 1, "no attribute"),
    ("<profile nam='a'/>", 1, "nearest is \"name\""),
    ("<profile name='&x;'/>", 1, "none of XML's own five"),
    (
        "<profiel/>",
        1,
        "no such element of a profile; nearest is \"profile\"",
    ),
    ("<group/>", 1, "no nthreads"),
    ("<profile>\0</profile>", 1, "NUL"),
    (
        "<profile><group><transaction/></group></profile>",
        1,
        "no nthreads",
    ),
    (
        "<profile><group nthreads='0'/></profile>",
        1,
        "expected 1 to 30000",
    ),
    (
        "<profile><group nthreads='-1'/></profile>",
        1,
        "expected a number",
    ),
    (
        "<profile><group nthreads='1'/></profile>",
        1,
        "there is no connection to use",
    ),
    (
        "<profile><group nthreads='$unset'/></profile>",
        1,
        "$unset: the environment has no such variable",
    ),
    (
        "<profile><group nthreads='$empty'/></profile>",
        1,
        "$empty: the environment has no such variable",
    ),
];

/// Wrong flowops after a connect, in line 5, each with a part of the message.
const WRONG_FLOWOPS: &[(&str, &str)] = &[
    (r#"<flowop options="size=1"/>"#, "no type"),
    (
        r#"<flowop type="wirte"/>"#,
        "wirte: no such flowop; nearest is \"write\"",
    ),
    (
        r#"<flowop type="wait"/>"#,
        "wait: belongs to asynchronous protocols",
    ),
    (r#"<flowop type="write"/>"#, "no size"),
    (
        r#"<flowop type="write" options="size=100000000000000000000"/>"#,
        "too large",
    ),
    (
        r#"<flowop type="write" options="size=-5"/>"#,
        "size: -5: expected a number",
    ),
    (
        r#"<flowop type="write" options="size=0"/>"#,
        "expected 1 to 67108864 bytes",
    ),
    (
        r#"<flowop type="write" options="size=rand(4k,1k)"/>"#,
        "the first is the smaller",
    ),
    (
        r#"<flowop type="write" options="size=rand(4k"/>"#,
        "expected rand(least,most)",
    ),
    (
        r#"<flowop type="write" options="size="/>"#,
        "expected a value",
    ),
    (
        r#"<flowop type="write" options="size"/>"#,
        "expected a value",
    ),
    (
        r#"<flowop type="write" options="sise=1"/>"#,
        "nearest is \"size\"",
    ),
    (
        r#"<flowop type="write" options="size=1 sctp_stream_id=3"/>"#,
        "sctp_stream_id: belongs to SCTP",
    ),
    (r#"<flowop type="write" options="size=1 async"/>"#, "uDAPL"),
    (
        r#"<flowop type="write" options="size=1 conn=2"/>"#,
        "uses conn=2, which nothing opens",
    ),
    (
        r#"<flowop type="write" options="size=1 conn=0"/>"#,
        "expected a number from 1",
    ),
    (
        r#"<flowop type="write" options="size=$nothing"/>"#,
        "$nothing: the environment",
    ),
    (
        r#"<flowop type="write" option="size=1"/>"#,
        "nearest is \"options\"",
    ),
    (
        r#"<flowop type="think" options="duration=10min"/>"#,
        "for milliseconds",
    ),
    (
        r#"<flowop type="think" options="duration=0"/>"#,
        "more than 0",
    ),
    (
        r#"<flowop type="think" options="duration=30m count=100000000"/>"#,
        "longer than an hour",
    ),
    (r#"<flowop type="sendfile"/>"#, "dir=FOLDER"),
    (
        r#"<flowop type="sendfile" options="dir=none"/>"#,
        "no files in it",
    ),
    (r#"<flowop type="sendfile" options="dir=/x"/>"#, "dir: /x: "),
    (
        r#"<flowop type="connect" options="remotehost=$h"/>"#,
        "opens a connection of this name once more",
    ),
    (
        r#"<flowop type="connect" options="conn=2 count=3 remotehost=$h"/>"#,
        "several connections of one name",
    ),
    (
        r#"<flowop type="connect" options="conn=2"/>"#,
        "no remotehost",
    ),
    (
        r#"<flowop type="connect" options="conn=2 remotehost=$elsewhere"/>"#,
        "remotehost $elsewhere: no host of the bed",
    ),
    (
        r#"<flowop type="connect" options="conn=2 remotehost=$h protocol=sctp"/>"#,
        "protocol sctp: tcpcost measures TCP",
    ),
    (
        r#"<flowop type="connect" options="conn=2 remotehost=$h protocol=tpc"/>"#,
        "nearest is \"tcp\"",
    ),
    (
        r#"<flowop type="connect" options="conn=2 remotehost=$h tcp_nodelay"/>"#,
        "other options of sockets",
    ),
    (
        r#"<flowop type="accept" options="conn=2 remotehost=$h"/>"#,
        "accept and connect in one group",
    ),
    (
        r#"<flowop type="nop"><flowop type="nop"/></flowop>"#,
        "</flowop> closes nothing",
    ),
];

#[test]
fn what_is_wrong_is_said_in_one_line_with_its_own() {
    let check = |text: &str, line: usize, part: &str| {
        let error = convert(text).expect_err(text).to_string();
        assert!(
            error.starts_with(&format!("p.xml:{line}: ")),
            "{text}\n{error}"
        );
        assert!(error.contains(part), "{text}\n{error}");
        assert!(!error.contains('\n') && error.len() < 300, "{error}");
    };
    for (text, line, part) in WRONG {
        check(text, *line, part);
    }
    for (flowop, part) in WRONG_FLOWOPS {
        check(
            &group(
                "nthreads=\"1\"",
                &format!(
                    "<transaction><flowop type=\"connect\" options=\"remotehost=$h\"/>\n{flowop}</transaction>"
                ),
            ),
            5,
            part,
        );
    }
    for (transactions, line, part) in [
        (
            format!("{CONNECT}\n<transaction duration=\"1s\"><flowop type=\"nop\"/></transaction>\n<transaction duration=\"1s\"><flowop type=\"nop\"/></transaction>"),
            6,
            "a second duration",
        ),
        (
            "<transaction iterations=\"5\">\n<flowop type=\"connect\" options=\"remotehost=$h\"/></transaction>".to_string(),
            5,
            "never closes one",
        ),
        (
            "<transaction><flowop type=\"connect\" options=\"remotehost=$h\"/><flowop type=\"disconnect\"/>\n<flowop type=\"nop\"/></transaction>".to_string(),
            5,
            "comes after disconnect",
        ),
        (
            "<transaction><flowop type=\"connect\" options=\"remotehost=$h\"/><flowop type=\"disconnect\"/></transaction>\n<transaction><flowop type=\"nop\"/></transaction>".to_string(),
            5,
            "used in the same group as a transaction",
        ),
    ] {
        check(&group("nthreads=\"1\"", &transactions), line, part);
    }
}

#[test]
fn every_word_has_one_row() {
    let mut words: Vec<(String, &str)> = rows::all().map(|row| (row.kind(), row.name)).collect();
    let all = words.len();
    words.sort();
    words.dedup();
    assert_eq!(words.len(), all);
    assert!(
        words
            .iter()
            .all(|(_, name)| *name == name.to_ascii_lowercase())
    );
}

/// Profile with all features, for the following tests.
const WHOLE: &str = r#"<?xml version="1.0"?>
<!-- of every kind -->
<profile name="all">
  <group nthreads="$nthr" name="a">
    <transaction iterations="1">
      <flowop type="connect" options="remotehost=$h protocol=tcp wndsz=50k tcp_nodelay"/>
      <flowop type="connect" options="conn=2 remotehost=$h1 wndsz=50k tcp_nodelay"/>
    </transaction>
    <transaction duration="30s" rate="10">
      <flowop type="write" options="count=10 size=rand(1,8k) canfail"/>
      <flowop type="read" options="conn=2 size=64k rsize=128k"/>
      <flowop type="think" options="duration=1ms busy"/>
      <flowop type="sendfilev" options="dir=same nfiles=3"/>
    </transaction>
    <transaction><flowop type="disconnect"/></transaction>
  </group>
  <group nprocs="2">
    <transaction iterations="100">
      <flowop type="accept" options="remotehost=localhost wndsz=50k tcp_nodelay"/>
      <flowop type="nop"/>
      <flowop type="disconnect"/>
    </transaction>
  </group>
</profile>
"#;

#[test]
fn a_profile_of_everything_converts() {
    let (study, _) = study(WHOLE);
    assert_eq!(study.cells[0].knobs.group_names().len(), 2);
}

proptest! {
    /// Any profile that converts makes a valid study, and any error is one line.
    #[test]
    fn no_text_is_more_than_a_study_or_a_line(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..9, "[<>/\"'=&;!$ a-z0-9\\[\\]\\-\u{0}\n]{0,6}"), 0..4)
    ) {
        let mut text = WHOLE.to_string();
        for (at, length, put) in cuts {
            let at = at.index(text.len() + 1);
            let end = (at + length).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &put);
            }
        }
        match convert(&text) {
            Ok(ConvertedProfile { toml, notes }) => {
                let study = Study::parse("p", &toml, "p.toml");
                prop_assert!(study.is_ok(), "{}\n{}", toml, study.unwrap_err());
                prop_assert!(notes.iter().all(|note| !note.contains('\n')));
            }
            Err(error) => {
                let error = error.to_string();
                prop_assert!(!error.contains(['\n', '\0', '\u{1b}']), "{}", error);
            }
        }
    }

    #[test]
    fn no_bytes_are_too_much(text in "\\PC{0,200}") {
        let _ = convert(&text);
    }
}
