//! Owners of softirq time, on this kernel: `exact` with [`tcpcost_meter::Owners::Command`]. Needs root; says so and passes without.
//!
//! The command is this program, run again with [`CHILD`] in its environment, or what this process does while it is followed.
#![cfg(feature = "bpf")]

mod calls;
mod ends;
mod paths;
mod probe;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use tcpcost_counts::{CountOwner, Counts, Quantity as Q, Snapshot};
use tcpcost_meter::bpf::{self, Follower};
use tcpcost_meter::{Meter, Scope};

/// Task of the command: `WHAT ADDRESS`, or `WHAT` if it is given a socket as standard input.
const CHILD: &str = "TCPCOST_TEST_CHILD";
const ROUNDS: usize = 2000;
const BULK: usize = 65_536;

/// One test at a time: to each the traffic of the others is that of neighbours.
static ALONE: Mutex<()> = Mutex::new(());

struct Owners {
    meter: Box<dyn Meter + Send>,
    follower: Follower,
}

type Alone = MutexGuard<'static, ()>;

fn alone() -> Alone {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owners {
    /// The meter, while no other test runs. `None` if it is unavailable: the test is skipped.
    #[track_caller]
    fn load() -> Option<(Alone, Owners)> {
        Some((alone(), Owners::loaded(Scope::default())?))
    }

    #[track_caller]
    fn loaded(scope: Scope) -> Option<Owners> {
        let scope = Scope {
            cpus: (0..thread::available_parallelism().unwrap().get()).collect(),
            owners: tcpcost_meter::Owners::Command,
            ..scope
        };
        match bpf::load_following(&scope) {
            Ok((meter, follower)) => Some(Owners { meter, follower }),
            Err(error) => {
                tcpcost_testbed::skip(&error.to_string());
                None
            }
        }
    }

    /// Does something as the command: the sockets that it makes are the command's.
    fn as_command<T>(&self, work: impl FnOnce() -> T) -> T {
        self.follower.follow(std::process::id(), true).unwrap();
        let done = work();
        self.follower.follow(std::process::id(), false).unwrap();
        done
    }

    /// Growth of the counts while this is done.
    fn grown(&mut self, work: impl FnOnce(&Owners)) -> Counts {
        let before = self.meter.snapshot().unwrap();
        work(self);
        self.since(&before)
    }

    fn since(&mut self, before: &Snapshot) -> Counts {
        let readings = self.meter.snapshot().unwrap().since(before).unwrap();
        let all = readings
            .into_iter()
            .find(|reading| matches!(reading.whose, CountOwner::Cpus(_)));
        all.unwrap().counts.into()
    }

    /// Runs the command, followed, to its end.
    fn command(&mut self, what: &str, address: SocketAddr) -> Counts {
        self.grown(|owners| {
            let child = owners.as_command(|| child(what, address).spawn());
            assert!(child.unwrap().wait().unwrap().success());
        })
    }
}

fn command(line: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "the_command", "--nocapture"])
        .env(CHILD, line)
        .stdout(Stdio::null());
    command
}

fn child(what: &str, address: SocketAddr) -> Command {
    command(&format!("{what} {address}"))
}

/// The command, where this program is run as one.
#[test]
fn the_command() {
    let Ok(line) = std::env::var(CHILD) else {
        return;
    };
    let (what, address) = line.split_once(' ').unwrap_or((&line, ""));
    let address: SocketAddr = address.parse().unwrap_or_else(|_| ([0; 4], 0).into());
    let stdin = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match what {
        "transactions" => ask(&mut TcpStream::connect(address).unwrap(), 1),
        "bulk" => ask(&mut TcpStream::connect(address).unwrap(), BULK),
        "connections" => {
            for _ in 0..ROUNDS / 10 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
        }
        "datagrams" => {
            let socket = UdpSocket::bind((address.ip(), 0)).unwrap();
            socket.connect(address).unwrap();
            for _ in 0..ROUNDS {
                socket.send(b"x").unwrap();
                assert_eq!(socket.recv(&mut [0; 2]).unwrap(), 1);
            }
        }
        "nothing" => {}
        "accept" => answer(TcpListener::from(stdin()).accept().unwrap().0, 1),
        "passed" => answer(paths::received(&UnixStream::from(stdin())), 1),
        _ => panic!("{what}"),
    }
}

fn ask(stream: &mut TcpStream, bytes: usize) {
    exchange(stream, bytes, ROUNDS);
}

fn exchange(stream: &mut TcpStream, bytes: usize, rounds: usize) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; bytes];
    for _ in 0..rounds {
        stream.write_all(&buffer).unwrap();
        stream.read_exact(&mut buffer[..1]).unwrap();
    }
}

/// Answers each message of so many bytes with one, until the client leaves.
fn answer(mut stream: TcpStream, bytes: usize) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; bytes];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(b"x").is_ok() {}
}

/// A server of so many connections in this process, which is not followed.
fn server(ip: &str, connections: usize, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            answer(stream.unwrap(), bytes);
        }
    });
    address
}

fn softirqs(counts: &Counts) -> u64 {
    Q::EXACT_SOFTIRQS.iter().map(|of| counts[of]).sum()
}

fn owned(counts: &Counts) -> u64 {
    let softirqs = Q::EXACT_OWNED.iter().map(|[softirq, _]| counts[softirq]);
    softirqs.sum()
}

/// Softirq time of the command and of the other ends of its connections.
fn both_ends(counts: &Counts) -> [u64; 2] {
    let ends = [0, 1].map(|owner| counts[&Q::EXACT_OWNED[owner][0]]);
    assert!(ends.iter().all(|&ns| ns > 0), "{counts:?}");
    ends
}
