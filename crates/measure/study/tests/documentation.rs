//! Tests that the tables in the documents equal those made from the rows.

use tcpcost_study::{FileTable, ack_policy_table, knob_table, tcp_table, uperf_table};

/// Compares the text between a marker and its end mark with the expected text.
fn check(file: &str, marker: &str, expected: &str) {
    let path = format!("{}/../../../docs/{file}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(&path).unwrap();
    let start = page.find(marker).expect("the marker is there");
    let start = start
        + page[start..]
            .find("-->\n")
            .expect("the marker is a comment")
        + 4;
    let rest = &page[start..];
    let end = rest.find("\n<!-- end -->").unwrap_or(rest.len());
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        let page = format!("{}\n{expected}{}", &page[..start], &rest[end..]);
        std::fs::write(&path, page).unwrap();
    } else {
        assert_eq!(
            rest[..end],
            format!("\n{expected}"),
            "rewrite with TCPCOST_REWRITE=1"
        );
    }
}

#[test]
fn the_study_file_page_lists_every_knob() {
    let expected = format!(
        "## Knobs of `[workload]`\n\n{}\n## Knobs of `[bed]`\n\n\"Each end\" can be set for both (`tso`) or for one (`client.tso`); \
         `leave` does not touch it.\n\n{}",
        knob_table(FileTable::Workload),
        knob_table(FileTable::Bed)
    );
    check("study-file.md", "<!-- knobs:", &expected);
}

#[test]
fn the_page_of_policies_lists_every_policy_and_every_knob_of_an_ends_tcp() {
    check("policies.md", "<!-- ack policies:", &ack_policy_table());
    check("policies.md", "<!-- knobs:", &tcp_table());
}

#[test]
fn the_page_of_fronts_lists_every_word_of_uperfs_language() {
    check("fronts.md", "<!-- uperf:", &uperf_table());
}
