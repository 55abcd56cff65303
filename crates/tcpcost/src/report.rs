//! `tcpcost report`: runs that are stored, once more as text, JSON, CSV, page or flame graph.

use tcpcost_report::{CellSummary, Summary, flame, flame_difference};

use crate::cli;
use crate::exit::{Exit, usage};
use crate::output;
use crate::run::StoredRun;

/// `tcpcost report`.
pub fn report(args: &cli::Report) -> anyhow::Result<Exit> {
    let mut summaries = Vec::new();
    let mut pages = Ok(());
    for directory in &args.directories {
        let run = StoredRun::load(directory)?;
        run.say();
        let summary = Summary::new(&run.study, &run.records);
        pages = pages.and(output::write_html(directory, &summary));
        summaries.push(summary);
    }
    let drawn = match (&args.flame, args.flame_diff.as_deref()) {
        (Some(name), _) => {
            let cell = cell(&summaries, name)?;
            let without = || {
                usage(format!(
                    "cell \"{}\" has no call chains: run it with the meter profile",
                    cell.name
                ))
            };
            Some(flame(cell).ok_or_else(without)?)
        }
        (None, Some([first, other])) => {
            let (first, other) = (cell(&summaries, first)?, cell(&summaries, other)?);
            Some(flame_difference(first, other).map_err(usage)?)
        }
        _ => None,
    };
    match drawn {
        Some(svg) => output::write(&svg).map(|_| ())?,
        None => output::print(&summaries, args.format, args.details)?,
    }
    // A page that could not be written keeps no text from being printed.
    pages.map(|()| Exit::Ok)
}

/// A cell by its name, or by its number from 1 over all runs.
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
