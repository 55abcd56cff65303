//! `tcpcost uperf`: runs a profile as a study.

use std::ffi::OsString;

use clap::Args;

/// `tcpcost uperf`.
#[derive(Debug, Args)]
pub struct UperfArgs {
    /// The profile (XML), with its variables in the environment: h=server tcpcost uperf -m iperf.xml.
    #[arg(short = 'm', value_name = "PROFILE")]
    pub profile: String,
    /// Print all statistics: percentiles of each flowop.
    #[arg(short = 'a')]
    pub all: bool,
    /// Options of tcpcost run, after `--`.
    #[arg(last = true, value_name = "RUN OPTION")]
    pub run: Vec<String>,
}

/// Returns the words of the command line that runs a profile: `tcpcost run PROFILE …`.
pub fn run_words(args: &UperfArgs) -> Vec<OsString> {
    let details: &[&str] = if args.all {
        &["--format", "details"]
    } else {
        &[]
    };
    let words = ["tcpcost", "run", &args.profile];
    let options = args.run.iter().map(String::as_str);
    let words = words.into_iter().chain(details.iter().copied());
    words.chain(options).map(OsString::from).collect()
}
