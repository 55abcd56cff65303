//! The table of causes of docs/prices.md is made from the rows of `causes.rs`.

use std::fmt::Write;
use std::fs;

use tcpcost_model::advice::{Class, Rule, Verify, rules};
use tcpcost_model::{Cause, Kind};

const BEGIN: &str = "<!-- made by cargo test -p tcpcost-model -->\n";
const END: &str = "\n## How a price is found\n";

fn table() -> String {
    let mut text = String::from("\n| id | decided by | counts | definition |\n|---|---|---|---|\n");
    for &cause in Cause::ALL {
        let by = match cause.kind() {
            Kind::Program => "program",
            Kind::Kernel => "kernel",
        };
        let counts = cause.quantities();
        let counts: Vec<String> = counts
            .iter()
            .map(|(meter, quantity)| format!("{meter} `{quantity}`"))
            .collect();
        let (id, counts) = (cause.id(), counts.join(", "));
        writeln!(
            text,
            "| `{id}` | {by} | {counts} | {} |",
            cause.definition()
        )
        .expect("a String takes all");
    }
    text
}

#[test]
fn the_page_has_every_cause() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/prices.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a mark");
    let (_, after) = rest
        .split_once(END)
        .expect("the page goes on after the table");
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table());
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        fs::write(path, &wanted).unwrap();
        return;
    }
    assert_eq!(
        page, wanted,
        "TCPCOST_REWRITE=1 cargo test -p tcpcost-model makes it again"
    );
}

#[test]
fn each_cause_has_one_id_and_a_definition() {
    for (at, cause) in Cause::ALL.iter().enumerate() {
        assert!(cause.definition().ends_with('.'), "{cause}");
        assert!(
            Cause::ALL[..at]
                .iter()
                .all(|other| other.id() != cause.id())
        );
        assert_eq!(Cause::named(cause.id()), Some(*cause));
    }
}

const ADVICE: &str = "# Knobs of `tcpcost advise`

Made from `rules.rs` of `crates/measure/model/src/advice`; to make it again: `TCPCOST_REWRITE=1 cargo test -p tcpcost-model`.

`tcpcost advise` tests each rule below on what was counted and on the host's settings. It changes nothing.

- **Class A** may claim a saving with an interval, by prices × the change of counts that the rule states. It claims only
  if the 90 % interval excludes 0 and the saving is 5 % or more.
- **Class B** is worth trying, and has no number. The upper bound is the cost of all that the rule can lower.
- A rule is **not worth it here** if that upper bound is below 5 %, or if a condition against it holds.

No rule claims latency. Savings do not add up: after one change, run `advise` again. Prices of another host, kernel or kind of
device give no number, and neither do counts beyond what the prices were measured on.

In the lines, `DEV`, `LOAD`, `OLD` and `NEW` stand for a device, a command that makes the load, and two loads: on the program as it is,
and on a copy of it with the change. γ is unknown between 0 and 1: it says how far the receiver's calls, sleeps, ACKs and softirq
runs follow the number of packets.

| rule | class | advice |
|---|---|---|
";

fn row(rule: &Rule) -> String {
    let class = match rule.class {
        Class::A => "A",
        Class::B => "B",
        Class::C => "C",
    };
    format!("| [`{0}`](#{0}) | {class} | {1} |\n", rule.id, rule.title)
}

fn section(rule: &Rule) -> String {
    let list = |texts: Vec<String>, join: &str| match texts.is_empty() {
        true => "–".to_string(),
        false => texts.join(join),
    };
    let conditions = |of: &[tcpcost_model::advice::Condition]| {
        of.iter()
            .map(|condition| condition.words())
            .collect::<Vec<_>>()
    };
    let mut needs = Vec::new();
    if let Some((major, minor)) = rule.needs.kernel {
        needs.push(format!("Linux {major}.{minor}"));
    }
    needs.extend(Some(rule.needs.device.to_string()).filter(|device| !device.is_empty()));
    needs.push(format!("changed by {}", rule.needs.who));
    let change = rule.change.iter().map(|change| change.words()).collect();
    let acts_on = rule
        .acts_on
        .iter()
        .map(|cause| cause.label().to_string())
        .collect();
    let verify = match rule.verify {
        Verify::Loads => Rule::LOADS.to_string(),
        Verify::Switch => Rule::switch(rule.undo, rule.act),
    };
    let rows = [
        ("advised if", list(conditions(rule.when), "; ")),
        (
            "by packets alone, if",
            list(conditions(rule.by_packets), "; "),
        ),
        ("claimed only if", list(conditions(rule.claims_if), "; ")),
        ("not worth it if", list(conditions(rule.not_when), "; or ")),
        ("needs", needs.join("; ")),
        ("priced change", list(change, "; ")),
        ("can lower", list(acts_on, ", ")),
        ("do", rule.act.to_string()),
        ("undo", rule.undo.to_string()),
        ("verify", format!("`{verify}`")),
        ("study", format!("`{}`", rule.study)),
        ("costs", rule.costs.to_string()),
        ("limits", rule.limits.to_string()),
        ("claimed", format!("{} ({})", rule.claim, rule.source)),
    ];
    let mut text = format!("\n## {}\n\n{}.\n\n| | |\n|---|---|\n", rule.id, rule.title);
    for (name, value) in rows.iter().filter(|(_, value)| value != "–") {
        let value = value.replace('|', "\\|");
        writeln!(text, "| {name} | {value} |").expect("a String takes all");
    }
    text
}

#[test]
fn the_page_of_advice_has_every_rule() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/knob-advice.md");
    let table: String = rules().map(row).collect();
    let sections: String = rules().map(section).collect();
    let wanted = format!("{ADVICE}{table}{sections}");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        fs::write(path, &wanted).unwrap();
    }
    let page = fs::read_to_string(path).unwrap();
    assert!(
        page == wanted,
        "{path} is old: TCPCOST_REWRITE=1 cargo test -p tcpcost-model"
    );
}

/// Recording rules for Prometheus: the rate of each cause's cost, and of each rule of advice the share that it can lower.
fn recording_rules() -> String {
    let mut text = String::from(
        "# Made from the rules of tcpcost advise: TCPCOST_REWRITE=1 cargo test -p tcpcost-model.\n\
         # tcpcost watch --metrics serves tcpcost_cost_seconds_total where tcpcost model has measured prices (docs/prices.md).\n\
         groups:\n- name: tcpcost\n  rules:\n\
         \x20 - record: tcpcost:cost:rate5m\n\
         \x20   expr: sum by (instance, cause) (rate(tcpcost_cost_seconds_total[5m]))\n",
    );
    for rule in rules().filter(|rule| !rule.acts_on.is_empty()) {
        let causes: Vec<&str> = rule.acts_on.iter().map(|cause| cause.id()).collect();
        let causes = causes.join("|");
        write!(
            text,
            "\x20 - record: tcpcost:saving_bound:ratio5m\n\
             \x20   labels: {{rule: {}}}\n\
             \x20   expr: sum by (instance) (tcpcost:cost:rate5m{{cause=~\"{causes}\"}}) / sum by (instance) (tcpcost:cost:rate5m)\n",
            rule.id
        )
        .expect("a String takes all");
    }
    text
}

#[test]
fn prometheus_records_the_bound_of_each_rule_and_the_dashboard_shows_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging");
    let path = format!("{folder}/prometheus-rules.yml");
    let wanted = recording_rules();
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    assert_eq!(
        fs::read_to_string(&path).unwrap_or_default(),
        wanted,
        "TCPCOST_REWRITE=1 cargo test -p tcpcost-model makes it again"
    );
    let dashboard = fs::read_to_string(format!("{folder}/grafana-dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        let expr = panel["targets"][0]["expr"].as_str().unwrap();
        let is_served = ["tcpcost_cost_seconds_total", "tcpcost_cpu_seconds_total"];
        let is_known = is_served.iter().any(|name| expr.contains(name))
            || wanted.lines().any(|line| {
                let name = line.trim().strip_prefix("- record: ");
                name.is_some_and(|name| expr.contains(name))
            });
        assert!(is_known, "{expr}");
    }
    assert_eq!(panels.len(), 4);
}
