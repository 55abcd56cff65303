//! docs/study-file.md ends in the registry's own tables.

use tcpcost_study::{Group, knob_table};

#[test]
fn the_study_file_page_lists_every_knob() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/study-file.md");
    let page = std::fs::read_to_string(path).unwrap();
    let marker = page.find("<!-- knobs:").expect("the marker is there");
    let (written, tables) = page.split_at(marker);
    let (comment, tables) = tables.split_once("-->\n").expect("the marker is a comment");
    let expected = format!(
        "\n## Knobs of `[workload]`\n\n{}\n## Knobs of `[bed]`\n\n\"Each end\" can be set for both (`tso`) or for one (`client.tso`); \
         `leave` does not touch it.\n\n{}",
        knob_table(Group::Workload),
        knob_table(Group::Bed)
    );
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        std::fs::write(path, format!("{written}{comment}-->\n{expected}")).unwrap();
    } else {
        assert_eq!(tables, expected, "rewrite with TCPCOST_REWRITE=1");
    }
}
