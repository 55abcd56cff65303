//! Every knob over every bed and stack: applied and read back, or skipped with its reason; none is
//! ignored. The cells are made of the rows, so a new row is tested without a new line here.

mod common;

use std::collections::BTreeMap;

use common::{Place, able, count, did_no_work};
use serde_json::Value as Json;
use tcpcost_study::{
    AckKind, At, Is, KNOBS, Kernel, Kind, Knob, Knobs, Of, Term, User, Value, find,
};
use tcpcost_testbed::{in_namespace, is_root, skip};

/// A bed, and whose TCP its ends are.
struct Stand {
    bed: &'static str,
    stacks: &'static [(&'static str, &'static str)],
    /// Where the knobs of an end are set: both ends, or this one.
    ends: &'static [&'static str],
}

const LOOPBACK: Stand = Stand {
    bed: "loopback",
    stacks: &[],
    ends: &[""],
};
const NETNS: Stand = Stand {
    bed: "netns",
    ..LOOPBACK
};
const MEMORY: Stand = Stand {
    bed: "memory",
    stacks: &[("stack", "user")],
    ..LOOPBACK
};
const TAP: Stand = Stand {
    bed: "tap",
    stacks: &[("client.stack", "user")],
    ends: &["client.", "server."],
};

impl Stand {
    fn is_user(&self, prefix: &str) -> bool {
        self.bed == "memory" || (self.bed == "tap" && prefix == "client.")
    }
}

/// Values of a knob to try, beside leaving things alone: every word, an example of all else.
fn examples(row: &Knob) -> Vec<String> {
    let one = |text: &str| vec![text.to_string()];
    match row.kind {
        _ if row.name == "on" => one("client"),
        _ if row.name == "to" => one("server"),
        Kind::Program => one(r#"[{ send = "1KiB" }, { receive = "1KiB" }]"#),
        Kind::Choice(words) => words.iter().map(ToString::to_string).collect(),
        Kind::Switch => vec!["on".to_string(), "off".to_string()],
        Kind::Count(least, most) => vec![3.clamp(least, most).to_string()],
        // Below the smallest MTU that is usual, and within any socket's buffer.
        Kind::Bytes(least, most) => vec![format!("{}B", 4096.clamp(least, most))],
        Kind::BitRate => one("800Mbit"),
        Kind::Share => one("0.5%"),
        Kind::EventRate => one("2000/s"),
        Kind::Time(least, most) => vec![format!("{}ms", 40.clamp(least, most))],
        Kind::Cpus => one("[1]"),
        Kind::Text => vec!["reno".to_string(), "nosuch".to_string()],
        Kind::Reach => one("local"),
        Kind::Device => one("eth0"),
        Kind::Address => one("192.0.2.1"),
        Kind::Ports => one("50000-50015"),
    }
}

/// Sets what a knob needs, where its row says so in a way that can be followed.
fn satisfy(
    knobs: &mut BTreeMap<String, String>,
    row: &Knob,
    value: &str,
    prefix: &str,
    user: bool,
) {
    for need in row.needs {
        let is_asked = need.at == At::Every || (need.at == At::User && user);
        let is_meant = need.when.is_empty() || need.when.contains(&value);
        let Some(Term { knob, is }) = need.any.first().filter(|_| is_asked && is_meant) else {
            continue;
        };
        let other = find(knob).expect("rows name rows");
        let text = match is {
            Is::In(words) if words.contains(&other.default) => continue,
            Is::In(words) => words[0].to_string(),
            Is::That(is_so) => match other.kind {
                Kind::Choice(words) => words.iter().find(|word| is_so(word)).unwrap().to_string(),
                _ => panic!("{knob} is a choice"),
            },
            Is::Set => examples(&other)[0].clone(),
            Is::AtLeast => value.to_string(),
            Is::NotIn(_) | Is::Unset | Is::Such(..) => continue,
        };
        let prefix = if other.per_end { prefix } else { "" };
        knobs.entry(format!("{prefix}{knob}")).or_insert(text);
    }
}

/// A cell: the knob, where and to what it is set, and all that is set.
struct Tried {
    row: &'static Knob,
    prefix: &'static str,
    value: String,
    knobs: BTreeMap<String, String>,
}

fn cells(stand: &Stand) -> Vec<Tried> {
    let mut cells = Vec::new();
    for row in KNOBS
        .iter()
        .filter(|row| !["bed", "stack"].contains(&row.name))
        // Of hosts that a study names: tests/fleet.rs has these.
        .filter(|row| !["reach", "device", "address", "data_ports", "pattern"].contains(&row.name))
    {
        let prefixes = if row.per_end { stand.ends } else { &[""] };
        for &prefix in prefixes {
            for value in examples(row) {
                let mut knobs = BTreeMap::new();
                knobs.insert(format!("{prefix}{}", row.name), value.clone());
                if row.name == "cpus" {
                    knobs.insert("placement".to_string(), "two-cpus".to_string());
                }
                satisfy(&mut knobs, row, &value, prefix, stand.is_user(prefix));
                cells.push(Tried {
                    row,
                    prefix,
                    value,
                    knobs,
                });
            }
        }
    }
    cells
}

fn study(stand: &Stand, cells: &[Tried]) -> String {
    // On one CPU: nothing waits for two that are near each other.
    let mut text = format!(
        "[workload]\nplacement = \"same-cpu\"\n[bed]\nkind = \"{}\"\n",
        stand.bed
    );
    for (name, word) in stand.stacks {
        text += &format!("{name} = \"{word}\"\n");
    }
    for (index, tried) in cells.iter().enumerate() {
        text += &format!("[[cells]]\nname = \"{index}\"\n");
        for (name, value) in &tried.knobs {
            let is_bare = value.starts_with('[') || value.parse::<i64>().is_ok();
            let quote = if is_bare { "" } else { "\"" };
            text += &format!("\"{name}\" = {quote}{value}{quote}\n");
        }
    }
    text + "[measure]\nmeters = [\"proc\"]\nwarm_up = \"1ms\"\nduration = \"4ms\"\nrepetitions = 1\nretries = 0\nothers_max = \"100%\"\n"
}

/// What the record of an end tells of a knob; `None` where it tells nothing.
fn read_back(record: &Json, end: &str, row: &Knob, user: bool) -> Option<String> {
    let environment = common::environment(record, end);
    let text = |value: &Json| match value {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        Json::Bool(on) => Some(if *on { "on" } else { "off" }.to_string()),
        other => Some(other.to_string()),
    };
    let of_connection = text(&environment["connection"][row.name]);
    let of_device =
        text(&environment[row.name]).or_else(|| text(&environment["offloads"][row.name]));
    let (Of::Link(kernel, has) | Of::Tcp(kernel, has)) = row.of else {
        return of_connection;
    };
    if user {
        return match has {
            User::Has(_) => of_connection,
            User::Wire => text(&environment["carrier"]),
            User::No(_) => None,
        };
    }
    let qdisc = environment["qdisc"].as_str().unwrap_or_default();
    let route = environment["route"].as_str().unwrap_or_default();
    match (row.name, kernel) {
        (_, Kernel::Device(_)) => of_device,
        (_, Kernel::Sysctl(name, _)) => text(&environment["sysctls"][name]),
        (_, Kernel::SocketOption(_)) => of_connection,
        (_, Kernel::Always(word, _)) => Some(word.to_string()),
        ("bottleneck" | "bottleneck_queue", _) => Some(qdisc.to_string()),
        ("quickack", _) => Some(
            if route.contains("quickack 1") {
                "on"
            } else {
                "off"
            }
            .to_string(),
        ),
        ("qdisc", _) => qdisc.split(' ').next().map(str::to_string),
        ("threaded_napi", _) => {
            let is_on = environment["threaded_napi"].as_bool()?;
            Some(if is_on { "on" } else { "off" }.to_string())
        }
        ("steering", _) => {
            let mask = environment["rps_cpus"].as_str()?;
            let is_on = mask.chars().any(|digit| !matches!(digit, '0' | ','));
            Some(if is_on { "on" } else { "off" }.to_string())
        }
        ("ack_policy", _) => Some(
            if route.contains("quickack 1") {
                "every"
            } else {
                "linux-like"
            }
            .to_string(),
        ),
        ("irq_cpus", _) => text(&environment["nic"]["irqs"]),
        (_, Kernel::RealDevice("ethtool")) => text(&environment["nic"]["ethtool"][row.name]),
        // What it does is tested by itself.
        (_, Kernel::Wire) => text(&environment["carrier"]),
        ("ack_filter" | "ack_segments", _) => {
            // The program is there and counts.
            count(record, end, "ack_filter", "ack_filter_passed_acks");
            Some("counted".to_string())
        }
        (name, kernel) => panic!("{name}: how is {kernel:?} read back?"),
    }
}

/// Whether what was read back is what was asked for.
fn is_as_asked(row: &Knob, asked: &str, read: &str, user: bool) -> bool {
    let mut knobs = Knobs::default();
    knobs.set(row.name, asked).unwrap();
    let value = knobs.value(row.name).unwrap();
    let number = |of: &Value| row.kind.number(of).unwrap();
    let kernel = match row.of {
        Of::Link(kernel, _) | Of::Tcp(kernel, _) if !user => Some(kernel),
        _ => None,
    };
    if let Of::Link(Kernel::Wire, _) = row.of {
        // Who carries is the machine's; what is carried is tested by itself.
        return read == "own" || read == "netem";
    }
    match (row.name, kernel) {
        (_, Some(Kernel::Sysctl(_, write))) => read == write(number(&value)).to_string(),
        ("bottleneck", Some(_)) => read.contains(&format!("rate {}bit", number(&value))),
        ("bottleneck_queue", Some(_)) => read.contains(&format!("limit {}b", number(&value))),
        ("ack_filter" | "ack_segments", Some(_)) => true,
        ("mtu" | "gso_max_size" | "gro_max_size" | "gso_max_segs", _) => {
            read == number(&value).to_string() || read == value.to_string()
        }
        _ => read == value.to_string(),
    }
}

/// Which knobs an end cannot have for sure, by the row alone.
fn must_be_skipped(tried: &Tried, stand: &Stand, user: bool) -> bool {
    let (Of::Link(kernel, has) | Of::Tcp(kernel, has)) = tried.row.of else {
        return tried.value == "nosuch";
    };
    match (user, kernel) {
        (true, _) => matches!(has, User::No(_)) && (tried.row.per_end || stand.bed == "memory"),
        (false, Kernel::No(_)) => true,
        (false, Kernel::Always(word, _)) => tried.value != word,
        (false, Kernel::OwnDevice(_) | Kernel::RealDevice(_)) => stand.bed == "loopback",
        (false, Kernel::Wire) => stand.bed == "loopback",
        (false, Kernel::AckPolicies) => {
            let kind = AckKind::from_word(&tried.value).unwrap();
            kind.in_kernel().is_none() || (kind == AckKind::Every && stand.bed == "loopback")
        }
        _ => false,
    }
}

/// Runs the cells of a bed and checks what became of each.
fn check(stand: &Stand) {
    let place = Place::new();
    let cells = cells(stand);
    let file = place.write("s.toml", &study(stand, &cells));
    let ran = place.run(&["run", &file, "--out", "out"]);
    let records = place.records("out");
    for record in &records {
        // In 4 ms nothing may move; then it is tried again.
        let has_failed = record["outcome"] == "failed" && !did_no_work(record);
        assert!(!has_failed, "{}: {record}", stand.bed);
    }
    assert!(records.len() >= cells.len(), "{ran:?}");
    let (mut applied, mut skipped) = (0, 0);
    for (index, tried) in cells.iter().enumerate() {
        let record = records
            .iter()
            .find(|record| record["cell"] == *index.to_string())
            .unwrap();
        let told = format!("{} {:?}: {record}", stand.bed, tried.knobs);
        let user = stand.is_user(tried.prefix);
        if record["outcome"] == "skipped" {
            let reason = record["reason"].as_str().unwrap();
            let names_it = |name: &String| {
                let bare = name.rsplit('.').next().unwrap();
                reason.split(':').next().unwrap().ends_with(bare)
            };
            assert!(tried.knobs.keys().any(names_it), "{told}");
            skipped += 1;
            continue;
        }
        let has_run = record["outcome"] == "measured" || did_no_work(record);
        assert!(has_run, "{told}");
        assert!(!must_be_skipped(tried, stand, user), "{told}");
        applied += 1;
        if ["topology", "clients"].contains(&tried.row.name) {
            let value = |name: &str| tried.knobs.get(name).map(String::as_str);
            let hosts = match (value("topology"), value("clients")) {
                (Some("star"), clients) => {
                    1 + clients.map_or(3, |clients| clients.parse().unwrap())
                }
                (Some("chain"), _) => 3,
                _ => 2,
            };
            assert_eq!(record["hosts"].as_object().unwrap().len(), hosts, "{told}");
            continue;
        }
        let ends: &[&str] = match tried.prefix {
            "client." => &["client"],
            "server." => &["server"],
            _ => &["client", "server"],
        };
        for end in ends {
            // What ends share may be of the other one alone.
            let user = stand.is_user(&format!("{end}."));
            let read = read_back(record, end, tried.row, user);
            if let Some(read) = &read {
                let is_right = is_as_asked(tried.row, &tried.value, read, user);
                assert!(is_right, "{}: read back {read:?}: {told}", tried.row.name);
            }
            let is_of_end = matches!(tried.row.of, Of::Link(..) | Of::Tcp(..)) && tried.row.per_end;
            assert!(read.is_some() || !is_of_end, "not read back: {told}");
        }
    }
    println!("{}: {applied} applied, {skipped} skipped", stand.bed);
    assert!(applied > 20 && skipped > 5, "{applied} {skipped}");
}

#[test]
fn over_the_kernels_loopback() {
    // Of a namespace: the host's is left alone.
    in_namespace(|| check(&LOOPBACK));
}

#[test]
fn between_two_namespaces() {
    if able() {
        check(&NETNS);
    }
}

#[test]
fn over_a_tap() {
    if able() {
        check(&TAP);
    }
}

#[test]
fn in_memory() {
    if !is_root() {
        return skip("needs root to set socket buffers of any size");
    }
    check(&MEMORY);
}
