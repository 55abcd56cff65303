//! `tcpcost trace`: analyses captures, and prints findings, tables, JSON or CSV.

mod args;
mod compare;
mod follow;
mod growing;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tcpcost_console::exit::{Exit, unread, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_counts::TextForm;
use tcpcost_study::units;
use tcpcost_trace::{
    Analysis, CaptureTime, Filter, Graph, ReadFailure, Reading, Report, Settings, page, read, text,
    write_csv, write_json,
};

pub use args::TraceArgs;

/// Analyses the captures and prints their reports. A broken capture is a line on standard error and
/// exit code 1; its packets before the break are reported like those of other captures.
pub fn trace(args: &TraceArgs) -> anyhow::Result<Exit> {
    if args.follow || args.interface.is_some() {
        return follow::trace(args);
    }
    let mut options = Options::new(args)?;
    if args.compare {
        return compare::trace(args, &options);
    }
    let groups: Vec<&[PathBuf]> = if args.join {
        vec![&args.files]
    } else {
        args.files.chunks(1).collect()
    };
    let (mut reports, mut graphs) = (Vec::new(), Vec::new());
    let mut exit = Exit::Ok;
    let has_page = args.output.has(Format::Html);
    if has_page && groups.len() > 1 {
        return Err(usage("--format html: wants one capture (or --join)"));
    }
    let outcomes = on_all_cpus(&groups, |files| one(files, &options));
    for outcome in outcomes {
        let (report, mut graph) = outcome?;
        if has_page {
            // The largest connection is known only now. Files can be read again for its graph; a
            // pipe cannot.
            let again = args.connection.is_empty() && args.files.iter().all(|file| file.is_file());
            if let Some(number) = report.largest().filter(|number| again && *number != 1) {
                options.graphs_of = vec![number];
                graph = one(&args.files, &options)?.1;
            }
        }
        if let Some(broken) = &report.broken {
            output::say!("tcpcost: {}: {broken}", report.file);
            exit = Exit::Failed;
        }
        reports.push(report);
        graphs.push(graph);
    }
    // `--connection` needs one capture, so the first graph is the one it shows.
    let graph = graphs.first().cloned().unwrap_or_default();
    print(args, &reports, &graph, |reports, out| {
        write_json(reports, out)
    })?;
    Ok(exit)
}

struct Options {
    /// Numbers of the connections whose graphs are drawn.
    graphs_of: Vec<usize>,
    settings: Settings,
    filter: Filter,
}

impl Options {
    fn new(args: &TraceArgs) -> anyhow::Result<Options> {
        let ns = |name: &str, text: &str| -> anyhow::Result<u64> {
            let time: Duration = units::duration(text)
                .map_err(|error| usage(format!("--{name} {text}: {error}")))?;
            Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let moment = |name: &str, text: &Option<String>| -> anyhow::Result<Option<CaptureTime>> {
            let Some(text) = text else {
                return Ok(None);
            };
            let Some(at) = text.strip_prefix('@') else {
                return Ok(Some(CaptureTime::AfterFirst(ns(name, text)?)));
            };
            match at.parse() {
                Ok(at) => Ok(Some(CaptureTime::At(at))),
                Err(_) => Err(usage(format!(
                    "--{name} {text}: expected nanoseconds since the epoch after @"
                ))),
            }
        };
        let (from, until) = (moment("from", &args.from)?, moment("until", &args.until)?);
        let is_backwards = match (from, until) {
            (Some(CaptureTime::AfterFirst(from)), Some(CaptureTime::AfterFirst(until)))
            | (Some(CaptureTime::At(from)), Some(CaptureTime::At(until))) => until < from,
            _ => false,
        };
        if is_backwards {
            return Err(usage(
                "--until is before --from: nothing is between them; give the earlier time to --from",
            ));
        }
        Ok(Options {
            graphs_of: match &args.connection[..] {
                [] if args.output.has(Format::Html) => vec![1],
                numbers => numbers.to_vec(),
            },
            settings: Settings {
                burst_gap_ns: ns("burst-gap", &args.burst_gap)?,
                mss: args.mss,
            },
            filter: Filter {
                addresses: args.address.clone(),
                ports: args.port.clone(),
                from,
                until,
            },
        })
    }
}

impl Options {
    fn analysis(&self) -> Analysis<Graph> {
        Analysis::watched(
            self.settings,
            self.filter.clone(),
            Graph::of(&self.graphs_of),
        )
    }
}

/// Analyses one capture: one file, or several that continue each other.
fn one(files: &[PathBuf], options: &Options) -> anyhow::Result<(Report, Graph)> {
    let mut analysis = options.analysis();
    let mut whole = Reading::default();
    let mut broken: Option<ReadFailure> = None;
    for file in files {
        let (reading, outcome) = read(open(file)?, &mut analysis);
        whole.add(reading);
        if let Err(error) = outcome {
            broken = Some(error);
            break;
        }
    }
    let names: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let outcome = broken.as_ref().map_or(Ok(()), Err);
    Ok(analysis.into_report(&names.join(" + "), &whole, outcome))
}

fn open(file: &Path) -> anyhow::Result<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin().lock()));
    }
    Ok(Box::new(
        File::open(file).map_err(|error| unread(file, &error))?,
    ))
}

/// Runs `run` on each item of `work`, on as many threads as there are CPUs. Returns the results in
/// the order of `work`.
fn on_all_cpus<T: Sync, R: Send>(work: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let worker = || -> Vec<(usize, R)> {
        let take = || {
            work.get(next.load(Ordering::Relaxed))
                .map(|_| next.fetch_add(1, Ordering::Relaxed))
        };
        std::iter::from_fn(take)
            .filter_map(|place| Some((place, run(work.get(place)?))))
            .collect()
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..cpus.min(work.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let mut done = worker();
        for other in others {
            done.extend(
                other
                    .join()
                    .expect("a panic of the analysis would be a bug"),
            );
        }
        done
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Prints the reports, and writes formats with a file. `json` makes a document of the reports.
fn print(
    args: &TraceArgs,
    reports: &[Report],
    graph: &Graph,
    json: fn(&[Report], &mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    for (format, file) in args.output.each() {
        match format {
            Format::Json => output::put_with(TextForm::Json, file, |out| json(reports, out))?,
            Format::Csv => {
                output::put_with(TextForm::Lines, file, |out| write_csv(reports, out))?;
            }
            Format::Html => {
                let pages = reports.iter().map(|report| page(report, graph));
                output::put(&pages.collect::<String>(), TextForm::Lines, file)?;
            }
            _ => output::put(&shown(args, reports, graph)?, TextForm::Lines, file)?,
        }
    }
    Ok(())
}

/// Returns the reports as text; with `--connection` these connections in depth.
fn shown(args: &TraceArgs, reports: &[Report], graph: &Graph) -> anyhow::Result<String> {
    if args.connection.is_empty() {
        return Ok(reports.iter().map(text).collect::<Vec<_>>().join("\n"));
    }
    let [report] = reports else {
        return Err(usage("--connection: wants one capture"));
    };
    let shown = args.connection.iter().map(|&number| {
        let mut connections = report.connections.iter();
        let found = connections.find(|connection| connection.number == number);
        let connection = found.ok_or_else(|| {
            usage(format!(
                "--connection {number}: the capture has {}",
                report.connections.len()
            ))
        })?;
        Ok(tcpcost_trace::connection_text(
            report,
            connection,
            graph.of_connection(number),
        ))
    });
    Ok(shown.collect::<anyhow::Result<Vec<_>>>()?.join("\n"))
}
