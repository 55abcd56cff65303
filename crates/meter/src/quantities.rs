//! docs/quantities.md, made from the definitions.

use std::fmt::Write;

use tcpcost_study::{DerivedKind, Quantity};

/// The text of docs/quantities.md.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Quantities\n\n\
         Made from `crates/study/src/quantity.rs` and `derived.rs`; to make it again:\n\
         `TCPCOST_REWRITE=1 cargo test -p tcpcost-meter`.\n\n\
         ## Counts\n\n\
         What records hold: the growth of each between the two snapshots of a trial. What a kernel does\n\
         not tell is absent, never 0.\n\n\
         | name | definition |\n|---|---|\n",
    );
    let cell = |text: &str| text.replace('|', "\\|");
    for quantity in Quantity::ALL {
        let definition = cell(quantity.definition());
        writeln!(text, "| `{quantity}` | {definition} |").expect("a String takes all");
    }
    text.push_str(
        "\n## Derived\n\n\
         What reports make of them; nothing of it is stored. Where both ends are measured, there are also\n\
         `client_NAME` and `server_NAME`.\n\n\
         | name | unit | of each end | better | definition |\n|---|---|---|---|---|\n",
    );
    for kind in DerivedKind::ALL {
        let (name, unit, definition) = (kind.name(), kind.unit(), cell(kind.definition()));
        let per_end = if kind.per_end() { "yes" } else { "" };
        let better = match kind.lower_is_better() {
            Some(true) => "less",
            Some(false) => "more",
            None => "",
        };
        writeln!(
            text,
            "| `{name}` | {unit} | {per_end} | {better} | {definition} |"
        )
        .expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_committed_page_is_what_the_definitions_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/quantities.md");
        if std::env::var_os("TCPCOST_REWRITE").is_some() {
            fs::write(path, markdown()).unwrap();
        }
        let committed = fs::read_to_string(path).unwrap();
        assert!(
            committed == markdown(),
            "{path} is old: TCPCOST_REWRITE=1 cargo test -p tcpcost-meter"
        );
    }

    #[test]
    fn a_bar_does_not_end_a_cell() {
        let page = markdown();
        let row = page
            .lines()
            .find(|line| line.contains("`payload_disagreement_ratio`"));
        assert!(row.unwrap().contains("\\|kernel - workload\\|"));
    }
}
