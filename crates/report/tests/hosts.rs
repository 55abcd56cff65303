//! The hosts of a study that names them: text, page and JSON tell the same of each.

mod common;

use common::{all_measured, records};
use serde_json::Value;
use tcpcost_report::{Summary, TextStyle, html, json, text};
use tcpcost_study::Study;

fn summary() -> Summary {
    let study = Study::parse("hosts", include_str!("data/hosts.toml"), "hosts.toml").unwrap();
    Summary::new(&study, &records(&study, "hosts", 6, all_measured))
}

#[test]
fn text_page_and_json_have_each_host_with_what_its_meters_told() {
    let summary = summary();
    let text = text(&summary, TextStyle::default());
    let page = html(&summary);
    // The page's own table, not the JSON within it.
    let (tables, _) = page.split_once("<script").unwrap();
    let json: Value = serde_json::from_str(&json(&summary)).unwrap();
    let cell = &json["cells"][0];
    let hosts = cell["hosts"].as_array().unwrap();
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    for host in hosts {
        let name = host["host"].as_str().unwrap();
        assert_eq!(
            (&host["meter"], &host["quantity"]),
            (&"proc".into(), &"cpu_us_per_kib".into())
        );
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("  {name} ")));
        let row = row.unwrap_or_else(|| panic!("{text}"));
        for shown in row.split_whitespace().skip(1) {
            assert!(tables.contains(shown), "{name}: {shown} is not on the page");
        }
        let late = host["late_us"].as_f64().unwrap();
        assert!(row.ends_with(&format!("{late:.1}")), "{row}: {late}");
        let clock = host["clock_ahead_us"].as_f64().unwrap();
        assert!(row.contains(&format!("  {clock:.2}  ")), "{row}: {clock}");
    }
    let skew = "between the first host's start and the last one's at most";
    assert!(text.contains(skew) && tables.contains(skew));
    assert!(cell["skew_us"].as_f64() > Some(0.0));
    assert!(text.contains(": CPU by /proc/stat") && tables.contains("CPU by /proc/stat"));
}
