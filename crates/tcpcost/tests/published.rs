//! docs/published.md: every statement, table and figure of the five works beside ours, made of stored whole runs by
//! `tcpcost report`. `bench/works` makes the runs.

mod common;

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::Path;

use common::Place;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// One study that tests published statements, and the JSON of its stored run.
struct Work {
    study: String,
    /// Command that makes such a run.
    command: String,
    document: Option<Value>,
}

/// A row of docs/published_statements.csv.
struct Statement {
    source: String,
    id: String,
    text: String,
    not_here: String,
}

#[test]
fn the_page_of_published_works_is_what_the_stored_runs_say() {
    let place = Place::new();
    let works: Vec<Work> = studies().map(|study| work(&place, study)).collect();
    let page = page(&works);
    let path = format!("{ROOT}/docs/published.md");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(committed.lines()).find(|(a, b)| a != b);
    assert!(
        committed == page,
        "docs/published.md is old (made, committed: {differs:?}): TCPCOST_REWRITE=1 cargo test -p tcpcost --test published"
    );
}

/// Studies that have statements, by name.
fn studies() -> impl Iterator<Item = String> {
    let files = fs::read_dir(format!("{ROOT}/studies")).unwrap();
    let paths = files.map(|one| one.unwrap().path());
    let with_statements = paths.filter(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.contains("[[statement]]") || text.contains("\n[published")
    });
    let names = with_statements.map(|path| path.file_stem().unwrap().to_str().unwrap().to_string());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.into_iter()
}

/// Report of the stored run, by the conclusions that the study has today.
fn work(place: &Place, study: String) -> Work {
    let stored = Path::new(ROOT)
        .join("crates/tcpcost/tests/data/works")
        .join(&study);
    if !stored.is_dir() {
        let command = format!("tcpcost run {study}");
        return Work {
            study,
            command,
            document: None,
        };
    }
    let folder = place.path(&study);
    for part in ["", "instructions"] {
        if stored.join(part).join("run.json").exists() {
            unpack(&stored.join(part), &folder.join(part), &study);
        }
    }
    let ran = place.run(&["report", folder.to_str().unwrap(), "--format", "json"]);
    // The exit code is of thresholds and of undecided contrasts.
    assert!(matches!(ran.code, Some(0 | 3 | 4)), "{study}: {ran:?}");
    let document = serde_json::from_str(&ran.stdout).unwrap();
    Work {
        command: command(&study, &stored),
        study,
        document: Some(document),
    }
}

/// Command that made the stored run.
fn command(study: &str, stored: &Path) -> String {
    let options = fs::read_to_string(stored.join("run.json")).unwrap();
    let options: Value = serde_json::from_str(&options).unwrap();
    let guest = options["exact_instructions"].is_object();
    let init = array(&options, "init").iter();
    let init = init.map(|command| format!(" --init '{}'", word(command)));
    let guest = if guest { " --guest=KERNEL" } else { "" };
    format!("tcpcost run {study}{guest}{}", init.collect::<String>())
}

fn unpack(from: &Path, to: &Path, study: &str) {
    fs::create_dir_all(to).unwrap();
    fs::copy(from.join("run.json"), to.join("run.json")).unwrap();
    fs::copy(
        format!("{ROOT}/studies/{study}.toml"),
        to.join("study.toml"),
    )
    .unwrap();
    let packed = fs::File::open(from.join("records.jsonl.xz")).unwrap();
    let mut records = Vec::new();
    lzma_rust2::XzReader::new(packed, false)
        .read_to_end(&mut records)
        .unwrap();
    fs::write(to.join("records.jsonl"), records).unwrap();
}

fn page(works: &[Work]) -> String {
    let mut page = String::from(
        "# Five published works: every statement, table and figure\n\n\
         What five works state, and what a whole run of the study that tests it says here. A statement holds if the whole 95 % interval agrees. \
         It does not\nhold if the whole interval contradicts it or, of a change, lies within 5 % of none. Where time leaves it undecided, \
         instructions in guests decide\n([method](method.md)). A test makes this page of stored runs, which `bench/works` makes; \
         `tcpcost run STUDY` does the same on your machine.\n",
    );
    let statements = statements();
    let sources: Vec<&str> = [
        "jones2005",
        "dumazet2013",
        "morton2001",
        "klemkow2020",
        "sun2008",
    ]
    .into();
    for (source, name) in sources.iter().zip([
        "Jones 2005",
        "Dumazet 2013",
        "Morton 2001",
        "Klemkow 2020",
        "Sun 2008",
    ]) {
        write!(page, "\n## {name}\n\n| statement | here | decided by | ours | command |\n|---|---|---|---|---|\n").unwrap();
        for one in statements.iter().filter(|one| one.source == *source) {
            page += &statement(one, works);
        }
        for work in works {
            page += &figures(work, name);
        }
    }
    page +=
        "\n## The runs\n\n| study | begun | trials | machine | trust |\n|---|---|---|---|---|\n";
    for work in works {
        page += &run(work);
    }
    page
}

fn statements() -> Vec<Statement> {
    let list = fs::read_to_string(format!("{ROOT}/docs/published_statements.csv")).unwrap();
    let mut rows = csv::Reader::from_reader(list.as_bytes());
    let row = |row: csv::Result<csv::StringRecord>| {
        let row = row.unwrap();
        Statement {
            source: row[0].to_string(),
            id: format!("{}/{}", &row[0], &row[1]),
            text: row[2].to_string(),
            not_here: row[4].to_string(),
        }
    };
    rows.records().map(row).collect()
}

/// Row of one statement.
fn statement(of: &Statement, works: &[Work]) -> String {
    if !of.not_here.is_empty() {
        return format!(
            "| {} | cannot be tested here | | {} | |\n",
            of.text, of.not_here
        );
    }
    for work in works {
        let Some(document) = &work.document else {
            continue;
        };
        let Some(tested) = array(document, "statements")
            .iter()
            .find(|one| one["id"] == of.id.as_str())
        else {
            continue;
        };
        let held = match tested["held"].as_str().unwrap() {
            "fails" => "does not hold",
            "not_tested" => "not tested",
            other => other,
        };
        let by = match (held, tested["by_instructions"] == true) {
            ("undecided" | "not tested", _) => "",
            (_, true) => "instructions",
            (_, false) => "time or counts",
        };
        let counted = array(&document["by_instructions"], "findings");
        let found = array(tested, "findings").iter().flat_map(|index| {
            let finding = &document["findings"][index.as_u64().unwrap() as usize];
            let counted = counted
                .iter()
                .filter(move |one| one["of_finding"] == *index);
            let of_guests = counted
                .map(|one| format!("By instructions: {}", word(&one["finding"]["sentence"])));
            [word(&finding["sentence"])].into_iter().chain(of_guests)
        });
        let functions = array(&document["published_functions"], "functions").iter();
        let of_functions = functions.filter(|row| row["statement"] == of.id.as_str());
        let of_functions = of_functions.map(|row| word(&row["sentence"]));
        let found: Vec<String> = found.chain(of_functions).collect();
        let ours = found.join(" ").replace('|', "\\|");
        return format!(
            "| {} | {held} | {by} | {ours} | `{}` |\n",
            of.text, work.command
        );
    }
    format!("| {} | no whole run is stored | | | |\n", of.text)
}

/// Published series, tables and functions of a study, beside ours.
fn figures(work: &Work, source: &str) -> String {
    let mut out = String::new();
    let Some(document) = &work.document else {
        return out;
    };
    let is_of = |of: &Value| {
        of["source"]
            .as_str()
            .is_some_and(|text| text.starts_with(source))
    };
    let published = &document["published"];
    if is_of(published) {
        head(&mut out, work, published);
        out += &points(document, published);
    }
    let functions = &document["published_functions"];
    if is_of(functions) {
        head(&mut out, work, functions);
        out += "| function | our function | published | ours |\n|---|---|---|---|\n";
        for row in array(functions, "functions") {
            let (theirs, ours) = (word(&row["published"]), word(&row["function"]));
            writeln!(
                out,
                "| {theirs} | {ours} | {} | {} |",
                number(&row["figure"], 1.0),
                estimate(&row["ratio"], 1.0)
            )
            .unwrap();
        }
    }
    let table = &document["published_table"];
    if is_of(table) {
        head(&mut out, work, table);
        out += &rows(table);
    }
    out
}

/// Points of a published curve, each with ours.
fn points(document: &Value, published: &Value) -> String {
    let quantity = published["quantity"].as_str().unwrap();
    let (scale, unit) = match scale(quantity) {
        1.0 => (1.0, word(&published["unit"])),
        scale => (scale, "Gbit/s".to_string()),
    };
    let knob = word(&published["knob"]);
    let mut out = format!("| series | {knob} | published, {unit} | ours |\n|---|---|---|---|\n");
    for series in array(published, "series") {
        for point in array(series, "points") {
            let ours = array(point, "cells").iter().map(|name| {
                let cells = array(document, "cells");
                let cell = cells.iter().find(|cell| cell["name"] == *name).unwrap();
                estimate(&cell["estimates"][quantity], scale)
            });
            let ours: Vec<String> = ours.collect();
            let (name, value) = (word(&series["name"]), word(&point["value"]));
            let figure = number(&point["figure"], scale);
            writeln!(out, "| {name} | {value} | {figure} | {} |", ours.join("; ")).unwrap();
        }
    }
    out
}

/// Factor from a quantity's unit to the one that it is shown in.
fn scale(quantity: &str) -> f64 {
    match quantity.ends_with("goodput_bits_per_s") {
        true => 1e-9,
        false => 1.0,
    }
}

fn head(out: &mut String, work: &Work, of: &Value) {
    write!(
        out,
        "\n{}; ours by `{}`:\n\n",
        word(&of["source"]),
        work.command
    )
    .unwrap();
}

/// Rows of a published table, each followed by ours.
fn rows(table: &Value) -> String {
    let words = |values: &Value| {
        values
            .as_array()
            .unwrap()
            .iter()
            .map(word)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let columns = array(table, "columns");
    let scales: Vec<f64> = columns
        .iter()
        .map(|one| scale(one["quantity"].as_str().unwrap()))
        .collect();
    let headings = columns.iter().map(|one| word(&one["heading"]));
    let headings: Vec<String> = headings.collect();
    let mut out = format!(
        "| {} | whose | {} |\n|---|---|{}\n",
        words(&table["knobs"]),
        headings.join(" | "),
        "---|".repeat(columns.len())
    );
    for row in array(table, "rows") {
        let theirs = array(row, "published").iter().zip(&scales);
        let theirs: Vec<String> = theirs
            .map(|(figure, scale)| number(figure, *scale))
            .collect();
        writeln!(
            out,
            "| {} | published | {} |",
            words(&row["setting"]),
            theirs.join(" | ")
        )
        .unwrap();
        for ours in array(row, "ours") {
            let figures = array(ours, "figures").iter().zip(&scales);
            let figures: Vec<String> = figures
                .map(|(figure, scale)| estimate(figure, *scale))
                .collect();
            writeln!(
                out,
                "| | {} | {} |",
                word(&ours["cell"]).trim_end_matches(','),
                figures.join(" | ")
            )
            .unwrap();
        }
    }
    out
}

/// Row of a stored run.
fn run(work: &Work) -> String {
    let Some(document) = &work.document else {
        return format!("| `{}` | no whole run is stored | | | |\n", work.study);
    };
    let environment = &document["environment"];
    let host = &environment["hosts"][0];
    let kernel = host["kernel"].as_str().unwrap().split(' ').next().unwrap();
    let begun = environment["started_first"].as_str().unwrap();
    format!(
        "| `{}` | {} | {} of {} | {} CPUs {}, Linux {kernel} | {} |\n",
        work.study,
        &begun[..16].replace('T', " "),
        document["trials_done"],
        document["trials_planned"],
        host["cpus"],
        word(&host["cpu"]),
        word(&document["trust"]),
    )
}

fn array<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[], Vec::as_slice)
}

fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_string)
}

/// A number with four digits.
fn number(value: &Value, scale: f64) -> String {
    let Some(number) = value.as_f64().map(|number| number * scale) else {
        return String::new();
    };
    let digits = match number.abs() {
        0.0 => 0,
        size => (3 - size.log10().floor() as i32).max(0),
    };
    let shown = format!("{number:.*}", digits as usize);
    match shown.contains('.') {
        true => shown
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_string(),
        false => shown,
    }
}

fn estimate(of: &Value, scale: f64) -> String {
    match (number(&of["median"], scale), of["lo"].is_null()) {
        (median, _) if median.is_empty() => "not measured".to_string(),
        (median, true) => median,
        (median, false) => format!(
            "{median} [{}, {}]",
            number(&of["lo"], scale),
            number(&of["hi"], scale)
        ),
    }
}
