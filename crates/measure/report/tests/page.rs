//! The page in a real browser, for every shape of study.

mod common;

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use common::{all_measured, records};
use tcpcost_report::{Summary, html};
use tcpcost_study::{Outcome, Study};
use tcpcost_testbed::{Browser, Loaded};

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

/// A document within the page. Its content is in its address, and its title follows.
const FLAME: &str = "<iframe class=\"flame\" loading=\"lazy\" src=\"data:image/svg+xml;base64,";

/// Name, page and number of charts of each study.
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
            record.hosts.clear();
        }
        html(&Summary::new(&study, &records))
    };
    let shipped = |name, bed| page(name, &common::shipped(name), bed);
    vec![
        ("number", page("number", NUMBER, "netns"), 3 + 2),
        ("words", page("words", WORDS, "loopback"), 1 + 1),
        ("two", page("two", TWO, "netns"), 2 * 3 + 2),
        ("tour", shipped("tour", "netns"), 4),
        ("copy-paths", shipped("copy-paths", "netns"), 2),
        ("send-paths", shipped("send-paths", "netns"), 2),
        ("connections", shipped("connections", "netns"), 9),
        (
            "request-response",
            shipped("request-response", "loopback"),
            3,
        ),
        (
            "profile",
            page("profile", include_str!("data/profile.toml"), "netns"),
            3 + 2,
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
fn every_chart_is_drawn_without_an_error() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let pages = pages();
    for (name, html, _) in &pages {
        if let Some(kept) = std::env::var_os("TCPCOST_KEEP_PAGES") {
            std::fs::write(Path::new(&kept).join(format!("{name}.html")), html).unwrap();
        }
    }
    for (name, html, charts) in pages {
        let Loaded {
            dom, complaints, ..
        } = browser.load(&html);
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
        assert_eq!(
            html.matches("<figure").count(),
            charts,
            "{name}: charts asked for"
        );
        assert_eq!(
            dom.matches("<svg class=\"plot-").count(),
            charts,
            "{name}: charts drawn"
        );
        let (drawn, _) = dom.split_once("<script").unwrap();
        assert!(!drawn.contains("NaN"), "{name}: a mark without a place");
    }
}

#[test]
fn a_flame_graph_runs_its_script_and_no_other() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let (_, html, _) = pages()
        .into_iter()
        .find(|(name, ..)| *name == "profile")
        .unwrap();
    // All frames are visible at once, because none must be opened first.
    let open = html
        .replace(" loading=\"lazy\"", "")
        .replace("<details", "<details open");
    let complaints = browser.load(&open).complaints;
    assert!(complaints.is_empty(), "{complaints:#?}");
    // The page has no hash of this changed script, so the browser must report that it refuses it.
    let (before, rest) = open.split_once("data:image/svg+xml;base64,").unwrap();
    let (svg, after) = rest.split_once('"').unwrap();
    let svg = String::from_utf8(STANDARD.decode(svg).unwrap()).unwrap();
    let other = STANDARD.encode(svg.replace("var fontsize", "var x; var fontsize"));
    let page = format!("{before}data:image/svg+xml;base64,{other}\"{after}");
    let complaints = browser.load(&page).complaints;
    let is_refused = |line: &String| line.contains("Content Security Policy");
    assert!(complaints.iter().any(is_refused), "{complaints:#?}");
}

#[test]
fn a_page_refers_to_nothing_outside_itself() {
    for (name, html, _) in pages() {
        // XML namespaces are names, not addresses, and one licence names an address.
        for address in html.split("://").skip(1) {
            assert!(
                ["www.w3.org/", "www.apache.org/licenses/"]
                    .iter()
                    .any(|name| address.starts_with(name)),
                "{name}: {:.60}",
                address
            );
        }
        for loads in ["<link", "<img", "<iframe", " src=", "@import", "url("] {
            // A reference to a gradient or a clip path of the page loads nothing.
            let here = html.replace("url(#", "").replace(FLAME, "");
            assert!(!here.contains(loads), "{name}: {loads}");
        }
        assert!(html.contains("default-src 'none'"), "{name}");
    }
}

#[test]
fn a_title_cannot_end_the_script_or_start_one() {
    let (_, html, _) = pages()
        .into_iter()
        .find(|(name, ..)| *name == "words")
        .unwrap();
    assert_eq!(html.matches("<script").count(), 4);
    assert!(!html.contains("<b>not bold"));
}

#[test]
fn the_bundle_is_the_one_that_the_readme_names() {
    use sha2::{Digest, Sha256};
    let bundle = include_bytes!("../assets/plot.min.js");
    let sum: String = Sha256::digest(bundle)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(include_str!("../assets/README.md").contains(&sum), "{sum}");
}
