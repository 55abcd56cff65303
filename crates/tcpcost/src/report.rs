//! `tcpcost report`: prints stored runs as text, JSON, CSV or another format, and rewrites their
//! pages; or draws a flame graph.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use tcpcost_conduct::{ByFunction, StoredRun, results};
use tcpcost_console::exit::{Exit, usage};
use tcpcost_console::format::{Format, Output, ReportFormats};
use tcpcost_console::output;
use tcpcost_counts::TextForm;
use tcpcost_report::{CellSummary, Summary, flame, flame_difference, html};

/// `tcpcost report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories of earlier runs.
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Cell of --format flame, by its name or by its number in --dry-run. Two cells: the difference of the second to the first.
    #[arg(long, value_name = "CELL")]
    pub cell: Vec<String>,
    /// Formats of the results.
    #[command(flatten)]
    pub output: Output<ReportFormats>,
}

/// Runs `tcpcost report`.
pub fn report(args: &ReportArgs) -> anyhow::Result<Exit> {
    let mut summaries = Vec::new();
    let mut pages = Ok(());
    let mut not_writable = Vec::new();
    for directory in &args.directories {
        let folder = StoredRun::folder(directory)?;
        let run = StoredRun::read(&folder)?;
        run.print_oddities();
        let summary = run.summary();
        let written = folder
            .owned()
            .and_then(|folder| folder.replace(results::PAGE, html(&summary).as_bytes()));
        match written {
            Err(error) if is_not_writable(&error) => not_writable.push((directory, error)),
            written => {
                let page = directory.join(results::PAGE);
                let tried = || format!("write {}", page.display());
                pages = pages.and(written.with_context(tried));
            }
        }
        summaries.push(summary);
    }
    if args.output.has(Format::Flame) {
        let svg = flames(&summaries, &args.cell)?;
        for (_, file) in args.output.each() {
            output::put(&svg, TextForm::Lines, file)?;
        }
    } else if args.cell.is_empty() {
        results::print(&summaries, &args.output)?;
        for (directory, summary) in args.directories.iter().zip(&summaries) {
            ByFunction::print(directory, &summary.study, &args.output)?;
        }
    } else {
        return Err(usage("--cell needs --format flame"));
    }
    for (directory, error) in not_writable {
        let directory = directory.display();
        let why = match error.raw_os_error() {
            Some(_) => format!("{directory} cannot be written"),
            None => error.to_string(),
        };
        output::say!("tcpcost: {why}: its report.html is left as it was");
    }
    // The text is printed even if a page could not be written.
    pages.map(|()| Exit::Ok)
}

/// Draws the flame graph of one cell, or the difference between two cells, as an SVG.
fn flames(summaries: &[Summary], cells: &[String]) -> anyhow::Result<String> {
    match cells {
        [name] => {
            let cell = cell(summaries, name)?;
            flame(cell).ok_or_else(|| {
                usage(format!(
                    "cell \"{}\" has no call chains: run it with the meter profile",
                    cell.name
                ))
            })
        }
        [first, other] => {
            let (first, other) = (cell(summaries, first)?, cell(summaries, other)?);
            flame_difference(first, other).map_err(usage)
        }
        _ => Err(usage(
            "--format flame needs --cell CELL, or two of them for their difference",
        )),
    }
}

/// True if the user may not write into the directory: an archive, or a run of another user.
fn is_not_writable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

/// Returns a cell by its name, or by its number, counted from 1 over all runs.
fn cell<'a>(summaries: &'a [Summary], named: &str) -> anyhow::Result<&'a CellSummary> {
    let cells: Vec<&CellSummary> = summaries.iter().flat_map(|one| &one.cells).collect();
    let number = named.parse::<usize>().ok();
    let found = cells.iter().find(|cell| cell.name == named);
    let found = found.or_else(|| cells.get(number?.checked_sub(1)?));
    found.copied().ok_or_else(|| {
        let names: Vec<String> = cells
            .iter()
            .map(|cell| format!("\"{}\"", cell.name))
            .collect();
        usage(format!(
            "no cell \"{named}\": there are {}",
            names.join(", ")
        ))
    })
}
