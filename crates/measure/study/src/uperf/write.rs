//! Text of the study file for a profile.

use tcpcost_counts::printable;

use tcpcost_knobs::{Operation, units};

use super::translate::{Group, Study};

pub(super) fn toml(title: &str, file: &str, study: &Study) -> String {
    let bytes = |bytes: u32| quoted(&units::show_bytes(bytes.into()));
    let file = file.rsplit('/').next().unwrap_or(file);
    let mut text = format!("# Of uperf's profile {}.\n", one_line(file));
    text += &format!("title = {}\n\n[workload]\n", quoted(&one_line(title)));
    let io = match study.sends_files {
        true => "epoll",
        false => "blocking-threads",
    };
    text += &format!("io = {}\n", quoted(io));
    if study.sockets.nodelay {
        text += "nodelay = \"on\"\n";
    }
    if let Some(window) = study.sockets.window {
        let window = bytes(window);
        text += &format!("send_buffer = {window}\nreceive_buffer = {window}\n");
    }
    if let Some(name) = &study.sockets.congestion_control {
        text += &format!("congestion_control = {}\n", quoted(name));
    }
    match study.groups.as_slice() {
        [only] => text += &format!("kind = \"program\"\n{}", group(only)),
        groups => {
            for one in groups {
                text += &format!("\n[[group]]\nname = {}\n", quoted(&one.name));
                text += &group(one);
            }
        }
    }
    text += "\n[measure]\nrepetitions = 1\n";
    if let Some(duration) = study.duration {
        let duration = quoted(&units::show_duration(duration));
        text += &format!("duration = {duration}\n");
    }
    text
}

fn group(group: &Group) -> String {
    let mut text = format!("flows = {}\n", group.flows);
    for (key, bytes) in [
        ("write_size", group.write_bytes),
        ("read_size", group.read_bytes),
    ] {
        let bytes = quoted(&units::show_bytes(bytes.into()));
        text += &format!("{key} = {bytes}\n");
    }
    if let Some(rate) = group.rate {
        text += &format!("transaction_rate = \"{rate}/s\"\n");
    }
    text += "program = [\n";
    text += &operations(group.program.operations(), 1);
    text + "]\n"
}

/// Renders one operation a line; those of a loop are indented.
fn operations(all: &[Operation], depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let line = |one: &Operation| match one {
        Operation::Loop { body, .. } => {
            let empty = one.without_body().to_string();
            let head = empty.strip_suffix("[] }").unwrap_or(&empty);
            let body = operations(body, depth + 1);
            format!("{indent}{head}[\n{body}{indent}] }},\n")
        }
        one => format!("{indent}{one},\n"),
    };
    all.iter().map(line).collect()
}

/// Quotes a text as TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable(&text).into_owned()
}
