//! The page in a real browser, for every shape of study.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{all_measured, records};
use tcpcost_report::{Summary, html};
use tcpcost_study::{Outcome, Study, built_in};

const NUMBER: &str = r#"
    title = "one knob, a number"
    [vary]
    write_size = ["256B", "1KiB", "4KiB", "16KiB", "64KiB", "256KiB"]
"#;

const WORDS: &str = r#"
    title = "one knob, words, with </script><script>alert(1)</script> in the title"
    about = "<b>not bold</b>"
    [vary]
    send_with = ["write", "send", "sendfile"]
"#;

const TWO: &str = r#"
    title = "two knobs, both numbers"
    [workload]
    rate = "1Gbit"
    [vary]
    flows = [1, 10, 100]
    write_size = ["4KiB", "64KiB"]
"#;

/// Name, study, bed, charts.
fn pages() -> Vec<(&'static str, String, usize)> {
    let page = |name, text: &str, bed| {
        let study = Study::parse(name, text, "page.toml").unwrap();
        let mut records = records(&study, bed, 6, all_measured);
        for record in records
            .iter_mut()
            .filter(|record| record.cell.contains("zerocopy"))
        {
            let reason = "SO_ZEROCOPY: Operation not supported".to_string();
            record.outcome = Outcome::Skipped { reason };
            record.ends.clear();
        }
        html(&Summary::new(&study, &records))
    };
    let shipped = |name, bed| page(name, built_in(name).unwrap(), bed);
    vec![
        ("number", page("number", NUMBER, "netns"), 3 + 2),
        ("words", page("words", WORDS, "loopback"), 1 + 1),
        ("two", page("two", TWO, "netns"), 2 * 3 + 2),
        ("tour", shipped("tour", "netns"), 0),
        ("copy-paths", shipped("copy-paths", "netns"), 0),
        ("connections", shipped("connections", "netns"), 0),
        (
            "request-response",
            shipped("request-response", "loopback"),
            0,
        ),
        (
            "empty",
            html(&Summary::new(
                &Study::parse("empty", NUMBER, "page.toml").unwrap(),
                &[],
            )),
            0,
        ),
    ]
}
#[test]
fn write_them() {
    for (name, html, _) in pages() {
        std::fs::write(format!("/tmp/pages/{name}.html"), html).unwrap();
    }
}
