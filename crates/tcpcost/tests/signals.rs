//! A signal ends every command, whatever it does: usually within a second, here within ten, because
//! tests run on busy machines.

mod common;

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, able};
use tcpcost_testbed::{in_namespace, until};

const LONGEST: Duration = Duration::from_secs(10);
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Standard input of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Input {
    Null,
    /// A pipe without data.
    Silent,
    /// /dev/zero.
    Endless,
}

/// Standard output of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Output {
    Null,
    /// A full pipe without a reader.
    Full,
}

/// Command that can run for long, with its load.
struct Case {
    args: &'static [&'static str],
    input: Input,
    output: Output,
    /// Gives the command work after its start.
    load: fn(&Child),
}

fn case(args: &'static [&'static str]) -> Case {
    Case {
        args,
        input: Input::Null,
        output: Output::Null,
        load: |_| {},
    }
}

const PEER: [&str; 7] = [
    "--tun",
    "tcp0",
    "--local",
    "10.78.0.2/24",
    "--host-address",
    "10.78.0.1/24",
    "--format=json",
];

/// Sends to our TCP and never reads, as long as bytes are accepted.
fn never_read(_: &Child) {
    let client = until("the peer", || TcpStream::connect("10.78.0.2:7").ok());
    send(client);
}

/// Sends to a listener of the kernel's TCP and never reads.
fn send_to_local(_: &Child) {
    let client = until("the listener", || TcpStream::connect("127.0.0.1:1080").ok());
    send(client);
}

fn send(mut client: TcpStream) {
    std::thread::spawn(move || {
        let minute = Some(Duration::from_secs(60));
        let _ = client.set_write_timeout(minute);
        while client.write_all(&[5; 1 << 16]).is_ok() {}
    });
}

fn cases() -> Vec<Case> {
    let peer = |args| Case {
        load: never_read,
        ..case(args)
    };
    let local = |args| Case {
        load: send_to_local,
        ..case(args)
    };
    let full = |args| Case {
        output: Output::Full,
        ..case(args)
    };
    let of_input = |args, input| Case {
        input,
        ..case(args)
    };
    vec![
        peer(&["peer", "--service=echo", "--listen", "7"]),
        peer(&["peer", "--service=sink:check", "--listen", "7"]),
        peer(&["peer", "--service=source", "--listen", "7"]),
        peer(&["peer", "--service=serve:1GiB", "--listen", "7"]),
        peer(&["peer", "--service=serve:.", "--listen", "7"]),
        peer(&["peer", "--service=iperf3", "--listen", "7"]),
        local(&["peer", "--forward", "127.0.0.1:1080=10.78.0.1:9"]),
        of_input(&["peer", "--service=stdio", "--listen", "7"], Input::Silent),
        full(&["peer", "--service=echo", "--listen", "7"]),
        case(&["watch", "--soak", "--interval", "1s"]),
        case(&["watch", "--soak", "--interval", "1s", "--calibrate", "60s"]),
        full(&[
            "watch",
            "--soak",
            "--interval",
            "10ms",
            "--calibrate",
            "10ms",
        ]),
        of_input(&["trace", "-"], Input::Silent),
        of_input(&["trace", "-"], Input::Endless),
        of_input(&["trace", "--follow", "-"], Input::Silent),
        case(&["trace", "--follow", "growing"]),
        case(&["trace", "--interface", "lo"]),
        Case {
            output: Output::Full,
            ..case(&["trace", "--interface", "lo", "--interval", "20ms"])
        },
        case(&["watch", "--format=lines", "--interval=1s"]),
        case(&["stat", "--", "sleep", "100"]),
        case(&["netserver", "-D"]),
        case(&["run", "study.toml", "--out", "out"]),
        case(&[
            "compare",
            "study.toml",
            "--a",
            "write_size=4KiB",
            "--b",
            "write_size=8KiB",
            "--out",
            "compared",
        ]),
        full(&["report", "huge"]),
        case(&["report", "huge"]),
        case(&["doctor"]),
    ]
}

/// Makes a full pipe. Returns its read end and its write end.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: pipe2 writes two descriptors, which are ours.
    let (from, to) = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    rustix::fs::fcntl_setfl(&to, rustix::fs::OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&to, &[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&to, rustix::fs::OFlags::empty()).unwrap();
    (from, to)
}

/// Time from the signal to the end. `None` if the command ended before.
fn ends(place: &Place, case: &Case, signal: libc::c_int) -> Option<Duration> {
    let mut args = case.args.to_vec();
    if args[0] == "peer" {
        args.extend(PEER);
    }
    let mut command: Command = place.command(&args);
    command.stderr(Stdio::null()).stdout(Stdio::null());
    let mut kept = Vec::new();
    if case.output == Output::Full {
        let (from, to) = full_pipe();
        kept.push(from);
        command.stdout(to);
    }
    match case.input {
        Input::Null => {}
        Input::Silent => drop(command.stdin(Stdio::piped())),
        Input::Endless => drop(command.stdin(File::open("/dev/zero").unwrap())),
    }
    // The shell ignores SIGINT for background jobs, and nohup SIGHUP; the tests may run as such a
    // job.
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in SIGNALS {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    (case.load)(&child);
    // Most commands are at work after this time; a command that is not yet must end, too.
    let _ = child_ends(&mut child, Duration::from_millis(700));
    if child.try_wait().unwrap().is_some() {
        return None;
    }
    let began = Instant::now();
    // SAFETY: the child is ours and not yet waited for, so the id names it.
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) };
    let has_ended = child_ends(&mut child, LONGEST);
    let took = began.elapsed();
    if !has_ended {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(
        has_ended,
        "{:?} {:?} {:?}: goes on {LONGEST:?} after signal {signal}",
        case.args, case.input, case.output
    );
    Some(took)
}

/// Waits for the child for at most `within`. True if it has ended.
fn child_ends(child: &mut Child, within: Duration) -> bool {
    let pid = rustix::process::Pid::from_child(child);
    let opened = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut fds = [rustix::event::PollFd::new(
        &opened,
        rustix::event::PollFlags::IN,
    )];
    let timeout = rustix::event::Timespec {
        tv_sec: within.as_secs().try_into().unwrap(),
        tv_nsec: within.subsec_nanos().into(),
    };
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap();
    child.try_wait().unwrap().is_some()
}

#[test]
fn a_signal_ends_every_command_whatever_it_is_doing() {
    if !able() {
        return;
    }
    in_namespace(|| {
        tcpcost_host::link::set_up("lo").unwrap();
        let place = Place::new();
        place.write("study.toml", common::STUDY);
        place.write("growing", "");
        std::fs::create_dir(place.path("huge")).unwrap();
        let only = std::env::var("TCPCOST_CASE").ok();
        for (index, case) in cases().iter().enumerate() {
            let name = format!("{:?} {:?} {:?}", case.args, case.input, case.output);
            if only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            // All signals have the same handler, so each command gets one signal; commands with our
            // TCP get all.
            let signals = match case.args[0] {
                "peer" => &SIGNALS[..],
                _ => &SIGNALS[index % 3..=index % 3],
            };
            for signal in signals {
                let took = ends(&place, case, *signal);
                println!("{name} {signal}: {took:?}");
            }
        }
    });
}
