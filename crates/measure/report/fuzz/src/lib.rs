//! Body of the fuzz target. `cargo test` also runs it over the corpus and changed copies of it.

use tcpcost_report::{
    Distances, Earlier, Summary, TextStyle, bmf, csv, derive, flame, flame_difference,
    github_benchmark, html, json, junit, ktap, markdown, nipa, openmetrics, text,
};
use tcpcost_study::{Record, Study};

/// Reads any bytes as a study and its records, which begin at the first line that starts with `{`. If the
/// study parses, every form of report is made.
pub fn records(data: &[u8]) {
    let data = String::from_utf8_lossy(data);
    let at = data.find("\n{").map_or(data.len(), |at| at + 1);
    let (study, lines) = data.split_at(at);
    let Ok(study) = Study::parse("fuzz", study, "fuzz.toml") else {
        return;
    };
    let read = |line| Record::from_line(line).ok();
    let mut records: Vec<Record> = lines.lines().filter_map(read).collect();
    for record in &records {
        let line = record.to_line();
        assert!(Record::from_line(&line).is_ok(), "{line}");
        let _ = derive(record);
    }
    Distances::default().mark(&mut records);
    let mut summary = Summary::new(&study, &records);
    forms(&summary);
    let half = Summary::new(&study, &records[..records.len() / 2]);
    let others = [half.clone(), half];
    for (runs, beside) in [(&others[..1], &[][..]), (&others, &others)] {
        summary.hold_against(&Earlier {
            runs,
            beside,
            min_effect: 0.01,
            study: "fuzz",
            for_compare: "",
            for_run: "",
            directory: "fuzz",
        });
        forms(&summary);
    }
}

fn forms(summary: &Summary) {
    let style = TextStyle::default();
    let _ = text(summary, style);
    let details = TextStyle {
        details: true,
        colour: true,
        ..style
    };
    let _ = text(summary, details);
    let _ = (json(summary), csv(summary), html(summary));
    for cell in &summary.cells {
        let _ = flame(cell);
        let _ = flame_difference(&summary.cells[0], cell);
    }
    for document in [
        markdown,
        junit,
        ktap,
        bmf,
        github_benchmark,
        openmetrics,
        nipa,
    ] {
        let _ = document(std::slice::from_ref(summary));
    }
}
