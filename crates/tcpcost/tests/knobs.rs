//! Every knob over every bed and stack: applied and read back, or skipped with its reason; none is
//! ignored. The cells come from the knobs' rows, so a new row is tested without a change here.

mod common;

use std::collections::BTreeMap;

use common::{Place, able, count, did_no_work};
use serde_json::Value as Json;
use tcpcost_study::{
    AckKind, AppliesTo, CheckedEnds, KNOBS, KernelSupport, Knob, KnobCondition, Knobs, Required,
    UserSupport, Value, ValueKind, find,
};
use tcpcost_testbed::{in_namespace, is_root, skip};

/// Bed, and the stack of each end.
struct Stand {
    bed: &'static str,
    stacks: &'static [(&'static str, &'static str)],
    /// Prefixes under which a knob of an end is set: none for both ends, or one end.
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

/// Values of a knob to try: every word of a choice, one example of any other kind.
fn examples(row: &Knob) -> Vec<String> {
    let one = |text: &str| vec![text.to_string()];
    match row.kind {
        _ if row.name == "on" => one("client"),
        _ if row.name == "to" => one("server"),
        ValueKind::Program => one(r#"[{ send = "1KiB" }, { receive = "1KiB" }]"#),
        ValueKind::Choice(words) => words.iter().map(ToString::to_string).collect(),
        ValueKind::Switch => vec!["on".to_string(), "off".to_string()],
        ValueKind::Count(least, most) => vec![3.clamp(least, most).to_string()],
        // The value is below the smallest usual MTU, and fits into any socket buffer.
        ValueKind::Bytes(least, most) => vec![format!("{}B", 4096.clamp(least, most))],
        ValueKind::BitRate => one("800Mbit"),
        ValueKind::Share => one("0.5%"),
        ValueKind::EventRate => one("2000/s"),
        ValueKind::Time(least, most) => vec![format!("{}ms", 40.clamp(least, most))],
        ValueKind::Cpus => one("[1]"),
        ValueKind::Text => vec!["reno".to_string(), "nosuch".to_string()],
        ValueKind::Reach => one("local"),
        ValueKind::Device => one("eth0"),
        ValueKind::Address => one("192.0.2.1"),
        ValueKind::Ports => one("50000-50015"),
    }
}

/// Sets the other knobs that a knob needs, if its row names a value for them.
fn satisfy(
    knobs: &mut BTreeMap<String, String>,
    row: &Knob,
    value: &str,
    prefix: &str,
    user: bool,
) {
    for need in row.needs {
        let is_asked = need.ends == CheckedEnds::Every || (need.ends == CheckedEnds::User && user);
        let is_meant = need.when.is_empty() || need.when.contains(&value);
        let Some(KnobCondition { knob, required }) =
            need.any_of.first().filter(|_| is_asked && is_meant)
        else {
            continue;
        };
        let other = find(knob).expect("rows name rows");
        let text = match required {
            Required::OneOf(words) if words.contains(&other.default) => continue,
            Required::OneOf(words) => words[0].to_string(),
            Required::Satisfies(is_so) => match other.kind {
                ValueKind::Choice(words) => {
                    words.iter().find(|word| is_so(word)).unwrap().to_string()
                }
                _ => panic!("{knob} is a choice"),
            },
            Required::Set => examples(&other)[0].clone(),
            Required::AtLeast => value.to_string(),
            Required::NoneOf(words) if words.contains(&other.default) => {
                let mut examples = examples(&other).into_iter();
                let is_other = |example: &String| !words.contains(&example.as_str());
                examples
                    .find(is_other)
                    .expect("a value that is none of these")
            }
            Required::NoneOf(_) | Required::Unset | Required::ValueSatisfies(..) => continue,
        };
        let prefix = if other.per_end { prefix } else { "" };
        knobs.entry(format!("{prefix}{knob}")).or_insert(text);
    }
}

/// Cell: the knob, its value and end, and all knobs that are set.
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
        // Knobs of named hosts are tested in tests/fleet.rs.
        .filter(|row| !["reach", "device", "address", "data_ports", "pattern"].contains(&row.name))
    {
        let prefixes = if row.per_end { stand.ends } else { &[""] };
        for &prefix in prefixes {
            for value in examples(row) {
                let mut knobs = BTreeMap::new();
                knobs.insert(format!("{prefix}{}", row.name), value.clone());
                if row.name == "cpus" || value == "visits" {
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
    // One CPU for both ends: no trial waits for two nearby CPUs.
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

/// Value of a knob in the record of an end. `None` if the record does not show it.
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
    let (AppliesTo::Link(kernel, has) | AppliesTo::Tcp(kernel, has)) = row.applies_to else {
        return of_connection;
    };
    if user {
        return match has {
            UserSupport::Supported(_) => of_connection,
            UserSupport::Wire => text(&environment["carrier"]),
            UserSupport::Unsupported(_) => None,
        };
    }
    let qdisc = environment["qdisc"].as_str().unwrap_or_default();
    let route = environment["route"].as_str().unwrap_or_default();
    match (row.name, kernel) {
        (_, KernelSupport::Device(_)) => of_device,
        (_, KernelSupport::Sysctl(name, _)) => text(&environment["sysctls"][name]),
        (_, KernelSupport::SocketOption(_)) => of_connection,
        (_, KernelSupport::Fixed(word, _)) => Some(word.to_string()),
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
        ("gro_flush_timeout" | "napi_defer_hard_irqs" | "rps_flow_cnt" | "xps_cpus", _) => {
            text(&environment["queues"][row.name])
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
        (_, KernelSupport::RealDevice("ethtool")) => text(&environment["nic"]["ethtool"][row.name]),
        // The effect of the wire has its own tests.
        (_, KernelSupport::Wire) => text(&environment["carrier"]),
        ("ack_filter" | "ack_segments", _) => {
            // Panics if the program does not count.
            count(record, end, "ack_filter", "ack_filter_passed_acks");
            Some("counted".to_string())
        }
        (name, kernel) => panic!("{name}: how is {kernel:?} read back?"),
    }
}

/// True if the value that was read back is the value that was asked for.
fn is_as_asked(row: &Knob, asked: &str, read: &str, user: bool) -> bool {
    let mut knobs = Knobs::default();
    knobs.set(row.name, asked).unwrap();
    let value = knobs.value(row.name).unwrap();
    let number = |of: &Value| row.kind.number(of).unwrap();
    let kernel = match row.applies_to {
        AppliesTo::Link(kernel, _) | AppliesTo::Tcp(kernel, _) if !user => Some(kernel),
        _ => None,
    };
    if let AppliesTo::Link(KernelSupport::Wire, _) = row.applies_to {
        // The machine decides which carrier there is; delay and loss have their own tests.
        return read == "own" || read == "netem";
    }
    match (row.name, kernel) {
        (_, Some(KernelSupport::Sysctl(_, write))) => read == write(number(&value)).to_string(),
        ("bottleneck", Some(_)) => read.contains(&format!("rate {}bit", number(&value))),
        ("bottleneck_queue", Some(_)) => read.contains(&format!("limit {}b", number(&value))),
        ("ack_filter" | "ack_segments", Some(_)) => true,
        ("gro_flush_timeout", _) => {
            let ns = value.time().unwrap().as_nanos();
            read == ns.to_string()
        }
        // Each queue has so many, rounded up to a power of two.
        ("rps_flow_cnt", _) => {
            let flows = number(&value).next_power_of_two().to_string();
            read.split(' ').all(|queue| queue == flows)
        }
        // The examples have one CPU, which all queues serve.
        ("xps_cpus", _) => read.split(' ').all(|mask| mask == "2"),
        ("mtu" | "gso_max_size" | "gro_max_size" | "gso_max_segs", _) => {
            read == number(&value).to_string() || read == value.to_string()
        }
        _ => read == value.to_string(),
    }
}

/// True if the knob's row alone says that an end does not support the value.
fn must_be_skipped(tried: &Tried, stand: &Stand, user: bool) -> bool {
    let (AppliesTo::Link(kernel, has) | AppliesTo::Tcp(kernel, has)) = tried.row.applies_to else {
        return tried.value == "nosuch";
    };
    match (user, kernel) {
        (true, _) => {
            matches!(has, UserSupport::Unsupported(_))
                && (tried.row.per_end || stand.bed == "memory")
        }
        (false, KernelSupport::Unsupported(_)) => true,
        (false, KernelSupport::Fixed(word, _)) => tried.value != word,
        (false, KernelSupport::OwnDevice(_) | KernelSupport::RealDevice(_)) => {
            stand.bed == "loopback"
        }
        (false, KernelSupport::Wire) => stand.bed == "loopback",
        (false, KernelSupport::AckPolicies) => {
            let kind = AckKind::from_word(&tried.value).unwrap();
            kind.in_kernel().is_none() || (kind == AckKind::Every && stand.bed == "loopback")
        }
        _ => false,
    }
}

/// Runs the cells of a bed and checks the outcome of each.
fn check(stand: &Stand) {
    let place = Place::new();
    let cells = cells(stand);
    let file = place.write("s.toml", &study(stand, &cells));
    let ran = place.run(&["run", &file, "--out", "out"]);
    let records = place.records("out");
    for record in &records {
        // Nothing may move in 4 ms; then the trial is repeated.
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
            // A knob of both ends may apply to the other end only.
            let user = stand.is_user(&format!("{end}."));
            let read = read_back(record, end, tried.row, user);
            if let Some(read) = &read {
                let is_right = is_as_asked(tried.row, &tried.value, read, user);
                assert!(is_right, "{}: read back {read:?}: {told}", tried.row.name);
            }
            let is_of_end = matches!(
                tried.row.applies_to,
                AppliesTo::Link(..) | AppliesTo::Tcp(..)
            ) && tried.row.per_end;
            assert!(read.is_some() || !is_of_end, "not read back: {told}");
        }
    }
    println!("{}: {applied} applied, {skipped} skipped", stand.bed);
    assert!(applied > 20 && skipped > 5, "{applied} {skipped}");
}

#[test]
fn over_the_kernels_loopback() {
    // A namespace has its own loopback, so the host's is left alone.
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
