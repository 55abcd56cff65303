//! Copies the running binary to hosts, each by the connection that its agent will have: no other program there is needed
//! than a shell with `cat`, `mkdir`, `mv` and `sha256sum`.
//!
//! It is put into a directory that is called after its SHA-256, which is checked there, so that what runs is what was sent,
//! and a host that has it already gets nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tcpcost_signals::Interrupt;
use tcpcost_study::{HostName, Reach, Topology};

use super::hear::excerpt;
use super::last_words::LastWords;
use super::launcher::Launchers;
use super::nodes::AskError;
use super::reap::{end, ended_within};

/// Hosts at a time: each is a process here, and all share this host's link.
const AT_ONCE: usize = 16;
/// A copy of some 15 MB over a slow line takes minutes.
const COPY_MAX: Duration = Duration::from_secs(600);
/// The script's three answers, after what the shell there greets with.
const SAID_BYTES_MAX: u64 = 1 << 20;
/// The script ends with its last answer.
const END_MAX: Duration = Duration::from_secs(2);
/// Between two looks at whether the run was asked to stop.
const PAUSE: Duration = Duration::from_millis(100);

impl Launchers {
    /// The command that copies the binary to a host, if that was asked for.
    pub(super) fn copying(&self, host: HostName, reach: &Reach) -> Option<Command> {
        self.pushed.as_ref()?;
        let binary = Binary::own().ok()?;
        Some(self.at(host, reach, &["sh", "-c", &script(&binary.sha256)]))
    }

    /// Copies the binary to all hosts that are reached by another program, if that was asked for and as far as they
    /// have not got it.
    ///
    /// # Errors
    /// The first host that could not be reached, has another architecture, or did not get it whole.
    pub(super) fn push(&self, topology: &Topology, interrupt: &Interrupt) -> Result<(), AskError> {
        let Some(pushed) = &self.pushed else {
            return Ok(());
        };
        let mut missing: Vec<(HostName, &Reach)> = Vec::new();
        {
            let known = pushed.lock().unwrap_or_else(PoisonError::into_inner);
            for host in &topology.hosts {
                if let Reach::Attach(_) = host.reach {
                    let text =
                        "push: its agent runs already: leave push=on out, or reach it by exec:";
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

    /// Where it is at the host then.
    fn push(
        &self,
        mut shell: Command,
        silence_max: Duration,
        interrupt: &Interrupt,
    ) -> Result<String, String> {
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        tcpcost_signals::unblocked(&mut shell).process_group(0);
        let mut child = shell
            .spawn()
            .map_err(|error| format!("start {}: {error}", shell.get_program().to_string_lossy()))?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let last_words = child.stderr.take().map(LastWords::hear);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let said = BufReader::new(stdout.take(SAID_BYTES_MAX));
            for line in said.lines().map_while(Result::ok) {
                // What the shell there greets with is no answer.
                let Some(answer) = line.strip_prefix(ANSWER) else {
                    continue;
                };
                if sender.send(answer.to_string()).is_err() {
                    return;
                }
            }
        });
        let next = |within| next_line(&lines, within, interrupt);
        let told = (|| -> Result<String, String> {
            let (machine, there) = (next(silence_max)?, next(silence_max)?);
            let here = tcpcost_host::machine::host().machine;
            if machine != here {
                let machine = excerpt(&machine);
                return Err(format!("it is {machine}, and this program is for {here}"));
            }
            if let Some(path) = there.strip_prefix("present ") {
                return Ok(path.to_string());
            }
            std::thread::scope(|scope| {
                // On a thread, so that a host which takes nothing does not keep the command from noticing.
                let bytes = &self.bytes[..];
                scope.spawn(move || drop(stdin.write_all(bytes)));
                let answer = next(COPY_MAX);
                if answer.is_err() {
                    end(&mut child, true);
                }
                let answer = answer?;
                let path = answer.strip_prefix("pushed ");
                path.map(String::from)
                    .ok_or_else(|| "it did not arrive whole".to_string())
            })
        })();
        // One that has said all ends by itself.
        if told.is_err() || !ended_within(&mut child, END_MAX) {
            end(&mut child, true);
        }
        told.map_err(|error| match last_words.and_then(|words| words.take()) {
            Some(said) => format!("{error}: {said}"),
            None => error,
        })
    }
}

fn next_line(
    lines: &Receiver<String>,
    within: Duration,
    interrupt: &Interrupt,
) -> Result<String, String> {
    let until = Instant::now() + within;
    loop {
        match lines.recv_timeout(PAUSE) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Disconnected) => return Err("it ended".to_string()),
            Err(RecvTimeoutError::Timeout) if interrupt.is_set() => {
                return Err("interrupted".to_string());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() >= until => {
                return Err(format!("no answer within {} s", within.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Begins each answer of the script: a `.bashrc` may print lines of its own.
const ANSWER: &str = "tcpcost-push: ";

/// One line for a POSIX shell: tells the architecture, and whether the binary is there; else takes it from standard input.
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
