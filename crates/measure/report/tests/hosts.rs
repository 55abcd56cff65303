//! Hosts of a study that names them: text, page and JSON have the same values for each.

mod common;

use common::{all_measured, records};
use serde_json::Value;
use tcpcost_report::{Summary, TextStyle, html, json, text};
use tcpcost_study::{HostName, Study};

fn summary() -> Summary {
    let study = Study::parse("hosts", include_str!("data/hosts.toml"), "hosts.toml").unwrap();
    Summary::new(&study, &records(&study, "hosts", 6, all_measured))
}

#[test]
fn text_page_and_json_have_each_host_with_what_its_meters_told() {
    let summary = summary();
    let text = text(&summary, TextStyle::default());
    let page = html(&summary);
    // The page's own table, not the JSON in it.
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

#[test]
fn two_machines_that_stay_as_they_are_may_be_compared_and_equal_ones_are_one_line() {
    let study = Study::parse("hosts", include_str!("data/hosts.toml"), "hosts.toml").unwrap();
    let text_of = |kernel: &str, changed_kernel: &str| {
        let mut records = records(&study, "hosts", 6, all_measured);
        for (index, record) in records.iter_mut().enumerate() {
            let mut server = record.machines.values().next().unwrap().clone();
            server.kernel = if index == 3 { changed_kernel } else { kernel }.into();
            // Each process measures this rate again.
            for machine in record.machines.values_mut().chain([&mut server]) {
                machine.tsc_hz = Some(2_500_000_000 + index as u64);
            }
            record.machines.insert("the server's".into(), server);
            let host = record.hosts.get_mut(&HostName::SERVER).unwrap();
            host.machine = "the server's".into();
        }
        text(&Summary::new(&study, &records), TextStyle::default())
    };
    let machines = |text: &str| text.matches("AMD EPYC, 2 CPUs").count();
    let two = text_of("6.12.0 #1", "6.12.0 #1");
    assert!(!two.contains("do not compare"), "{two}");
    assert_eq!(machines(&two), 2);
    let alike = text_of("6.18.0 #1 SMP PREEMPT_DYNAMIC", "6.18.0 #2");
    assert_eq!(machines(&alike), 1, "{alike}");
    let changed = "more than one machine or setting of server (kernel): do not";
    assert!(alike.replace("\n  ", " ").contains(changed), "{alike}");
}
