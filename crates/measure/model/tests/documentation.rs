//! The table of causes of docs/prices.md is made from the rows of `causes.rs`.

use std::fmt::Write;
use std::fs;

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
