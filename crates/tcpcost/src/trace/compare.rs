//! `tcpcost trace --compare A B`: compares two captures.

use std::path::Path;

use tcpcost_console::exit::{Exit, usage};
use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_trace::{Causes, Pair, Passed, Report, Segment, Sink, read};

use super::{Options, TraceArgs, open};

/// Compares two captures of one transfer at two places if a connection is in both. Otherwise
/// compares two transfers, and shows the causes of their difference.
pub fn trace(args: &TraceArgs, options: &Options) -> anyhow::Result<Exit> {
    let [a, b] = &args.files[..] else {
        return Err(usage("--compare: wants two captures"));
    };
    let (first, second) = (Capture::read(a, options)?, Capture::read(b, options)?);
    let mut exit = Exit::Ok;
    for report in [&first.report, &second.report] {
        if let Some(broken) = &report.broken {
            output::say!("tcpcost: {}: {broken}", report.file);
            exit = Exit::Failed;
        }
    }
    let files = [
        first.report.file.to_string(),
        second.report.file.to_string(),
    ];
    let pair = Pair::of(files, &first.passed, &second.passed, &first.names);
    let causes = Causes::of(&first.report, &second.report);
    if args.output.has(Format::Json) {
        let document = serde_json::json!({"pair": pair, "causes": causes});
        output::write_json(&format!("{document:#}\n"))?;
    } else if let Some(pair) = pair {
        output::write(&pair.text())?;
    } else {
        output::write(&causes.text())?;
    }
    Ok(exit)
}

/// One capture, read for both kinds of comparison.
struct Capture {
    report: Report,
    passed: Passed,
    names: tcpcost_trace::Names,
}

impl Capture {
    fn read(file: &Path, options: &Options) -> anyhow::Result<Capture> {
        let mut analysis = options.analysis();
        let mut passed = Passed::default();
        let (reading, outcome) = read(open(file)?, &mut |segment: &Segment| {
            analysis.segment(segment);
            passed.segment(segment);
        });
        let name = file.display().to_string();
        let (report, _) = analysis.into_report(&name, &reading, outcome.as_ref().copied());
        Ok(Capture {
            report,
            passed,
            names: reading.names,
        })
    }
}
