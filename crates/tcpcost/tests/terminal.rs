//! A terminal that closes ends every command on it, with the exit code of an interrupt, even if
//! SIGHUP does not reach the process.

mod common;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::{Place, able};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use tcpcost_testbed::{in_namespace, until};

/// Opens a pseudo-terminal. Returns the end of the window, and the end for programs in it.
fn terminal() -> (OwnedFd, OwnedFd) {
    let window =
        rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .unwrap();
    rustix::pty::grantpt(&window).unwrap();
    rustix::pty::unlockpt(&window).unwrap();
    let name = rustix::pty::ptsname(&window, Vec::new()).unwrap();
    let inside = rustix::fs::open(
        name,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    (window, inside)
}

/// Starts a command on a terminal of its own, which ignores SIGHUP if `nohup` is set.
fn start(command: &mut Command, inside: &OwnedFd, nohup: bool) -> Child {
    let copy = || Stdio::from(inside.try_clone().unwrap());
    command.stdin(copy()).stdout(copy()).stderr(copy());
    // SAFETY: only system calls that are safe between fork and exec (signal-safety(7)) are made.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            if nohup && libc::signal(libc::SIGHUP, libc::SIG_IGN) == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn().unwrap()
}

#[test]
fn a_closed_terminal_ends_every_command() {
    if !able() {
        return;
    }
    const COMMANDS: [&[&str]; 7] = [
        &["watch", "--interval=100ms"],
        &["watch", "--interval=60s"],
        &["watch", "--interval=100ms", "--format=lines"],
        &["watch", "--interval=100ms", "--format=json"],
        &[
            "watch",
            "--soak",
            "--interval",
            "100ms",
            "--calibrate",
            "10ms",
        ],
        &["trace", "--interface", "lo", "--interval", "20ms"],
        &["run", "study.toml", "--out"],
    ];
    in_namespace(|| {
        tcpcost_host::link::set_up("lo").unwrap();
        let place = Place::new();
        place.write("study.toml", common::STUDY);
        for (index, args) in COMMANDS.into_iter().enumerate() {
            for nohup in [false, true] {
                let out = format!("out-{index}-{nohup}");
                let mut args = args.to_vec();
                if args.last() == Some(&"--out") {
                    args.push(&out);
                }
                let (window, inside) = terminal();
                let mut child = start(&mut place.command(&args), &inside, nohup);
                drop(inside);
                // The first byte of output shows that the command is at work.
                let mut window = std::fs::File::from(window);
                window.read_exact(&mut [0]).unwrap();
                drop(window);
                let status = until(&format!("{args:?} nohup {nohup} to end"), || {
                    child.try_wait().unwrap()
                });
                assert_eq!(status.code(), Some(130), "{args:?} nohup {nohup}: {status}");
            }
        }
    });
}
