//! Copies the running binary to hosts, over the same connection as each host's agent. The host needs a shell with `cat`, `mkdir`,
//! `mv` and `sha256sum`.
//!
//! The copy's directory is named after the binary's SHA-256. The host checks this sum, so the program that runs is the one that was
//! sent, and nothing is sent to a host that has a copy.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use sha2::{Digest, Sha256};
use tcpcost_signals::Interrupt;
use tcpcost_study::{HostName, Reach, Topology};

use super::ask_error::AskError;
use super::launcher::Launchers;
use super::lines::excerpt;
use super::reap::{end, ended_within};
use super::stderr_tail::StderrTail;

/// Hosts that are copied to at the same time: each needs a process here, and all share this host's link.
const AT_ONCE: usize = 16;
/// Time limit of a copy: some 15 MB take minutes over a slow line.
const COPY_MAX: Duration = Duration::from_secs(600);
/// Limit on the output of the host's shell: the greeting, and three answers of the script.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Limit on the wait for the script's end after its last answer.
const END_MAX: Duration = Duration::from_secs(2);
/// Interval between checks for a request to stop.
const PAUSE: Duration = Duration::from_millis(100);

impl Launchers {
    /// Command that copies the binary to a host. `None` without `push=on`.
    pub(super) fn copy_command(&self, host: HostName, reach: &Reach) -> Option<Command> {
        self.pushed.as_ref()?;
        let binary = Binary::own().ok()?;
        Some(self.at(host, reach, &["sh", "-c", &script(&binary.sha256)]))
    }

    /// Copies the binary to all hosts that are reached by another program and have no copy yet. Does nothing without `push=on`.
    ///
    /// # Errors
    /// A host cannot be reached, has another architecture, or received an incomplete copy: the first such host.
    pub(super) fn push(&self, topology: &Topology, interrupt: &Interrupt) -> Result<(), AskError> {
        let Some(pushed) = &self.pushed else {
            return Ok(());
        };
        let mut missing: Vec<(HostName, &Reach)> = Vec::new();
        {
            let known = pushed.lock().unwrap_or_else(PoisonError::into_inner);
            for host in &topology.hosts {
                if let Reach::Attach(_) = host.reach {
                    let text = "push: the host's agent runs already: remove push=on, or reach the host by exec:";
                    return Err(AskError::Unfit(host.name, text.to_string()));
                }
                let is_new = !known.contains_key(&host.reach.to_string())
                    && !missing.iter().any(|(_, reach)| **reach == host.reach);
                if !host.reach.is_own() && is_new {
                    missing.push((host.name, &host.reach));
                }
            }
        }
        let Some((first, _)) = missing.first() else {
            return Ok(());
        };
        let binary =
            Binary::own().map_err(|error| AskError::Unfit(*first, format!("push: {error}")))?;
        for some in missing.chunks(AT_ONCE) {
            let results: Vec<_> = std::thread::scope(|scope| {
                let push_one = |&(host, reach): &(HostName, &'_ Reach)| {
                    let binary = &binary;
                    let shell = self.at(host, reach, &["sh", "-c", &script(&binary.sha256)]);
                    let silence_max = self.silence_max;
                    scope.spawn(move || binary.push(shell, silence_max, interrupt))
                };
                let threads: Vec<_> = some.iter().map(push_one).collect();
                threads.into_iter().map(|thread| thread.join()).collect()
            });
            for (&(host, reach), result) in some.iter().zip(results) {
                let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                match result {
                    Ok(path) => {
                        let mut known = pushed.lock().unwrap_or_else(PoisonError::into_inner);
                        known.insert(reach.to_string(), path);
                    }
                    Err(_) if interrupt.is_set() => return Err(AskError::Interrupted),
                    Err(error) => return Err(AskError::Unfit(host, format!("push: {error}"))),
                }
            }
        }
        Ok(())
    }
}

/// The running binary.
struct Binary {
    bytes: Vec<u8>,
    sha256: String,
}

impl Binary {
    fn own() -> std::io::Result<Binary> {
        let bytes = std::fs::read("/proc/self/exe")?;
        let digest = Sha256::digest(&bytes);
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Binary { bytes, sha256 })
    }

    /// Copies the binary to a host through `shell`. Returns the copy's path on the host.
    fn push(
        &self,
        mut shell: Command,
        silence_max: Duration,
        interrupt: &Interrupt,
    ) -> anyhow::Result<String> {
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        tcpcost_signals::unblocked(&mut shell).process_group(0);
        let mut child = shell
            .spawn()
            .map_err(|error| anyhow!("start {}: {error}", shell.get_program().display()))?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr_tail = child.stderr.take().map(StderrTail::read);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let output = BufReader::new(stdout.take(OUTPUT_BYTES_MAX));
            for line in output.lines().map_while(Result::ok) {
                // A line without the prefix is the shell's greeting.
                let Some(answer) = line.strip_prefix(ANSWER) else {
                    continue;
                };
                if sender.send(answer.to_string()).is_err() {
                    return;
                }
            }
        });
        let next = |within| next_line(&lines, within, interrupt);
        let pushed = (|| {
            let (machine, there) = (next(silence_max)?, next(silence_max)?);
            let here = tcpcost_host::machine::host().machine;
            ensure!(
                machine == here,
                "it is {}, and this program is for {here}",
                excerpt(&machine)
            );
            if let Some(path) = there.strip_prefix("present ") {
                return Ok(path.to_string());
            }
            std::thread::scope(|scope| {
                // On a thread, so that a host that does not read its input does not block the command.
                let bytes = &self.bytes[..];
                scope.spawn(move || drop(stdin.write_all(bytes)));
                let answer = next(COPY_MAX);
                if answer.is_err() {
                    end(&mut child, true);
                }
                let answer = answer?;
                let path = answer.strip_prefix("pushed ");
                path.map(String::from).context("the copy is incomplete")
            })
        })();
        // The script ends by itself after its last answer.
        if pushed.is_err() || !ended_within(&mut child, END_MAX) {
            end(&mut child, true);
        }
        pushed.map_err(|error| match stderr_tail.and_then(|tail| tail.take()) {
            Some(said) => anyhow!("{error}: {said}"),
            None => error,
        })
    }
}

fn next_line(
    lines: &Receiver<String>,
    within: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<String> {
    let until = Instant::now() + within;
    loop {
        match lines.recv_timeout(PAUSE) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Disconnected) => bail!("the script ended"),
            Err(RecvTimeoutError::Timeout) if interrupt.is_set() => bail!("interrupted"),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                bail!("no answer within {} s", within.as_secs());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Prefix of each answer of the script, because a `.bashrc` may print other lines.
const ANSWER: &str = "tcpcost-push: ";

/// Script for a POSIX shell, in one line. It prints the architecture, and whether the copy is there. If not, it reads the binary
/// from standard input.
fn script(sha256: &str) -> String {
    format!(
        "umask 077; a() {{ echo \"{ANSWER}$*\"; }}; a \"$(uname -m)\"; \
        d=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/tcpcost/{sha256}\"; f=\"$d/tcpcost\"; n=\"$d/tcpcost.$$\"; \
        is_whole() {{ case \"$(sha256sum <\"$1\")\" in {sha256}*) return 0;; esac; return 1; }}; \
        if [ -x \"$f\" ] && is_whole \"$f\"; then a \"present $f\"; exit 0; fi; a absent; \
        mkdir -p \"$d\" && cat >\"$n\" && is_whole \"$n\" && chmod 700 \"$n\" && mv \"$n\" \"$f\" && a \"pushed $f\" && exit 0; \
        rm -f \"$n\"; a failed; exit 1"
    )
}
