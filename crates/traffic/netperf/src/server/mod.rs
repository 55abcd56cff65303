//! `netserver`: answers netperf, also the original one.
//!
//! It reads from the network, so it is careful. It listens on the given addresses, or only on loopback. It
//! accepts a test's data only from the control connection's peer, at the address of the control connection.
//! Messages have a fixed size, and values in them are checked before use. Connections, buffers and times have
//! limits ([`limits`]). It is root only until it listens ([`user`]).

mod connections;
mod control;
mod limits;
mod listen;
mod session;
mod test;
mod user;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::getopt::{Found, Words};
use crate::number::pair;
use crate::options::{Family, family, port};
use crate::{Failure, Usage, VERSION, thread_meter};
use connections::Connections;
pub use user::settle;

/// Letters of the options, in getopt(3)'s notation. `e`, `s` and `u` are ours.
const LETTERS: &str = "DdefhL:n:Np:su:v:VZ:46";

const TEXT: &str = "\
Usage: netserver [options]

Answers netperf's tests of TCP and UDP; docs/fronts.md.

  -L HOST[,FAM]  listen there; may be repeated [default: 127.0.0.1 and ::1, nothing else]; 0.0.0.0 and :: are all addresses
  -p PORT        [12865]; 0 for one that the system chooses
  -4, -6         only IPv4, only IPv6
  -D             stay in the foreground, as `tcpcost netserver` does in any case
  -f             one test after the other
  -Z WORD        a passphrase that must come first
  -e             end when standard input ends
  -s             listen where ssh came in (SSH_CONNECTION), for -H ssh:HOST
  -u USER        as root: become this user, by name or number, once it listens [nobody]; root keeps all privileges
  -V             version
  -d, -N, -v N, -n N   taken, without effect

At most 1024 control connections and 1 GiB of buffers, half of each for one address (IPv6: /64), a day a test. Where there
are more, the connection that was idle longest gives way; a running test never does.
";

/// Returns the usage text and the exit codes of netserver.
pub fn usage() -> Usage {
    Usage {
        text: TEXT.to_string(),
        exit_codes: &[
            (0, "asked to end"),
            (1, "the command line, or an address that cannot be had"),
        ],
    }
}

/// Parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    hosts: Vec<(String, Option<Family>)>,
    port: Option<u16>,
    family: Option<Family>,
    is_foreground: bool,
    is_serial: bool,
    passphrase: Option<String>,
    ends_with_input: bool,
    is_for_ssh: bool,
    user: Option<String>,
    /// Text to print instead of serving.
    text: Option<String>,
}

fn parse(args: &[String]) -> Result<Asked, Failure> {
    let mut words = Words::new(args.iter().cloned());
    let mut asked = Asked::default();
    while let Some(found) = words.next(LETTERS) {
        match found {
            Found::Option('D') => asked.is_foreground = true,
            Found::Option('f') => asked.is_serial = true,
            Found::Option('e') => asked.ends_with_input = true,
            Found::Option('s') => asked.is_for_ssh = true,
            Found::Option('4') => asked.family = Some(Family::V4),
            Found::Option('6') => asked.family = Some(Family::V6),
            Found::Option('h') => asked.text = Some(usage().help()),
            Found::Option('V') => asked.text = Some(format!("Netperf version {VERSION}\n")),
            Found::With('L', argument) => {
                let (host, of) = pair(&argument);
                let of = of.map(|of| family("-L", &of)).transpose()?.flatten();
                match host {
                    Some(host) => asked.hosts.push((host, of)),
                    None => asked.family = asked.family.or(of),
                }
            }
            Found::With('p', argument) => asked.port = Some(port("-p", &argument)?),
            Found::With('u', argument) => asked.user = Some(argument),
            Found::With('Z', argument) => asked.passphrase = Some(argument),
            Found::Invalid(complaint) => return Err(Words::invalid(&complaint)),
            Found::Option(_) | Found::With(..) => {}
            Found::Word(word) => {
                return Err(Failure::usage(format!(
                    "{word}: netserver takes options alone (-h)"
                )));
            }
        }
    }
    if asked.is_for_ssh && !asked.hosts.is_empty() {
        return Err(Failure::usage("-s uses ssh's address; omit -L"));
    }
    Ok(asked)
}

/// Serves until it is asked to end. `is_netserver`: it was called by that name. Then it leaves the foreground
/// once it listens, unless an option forbids it.
///
/// # Errors
/// 1: an invalid command line, or an address that is unavailable.
pub fn serve(args: &[String], is_netserver: bool) -> Result<u8, Failure> {
    if thread_meter::is_asked() {
        allow_descriptors();
        return thread_meter::run();
    }
    let asked = parse(args)?;
    if let Some(text) = &asked.text {
        say(text);
        return Ok(0);
    }
    let is_child = std::env::var_os(DAEMON).is_some();
    if is_netserver && !asked.is_foreground && !is_child {
        return daemon(args);
    }
    if is_child {
        // This process leads no process group, because its parent has just started it.
        let _ = rustix::process::setsid();
    }
    let served = run(&asked, is_child);
    if let (true, Err(failure)) = (is_child, &served) {
        // The parent prints this.
        say(&format!("{failure}\n"));
    }
    served
}

/// Environment variable that marks the child of [`daemon`].
const DAEMON: &str = "TCPCOST_NETSERVER_DAEMON";

/// Start of netserver's line when it listens. The last word of the line is an address.
const LISTENS: &str = "netserver listens at";

/// Starts this program again without a terminal, and returns when that listens.
fn daemon(args: &[String]) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("leave the foreground: {error}"));
    let own = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(own)
        .arg0("tcpcost")
        .arg("netserver")
        .args(args)
        .env(DAEMON, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().expect("it is piped");
    let mut output = BufReader::new(output);
    let mut line = String::new();
    output.read_line(&mut line).map_err(failed)?;
    if !line.starts_with(LISTENS) {
        let _ = child.wait();
        return Err(Failure::usage(match line.trim() {
            "" => "the netserver in the background ended",
            why => why,
        }));
    }
    say(&line);
    let mut runs = String::new();
    output.read_line(&mut runs).map_err(failed)?;
    eprint!("{runs}");
    Ok(0)
}

/// Writes to standard output. A closed output is no reason to end.
fn say(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

fn run(asked: &Asked, is_child: bool) -> Result<u8, Failure> {
    let places = listen::places(asked)?;
    let listeners = listen::bind(&places)?;
    allow_descriptors();
    thread_meter::connect();
    let runs = format!("netserver: {}\n", user::settle(asked.user.as_deref())?);
    let names: Vec<String> = listeners
        .iter()
        .filter_map(|listener| Some(listener.local_addr().ok()?.to_string()))
        .collect();
    let listens = format!("{LISTENS} {}\n", names.join(" "));
    match is_child {
        // The parent reads both lines.
        true => say(&(listens + &runs)),
        false => {
            eprint!("{runs}");
            say(&listens);
        }
    }
    if asked.hosts.is_empty() && !asked.is_for_ssh {
        eprintln!(
            "netserver: no address was named, so only this host reaches it; -L ADDRESS for others"
        );
    }
    let bound: Vec<SocketAddr> = listeners
        .iter()
        .filter_map(|listener| listener.local_addr().ok())
        .collect();
    let server = Arc::new(Server {
        passphrase: asked.passphrase.clone(),
        bound,
        connections: Connections::default(),
        turns: asked.is_serial.then(Mutex::default),
    });
    let mut threads = Vec::new();
    for listener in listeners {
        let server = Arc::clone(&server);
        let thread = std::thread::Builder::new().spawn(move || accept(&server, &listener));
        threads.push(thread.map_err(|error| Failure::usage(format!("start a thread: {error}")))?);
    }
    if asked.ends_with_input {
        let mut rest = [0; 256];
        while std::io::stdin().read(&mut rest).is_ok_and(|read| read > 0) {}
        return Ok(0);
    }
    for thread in threads {
        let _ = thread.join();
    }
    Err(Failure::usage("no listener is left"))
}

/// Answers one control connection until its end, like a netserver that listens on its local address.
pub fn answer(control: TcpStream) {
    let server = Server {
        passphrase: None,
        bound: control.local_addr().into_iter().collect(),
        connections: Connections::default(),
        turns: None,
    };
    let control = Arc::new(control);
    if let Some(place) = server.connections.place(&control) {
        session::session(&server, control, &place);
    }
}

/// State that all connections share.
struct Server {
    passphrase: Option<String>,
    /// Addresses on which it listens.
    bound: Vec<SocketAddr>,
    connections: Connections,
    /// Lock for a netserver that runs one test after the other.
    turns: Option<Mutex<()>>,
}

impl Server {
    /// Waits for a test's turn, if tests take turns.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let turns = self.turns.as_ref()?;
        Some(turns.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Raises the soft limit on descriptors to the hard one, because netserver has its own limits.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Accepts control connections.
fn accept(server: &Arc<Server>, listener: &TcpListener) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) => {
                // Other errors mean that the connection went away, and the next accept may succeed.
                if let Some(libc::EMFILE | libc::ENFILE) = error.raw_os_error() {
                    server.connections.end_idlest();
                }
                std::thread::sleep(limits::ACCEPT_AGAIN);
                continue;
            }
        };
        // A connection beyond the limit is closed at once.
        let Some(place) = server.connections.place(&stream) else {
            continue;
        };
        let server = Arc::clone(server);
        // Each session has its own thread, because a test may pin it to a CPU.
        let _ = thread().spawn(move || session::session(&server, stream, &place));
    }
}

/// Builder of a session's thread. Its stack is small, because buffers are not on it.
fn thread() -> std::thread::Builder {
    std::thread::Builder::new()
        .name("test".to_string())
        .stack_size(512 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Asked, Failure> {
        let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&args)
    }

    #[test]
    fn addresses_may_be_several_and_options_of_the_original_are_taken() {
        let asked = of("-D -d -N -v 2 -n 4 -L 192.0.2.1,4 -L ::1 -p 0 -Z word -u root").unwrap();
        assert_eq!(asked.hosts.len(), 2);
        assert_eq!(asked.hosts[0].1, Some(Family::V4));
        assert_eq!(asked.port, Some(0));
        assert!(asked.is_foreground);
        assert!(of("-x").is_err());
        assert!(of("-p 65536").is_err());
        assert!(of("host").is_err());
        assert!(of("-s -L ::1").is_err());
    }
}
