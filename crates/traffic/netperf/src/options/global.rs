//! The options before `--`.

use std::path::PathBuf;
use std::time::Duration;

use super::test::TESTS;
use super::{Confidence, Ends, Family, Host, Test, family, port, refused, tos};
use crate::getopt::{Found, Words};
use crate::number::{both, length, pair, size, sizes};
use crate::units::Unit;
use crate::{Failure, Usage, VERSION};

/// Letters of the options, in the form of getopt(3).
const LETTERS: &str = "A:a:b:B:CcdD:f:F:H:hi:I:jk:K:l:L:n:NO:o:P:p:rSs:t:T:v:VW:w:y:Y:Z:46";

/// Returns the usage text and the exit codes of netperf.
pub fn usage() -> Usage {
    let tests = Test::names().replacen(',', " (default),", 1);
    Usage {
        text: TEXT.replace("{tests}", &tests),
        exit_codes: &[
            (0, "done"),
            (1, "the command line or the test failed"),
            (255, "no netserver, or it refused"),
            (130, "Ctrl-C before the test, or a second one"),
        ],
    }
}

const TEXT: &str = "\
Usage: netperf [global options] -- [test options]

netperf's command line for TCP and UDP; docs/fronts.md has what differs, and what is refused.

  -t TEST         {tests}
  -H HOST[,FAM]   where netserver runs; ssh:HOST, netns:NAME@ADDRESS and bed:veth start one
  -p PORT[,PORT]  its port [12865], and ours
  -L HOST[,FAM]   our address; -4, -6: both ends IPv4 or IPv6
  -l N            seconds [10]; -N: bytes, or transactions
  -c, -C          local and remote CPU figures; service demand is of this instance
  -D SECS[,UNITS] interim results
  -f UNIT         G M K B (bytes), g m k b (bits), x (transactions), u (microseconds)
  -F FILE         send what is in this file
  -i MAX[,MIN], -I LEVEL[,WIDTH], -r   repeat until the mean is sure enough
  -j              latency statistics
  -P 0|1, -v N, -B TEXT   headers, verbosity 0 to 2, a word at the end of the line
  -s SECS         wait between set-up and traffic; -S: SO_KEEPALIVE
  -T CPU[,CPU]    CPUs to run on; -y, -Y LOCAL[,REMOTE]: SO_PRIORITY, IP_TOS
  -Z WORD         passphrase;  -V: version

Test options:
  -d DIRECTION    of OMNI: send, recv, rr, crr, or the numbers 2, 4, 6;  -c: a connection for each transaction
  -T tcp|udp      of OMNI;  -e SECS: a response of UDP is lost then;  -n, -N: connected sockets of UDP
  -m LOCAL[,REMOTE], -M REMOTE[,LOCAL]   bytes of a send, of a receive
  -r REQ[,RESP]   bytes of request and response;  -b N: so many more requests in flight
  -s SND[,RCV], -S SND[,RCV]   socket buffers, ours and netserver's
  -D, -C, -G MSS, -q BYTES/S, -R 0|1     TCP_NODELAY, TCP_CORK, TCP_MAXSEG, pacing, routing
  -K LOCAL[,REMOTE]   congestion control
  -H, -L HOST[,FAM], -P LOCAL[,REMOTE], -4, -6   where data goes
  -k, -o, -O [LIST|FILE|all|?]   NAME=value, CSV, columns;  -u UUID

Ctrl-C ends the test and prints what was measured so far.
";

/// Values of the options.
pub struct Global {
    pub test: String,
    pub host: Host,
    pub port: u16,
    pub family: Option<Family>,
    pub local_host: Option<String>,
    pub local_port: u16,
    pub length: i32,
    pub cpu: Ends<bool>,
    pub interim: Option<Duration>,
    pub unit: Option<Unit>,
    pub fill: Option<PathBuf>,
    pub remote_fill: String,
    pub confidence: Confidence,
    pub with_latency: bool,
    pub with_headers: bool,
    pub verbosity: i32,
    pub brand: Option<String>,
    pub keepalive: bool,
    pub wait: Duration,
    pub affinity: Ends<Option<i32>>,
    pub priority: Ends<Option<i32>>,
    pub tos: Ends<Option<i32>>,
    pub passphrase: Option<String>,
    pub notes: Vec<String>,
}

/// A test, or only a text.
pub enum Asked {
    Options(Box<Global>),
    Text(String, u8),
}

/// Takes the words up to `--`.
pub fn parse(words: &mut Words) -> Result<Asked, Failure> {
    let mut global = Global {
        test: TESTS[0].name.to_string(),
        host: Host::At(String::new()),
        port: 12865,
        family: None,
        local_host: None,
        local_port: 0,
        length: 10,
        cpu: Ends::default(),
        interim: None,
        unit: None,
        fill: None,
        remote_fill: String::new(),
        confidence: Confidence {
            level: 0,
            width: 0.0,
            least: 1,
            most: 1,
            on_result_only: false,
        },
        with_latency: false,
        with_headers: true,
        verbosity: 1,
        brand: None,
        keepalive: false,
        wait: Duration::ZERO,
        affinity: Ends::default(),
        priority: Ends::default(),
        tos: Ends::default(),
        passphrase: None,
        notes: Vec::new(),
    };
    while let Some(found) = words.next(LETTERS) {
        match found {
            Found::Option('h') => return Ok(Asked::Text(usage().help(), 0)),
            Found::Option('V') => {
                let text = format!("Netperf version {VERSION}\n");
                return Ok(Asked::Text(text, 0));
            }
            Found::Option(letter) => global.option(letter, words)?,
            Found::With(letter, argument) => global.with(letter, &argument)?,
            Found::Word(word) => global.notes.push(refused::word(&word)),
            Found::Invalid(complaint) => return Err(Words::invalid(&complaint)),
        }
    }
    if global.host == Host::At(String::new()) {
        let name = match global.family {
            Some(Family::V6) => "::1",
            _ => "localhost",
        };
        global.host = Host::At(name.to_string());
    }
    Ok(Asked::Options(Box::new(global)))
}

impl Global {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        // A rate of the CPU, of the times when that had to be calibrated.
        let mut skip_rate = || {
            words.next_if(|next| next.starts_with(|first: char| first.is_ascii_digit()));
        };
        match letter {
            'c' => {
                self.cpu.local = true;
                skip_rate();
            }
            'C' => {
                self.cpu.remote = true;
                skip_rate();
            }
            'j' => self.with_latency = true,
            'r' => self.confidence.on_result_only = true,
            'S' => self.keepalive = true,
            '4' => self.family = Some(Family::V4),
            '6' => self.family = Some(Family::V6),
            _ => self.notes.push(refused::global(letter)?),
        }
        Ok(())
    }

    fn with(&mut self, letter: char, argument: &str) -> Result<(), Failure> {
        let option = format!("-{letter}");
        let option = option.as_str();
        match letter {
            't' => self.test = argument.to_ascii_uppercase(),
            'H' => self.set_host(option, argument)?,
            'L' => self.set_local_host(option, argument)?,
            'p' => self.set_ports(option, argument)?,
            'l' => self.length = length(option, argument)?,
            'D' => self.interim = Some(interim(argument)?),
            'f' => self.unit = Some(Unit::parse(argument)?),
            'F' => self.set_fill(argument)?,
            'i' => self
                .confidence
                .set_repetitions(sizes(option, both(argument))?),
            'I' => self.confidence.set_level(argument)?,
            'P' => self.with_headers = size(option, argument)? != 0,
            'v' => self.verbosity = size(option, argument)?,
            'B' => self.brand = Some(argument.to_string()),
            's' => {
                let seconds = size(option, argument)?;
                self.wait = Duration::from_secs(u64::from(seconds.cast_unsigned()));
            }
            'T' => {
                let (local, remote) = sizes(option, both(argument))?;
                self.affinity.local = local.or(self.affinity.local);
                self.affinity.remote = remote.or(self.affinity.remote);
            }
            'y' => {
                let (local, remote) = sizes(option, both(argument))?;
                self.priority = Ends { local, remote };
            }
            'Y' => {
                let (local, remote) = both(argument);
                let parse = |text: Option<String>| text.map(|text| tos::parse(&text)).transpose();
                self.tos = Ends {
                    local: parse(local)?,
                    remote: parse(remote)?,
                };
            }
            'Z' => self.passphrase = Some(argument.to_string()),
            letter => self.notes.push(refused::global(letter)?),
        }
        Ok(())
    }

    fn set_host(&mut self, option: &str, argument: &str) -> Result<(), Failure> {
        if let Some(host) = started(argument)? {
            self.host = host;
            return Ok(());
        }
        let (host, of) = pair(argument);
        if let Some(host) = host {
            self.host = Host::At(host);
        }
        if let Some(of) = of {
            self.family = family(option, &of)?;
        }
        Ok(())
    }

    fn set_local_host(&mut self, option: &str, argument: &str) -> Result<(), Failure> {
        let (host, of) = pair(argument);
        self.local_host = host.or_else(|| self.local_host.take());
        if let Some(of) = of {
            let of = family(option, &of)?;
            self.family = self.family.or(of);
        }
        Ok(())
    }

    fn set_ports(&mut self, option: &str, argument: &str) -> Result<(), Failure> {
        let (remote, local) = pair(argument);
        if let Some(remote) = remote {
            self.port = port(option, &remote)?;
        }
        if let Some(local) = local {
            self.local_port = port(option, &local)?;
        }
        Ok(())
    }

    fn set_fill(&mut self, argument: &str) -> Result<(), Failure> {
        let (local, remote) = pair(argument);
        self.fill = local.map(PathBuf::from).or_else(|| self.fill.take());
        if let Some(remote) = remote {
            if remote.len() > 31 {
                return Err(Failure::usage(format!(
                    "-F …,{remote}: a name for netserver has at most 31 bytes"
                )));
            }
            self.remote_fill = remote;
        }
        Ok(())
    }
}

impl Confidence {
    fn set_repetitions(&mut self, (most, least): (Option<i32>, Option<i32>)) {
        let most = most.unwrap_or(self.most.cast_signed());
        let least = least.unwrap_or(self.least.cast_signed());
        // Limits of netperf.
        self.least = least.clamp(3, 30).cast_unsigned();
        self.most = most.max(least).clamp(3, 30).cast_unsigned();
        self.complete();
    }

    fn set_level(&mut self, argument: &str) -> Result<(), Failure> {
        let (level, width) = both(argument);
        let level = level.as_deref().map(|level| level.parse()).transpose();
        self.level = match level {
            Ok(Some(level @ (95 | 99))) => level,
            _ => {
                return Err(Failure::usage(format!(
                    "-I {argument}: expected a level of 95 or 99 percent"
                )));
            }
        };
        // One value alone would be level and width, 99 %: netperf takes it so, nobody means it.
        if let (Some(width), true) = (width, argument.contains(',')) {
            let percent: f64 = width
                .parse()
                .ok()
                .filter(|percent| (0.001..=1000.0).contains(percent))
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "-I {argument}: expected a width in percent, 0.001 to 1000"
                    ))
                })?;
            self.width = percent / 100.0;
        }
        self.complete();
        Ok(())
    }

    /// Completes `-i` and `-I`: the defaults of netperf where only one of them is given.
    fn complete(&mut self) {
        if self.level == 0 {
            self.level = 99;
        }
        if self.width == 0.0 {
            self.width = 0.05;
        }
        if self.least == 1 {
            self.least = 3;
        }
        if self.most == 1 {
            self.most = 10;
        }
    }
}

/// A host on which netserver is to be started.
fn started(text: &str) -> Result<Option<Host>, Failure> {
    if let Some(host) = text.strip_prefix("ssh:") {
        // A name that begins with a dash would be an option of ssh.
        if host.is_empty() || host.starts_with('-') {
            return Err(Failure::usage(format!("-H {text}: expected ssh:HOST")));
        }
        return Ok(Some(Host::Ssh(host.to_string())));
    }
    if let Some(rest) = text.strip_prefix("bed:") {
        return match rest {
            "" | "veth" => Ok(Some(Host::Bed)),
            _ => Err(Failure::usage(format!(
                "-H {text}: expected bed:veth, two network namespaces joined by a veth pair"
            ))),
        };
    }
    let Some(rest) = text.strip_prefix("netns:") else {
        return Ok(None);
    };
    let parts = rest
        .split_once('@')
        .filter(|(name, address)| !name.is_empty() && !name.contains('/') && !address.is_empty());
    let Some((name, address)) = parts else {
        return Err(Failure::usage(format!(
            "-H {text}: expected netns:NAME@ADDRESS, a namespace of ip-netns or the id of a process in it, and its address"
        )));
    };
    Ok(Some(Host::Namespace(name.to_string(), address.to_string())))
}

/// Seconds; those that are negative ask for a look at the clock each time, which is what is done in any case. The units that
/// may follow are a guess that is not needed.
fn interim(text: &str) -> Result<Duration, Failure> {
    let (seconds, units) = pair(text);
    if let Some(units) = units {
        size("-D …,", &units)?;
    }
    // netperf's default.
    let seconds = seconds.unwrap_or_else(|| "1".to_string());
    seconds
        .parse::<f64>()
        .ok()
        .map(f64::abs)
        .filter(|seconds| (0.001..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            Failure::usage(format!(
                "-D {text}: expected seconds, 0.001 to 86400, also negative"
            ))
        })
}
