//! `tcpcost uperf`: uperf's command line. It runs a profile against slaves, is a slave, or runs the profile as a study.

use std::ffi::OsString;
use std::fs::File;
use std::time::Duration;

use tcpcost_console::exit::Exit;
use tcpcost_console::output::say;
use tcpcost_counts::{Guard, TextForm};
use tcpcost_netperf::Usage;
use tcpcost_netperf::getopt::{Found, Words};
use tcpcost_uperf::MasterOptions;

/// Letters of the options, in getopt(3)'s notation. `L` is ours.
const LETTERS: &str = "E:epTgtfknasm:X:i:P:S:RvVhL:";

/// Version of uperf whose output and protocol these are.
const VERSION: &str = "1.0.8";

const TEXT: &str = "\
Usage: uperf -m PROFILE [options]
       uperf -s [-L HOST] [-P PORT]
       uperf -m PROFILE -- [options of tcpcost run]

uperf's command line for TCP; docs/fronts.md has what differs. Variables of a profile are in the environment: h=10.0.0.2 uperf -m iperf.xml.
After `--` the profile is a study, both ends of which are made here.

  -m PROFILE   run this profile with the slaves of its hosts
  -s           be a slave, until Ctrl-C
  -L HOST      where a slave listens; may be repeated [default: 127.0.0.1 and ::1; 0.0.0.0 and :: are all addresses]
  -P PORT      port of slaves [20000]
  -a           print all tables;  -g groups, -T threads, -t transactions, -f flowops
  -i INTERVAL  progress so often [1]: 1, 500ms
  -R           numbers with their times (ms), a line each
  -n           no numbers
  -X FILE      write the time of each flowop there
  -V           version of uperf that this is like
  -k, -v, -S tcp         taken, without effect
  -p, -e, -E COUNTERS    as -f: uperf, too, has no CPU time of flowops on Linux
";

/// Returns the usage text and the exit codes.
pub fn usage() -> Usage {
    Usage {
        text: TEXT.to_string(),
        exit_codes: &[
            (0, "done"),
            (1, "the command line, the profile or the run failed"),
        ],
    }
}

/// Parsed command line.
#[derive(Debug, Default)]
struct Asked {
    profile: Option<String>,
    is_slave: bool,
    listen: Vec<String>,
    port: Option<u16>,
    groups: bool,
    threads: bool,
    transactions: bool,
    flowops: bool,
    is_silent: bool,
    is_raw: bool,
    interval: Option<Duration>,
    history: Option<File>,
    /// Text to print instead of a run.
    text: Option<String>,
}

/// Returns the words of the command line that runs a profile as a study: `tcpcost run PROFILE …`. `None` without `--` or a profile.
/// `args`: the words behind `uperf`.
pub fn run_words(args: &[String]) -> Option<Vec<OsString>> {
    let at = args.iter().position(|word| word == "--")?;
    let (mut words, mut profile, mut all) = (Words::new(args[..at].to_vec()), None, false);
    while let Some(found) = words.next(LETTERS) {
        match found {
            Found::With('m', name) => profile = Some(name),
            Found::Option('a') => all = true,
            _ => {}
        }
    }
    let profile = profile?;
    let details = if all {
        &["--format", "details"][..]
    } else {
        &[]
    };
    let words = ["tcpcost", "run", &profile];
    let options = args[at + 1..].iter().map(String::as_str);
    let words = words.into_iter().chain(details.iter().copied());
    Some(words.chain(options).map(OsString::from).collect())
}

/// Runs the command line, without the program's name. Returns the exit code.
///
/// # Errors
/// A line with the reason.
pub fn uperf(args: &[String]) -> Result<Exit, String> {
    let asked = parse(args)?;
    if let Some(text) = &asked.text {
        tcpcost_console::output::write(text).map_err(|error| error.to_string())?;
        return Ok(Exit::Ok);
    }
    let port = asked.port.unwrap_or(tcpcost_uperf::PORT);
    match (&asked.profile, asked.is_slave) {
        (Some(_), true) => Err("Can only be server or client. Not both! (-m, -s)".to_string()),
        (None, false) => Err("Please specify server or client: -s, or -m PROFILE".to_string()),
        (None, true) => {
            let listeners = tcpcost_uperf::listen(&asked.listen, port);
            let listeners = listeners.map_err(|failure| failure.to_string())?;
            for address in listeners
                .iter()
                .filter_map(|listener| listener.local_addr().ok())
            {
                say!("uperf: slave at {address}");
            }
            let runs = tcpcost_netperf::settle(None).map_err(|failure| failure.to_string())?;
            say!("uperf: {runs}");
            tcpcost_uperf::serve(listeners).map_err(|failure| failure.to_string())?;
            Ok(Exit::Ok)
        }
        (Some(file), false) => {
            let profile = tcpcost_conduct::studies::profile(file);
            let profile = profile.map_err(|error| format!("{error:#}"))?;
            let mut out = Guard::new(std::io::stdout().lock(), TextForm::Lines);
            let options = MasterOptions {
                port,
                with_groups: asked.groups,
                with_threads: asked.threads,
                with_transactions: asked.transactions,
                with_flowops: asked.flowops,
                is_silent: asked.is_silent,
                is_raw: asked.is_raw,
                interval: asked.interval.unwrap_or(Duration::from_secs(1)),
                history: asked.history,
                width: width(),
            };
            match tcpcost_uperf::master(&profile, options, &mut out) {
                Ok(true) => Ok(Exit::Ok),
                Ok(false) => Ok(Exit::Failed),
                Err(failure) => Err(failure.to_string()),
            }
        }
    }
}

fn parse(args: &[String]) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut words = Words::new(args.iter().cloned());
    while let Some(found) = words.next(LETTERS) {
        match found {
            Found::Option(letter) => asked.option(letter),
            Found::With(letter, argument) => asked.with(letter, argument)?,
            Found::Word(word) => say!("uperf: {word}: not an option, without effect"),
            Found::Invalid(complaint) => return Err(format!("{complaint} (see -h)")),
        }
    }
    Ok(asked)
}

impl Asked {
    fn option(&mut self, letter: char) {
        match letter {
            's' => self.is_slave = true,
            'g' => self.groups = true,
            'T' => self.threads = true,
            't' => self.transactions = true,
            'f' | 'p' | 'e' => self.flowops = true,
            'n' => self.is_silent = true,
            'R' => self.is_raw = true,
            'a' => {
                (self.groups, self.threads) = (true, true);
                (self.transactions, self.flowops) = (true, true);
            }
            'V' => self.text = Some(format!("Uperf Version {VERSION}\n")),
            'h' => self.text = Some(usage().help()),
            // Packets of devices are printed in any case, and there is no more to say.
            _ => {}
        }
    }

    fn with(&mut self, letter: char, argument: String) -> Result<(), String> {
        match letter {
            'm' => self.profile = Some(argument),
            'L' => self.listen.push(argument),
            'E' => self.flowops = true,
            'P' => {
                let port = argument.parse();
                let wrong = |_| format!("-P {argument}: expected a port, 0 to 65535");
                self.port = Some(port.map_err(wrong)?);
            }
            'i' => {
                let interval = tcpcost_study::uperf_time(&argument);
                let interval = interval.map_err(|what| format!("-i {argument}: {what}"))?;
                self.interval = Some(interval.max(SHORTEST));
            }
            'X' => {
                let file = File::create(&argument);
                let file = file.map_err(|error| format!("-X {argument}: {error}"))?;
                self.history = Some(file);
            }
            _ if argument.eq_ignore_ascii_case("tcp") => {}
            _ => return Err(format!("-S {argument}: only tcp is supported")),
        }
        Ok(())
    }
}

/// Shortest interval of progress.
const SHORTEST: Duration = Duration::from_millis(1);

/// Columns of the terminal, at most uperf's 128; 80 if there is none.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    match size.map_or(0, |size| usize::from(size.ws_col)) {
        0 => 80,
        columns => columns.clamp(20, 128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn wrappers_command_lines_are_understood() {
        let asked = parse(&words("-v -a -R -i 1 -m /tmp/p.xml -P 30000")).unwrap();
        assert!(asked.is_raw && asked.groups && asked.flowops && !asked.is_slave);
        assert_eq!(asked.profile.as_deref(), Some("/tmp/p.xml"));
        assert_eq!(asked.port, Some(30_000));
        assert_eq!(asked.interval, Some(Duration::from_secs(1)));
        let slave = parse(&words("-s -vP 30001")).unwrap();
        assert!(slave.is_slave);
        assert_eq!(slave.port, Some(30_001));
        for wrong in ["-P x", "-i 0", "-x", "-m", "-S sctp", "-X /no/such/file"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_of_run_make_a_study() {
        assert_eq!(run_words(&words("-m p.xml -a")), None);
        let run = run_words(&words("-am p.xml -- --set io=epoll")).unwrap();
        let run: Vec<String> = run
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        let expected = words("tcpcost run p.xml --format details --set io=epoll");
        assert_eq!(run, expected);
        assert_eq!(run_words(&words("-s --")), None);
    }
}
