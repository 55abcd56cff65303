//! The library alone, as `netperf` and `netserver`: built in seconds where the whole command takes minutes.
//! `netperf netserver …` is the latter; so is a link of that name.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args();
    let called = words.next().unwrap_or_default();
    let mut args: Vec<String> = words.collect();
    let by_name = Path::new(&called)
        .file_name()
        .is_some_and(|name| name == "netserver");
    let by_word = args.first().is_some_and(|word| word == "netserver");
    if by_word {
        args.remove(0);
    }
    let done = match by_name || by_word {
        true => tcpcost_netperf::serve(&args, by_name),
        false => tcpcost_netperf::netperf(&args, || tcpcost_signals::Interrupt::watch(2)),
    };
    match done {
        Ok(code) => code.into(),
        Err(failure) => {
            eprintln!("netperf: {failure}");
            failure.code.into()
        }
    }
}
