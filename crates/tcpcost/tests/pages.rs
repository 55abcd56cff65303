//! Compares the output that README.md and docs quote with what the real binary prints of the records in
//! tests/data/pages. A page says of all other quoted output that it is an example.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Place, Ran};

/// Quoted command by its first words, and the command that prints the same here: a report of stored
/// records in place of a run.
const MADE: &[(&str, &str)] = &[
    ("tcpcost run ./gro.toml", "tcpcost report gro"),
    ("tcpcost compare tour --cells", "tcpcost report tour"),
    ("tcpcost run ./mine.toml --out mine", "tcpcost report mine"),
    (
        "h=server nthr=4 tcpcost run asks.xml",
        "tcpcost report asks --format details",
    ),
    ("tcpcost trace slow.pcap", "tcpcost trace slow.pcap"),
    ("head -1 gro/records.jsonl", "head -1 gro/records.jsonl"),
    (
        "tcpcost report gro --format csv",
        "tcpcost report gro --format csv",
    ),
    (
        "tcpcost run ./mine.toml --dry-run",
        "tcpcost run ./mine.toml --dry-run",
    ),
];

/// Words by which a page says that a quoted output is an example, and how near to it they stand.
const EXAMPLE: (&str, usize) = ("xample of", 700);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and the pages for users, by name.
fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut paths: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    paths.sort();
    paths.push(root().join("README.md"));
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.into_iter().map(read).collect()
}

/// A command after `$ ` in a block of code, and the lines of output below it.
struct Quote<'a> {
    command: String,
    output: Vec<&'a str>,
    /// Where the block ends in the page.
    end: usize,
}

/// Quoted commands of a page: in fenced blocks, and in lines indented by four.
fn quotes(page: &str) -> Vec<Quote<'_>> {
    let mut quotes: Vec<Quote> = Vec::new();
    let mut is_fenced = false;
    let mut is_in_block = false;
    let mut end = 0;
    for line in page.split_inclusive('\n') {
        end += line.len();
        let line = line.trim_end_matches('\n');
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            is_in_block = false;
            continue;
        }
        let code = match line.strip_prefix("    ") {
            _ if is_fenced => line,
            Some(code) => code,
            None if line.is_empty() && is_in_block => line,
            None => {
                is_in_block = false;
                continue;
            }
        };
        if let Some(command) = code.strip_prefix("$ ") {
            quotes.push(Quote {
                command: command.trim_start_matches("sudo ").to_string(),
                output: Vec::new(),
                end,
            });
            is_in_block = true;
        } else if let (true, Some(quote)) = (is_in_block, quotes.last_mut()) {
            quote.output.push(code);
            quote.end = end;
        }
    }
    for quote in &mut quotes {
        while quote.output.last().is_some_and(|line| line.is_empty()) {
            quote.output.pop();
        }
    }
    quotes.retain(|quote| !quote.output.is_empty());
    quotes
}

/// Error if the printed lines do not have the quoted ones in their order. `…` stands for any number of
/// lines, at the end of a line for the rest of it and any lines after.
fn compare(quoted: &[&str], printed: &str) -> Result<(), String> {
    let mut printed = printed.lines();
    let mut is_gap = true;
    for line in quoted {
        if line.trim() == "…" {
            is_gap = true;
            continue;
        }
        let begin = line.strip_suffix('…').map(str::trim_end);
        let is_same = |printed: &str| match begin {
            Some(begin) => printed.starts_with(begin),
            None => printed.trim_end() == line.trim_end(),
        };
        let found = if is_gap {
            printed.any(is_same)
        } else {
            printed.next().is_some_and(is_same)
        };
        if !found {
            return Err(format!("not printed there: {line}"));
        }
        is_gap = begin.is_some();
    }
    Ok(())
}

/// Runs a shell command in a copy of the stored runs, with the real binary in PATH.
fn run(place: &Place, command: &str) -> Ran {
    let binary = Path::new(env!("CARGO_BIN_EXE_tcpcost"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(place.directory.path())
        .env("TCPCOST_STATE_DIR", place.path("state"))
        .env(
            "PATH",
            format!("{}:{path}", binary.parent().unwrap().display()),
        )
        .output();
    Ran::from(output.unwrap())
}

/// A place with a copy of the stored runs, and of the page's first study as mine.toml.
fn place(page: &str) -> Place {
    let place = Place::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pages");
    let copied = Command::new("cp")
        .args([
            "-r",
            &format!("{}/.", data.display()),
            &place.directory.path().display().to_string(),
        ])
        .status();
    assert!(copied.unwrap().success());
    if let Some((_, study)) = page.split_once("```toml\n") {
        place.write("mine.toml", study.split("```").next().unwrap());
    }
    place
}

#[test]
fn quoted_output_is_printed_so_or_said_to_be_an_example() {
    let mut wrong = Vec::new();
    let mut made = 0;
    for (name, page) in pages() {
        for quote in quotes(&page) {
            let command = &quote.command;
            if let Some((_, real)) = MADE.iter().find(|(words, _)| command.starts_with(words)) {
                made += 1;
                let ran = run(&place(&page), real);
                if let Err(error) = compare(&quote.output, &ran.stdout) {
                    wrong.push(format!("{name}: $ {command}: {error}\n{}", ran.stdout));
                }
                continue;
            }
            let after: String = page[quote.end..].chars().take(EXAMPLE.1).collect();
            if !after.contains(EXAMPLE.0) {
                wrong.push(format!(
                    "{name}: $ {command}: no test makes this output; say below it: (An example of DATE.)"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(made >= MADE.len(), "{made}");
}

#[test]
fn the_report_that_method_md_explains_is_of_the_study_above_it() {
    let study = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pages/gro/study.toml");
    let study = fs::read_to_string(study).unwrap();
    let page = fs::read_to_string(root().join("docs/method.md")).unwrap();
    assert!(page.contains(&format!("```toml\n{study}```\n")), "{study}");
}

#[test]
fn a_quote_may_leave_out_lines_and_ends_of_lines_and_nothing_else() {
    let printed = "one\ntwo and more\nthree\nfour\n";
    for (quoted, is_right) in [
        (&["one", "two and more"][..], true),
        (&["two …", "four"], true),
        (&["one", "…", "four"], true),
        (&["one", "three"], false),
        (&["four", "one"], false),
        (&["two"], false),
    ] {
        assert_eq!(compare(quoted, printed).is_ok(), is_right, "{quoted:?}");
    }
}
