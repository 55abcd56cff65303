//! Result of one start of a guest: its lines, and how it ended.

use std::path::Path;
use std::time::Duration;

use crate::running::{Running, Silence, end_of};

/// A line from a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line that the program, or its init, printed.
    Printed(String),
    /// A line of a results file: name of the file, and the line.
    ResultsFile(String, String),
}

/// End of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootEnd {
    /// The program ended with this exit code, and all results were sent.
    Done(i32),
    /// The program was ended by a signal; the status in words.
    Killed(String),
    /// The guest ended before its program did: it panicked, or its init failed.
    Early,
    /// The guest had not ended at the time limit: it hangs, or the limit was too short.
    Late,
    /// The caller asked to stop.
    Stopped,
}

/// Result of a guest that was booted or restored.
#[derive(Debug, Clone)]
pub struct Boot {
    /// Release of its kernel; `None` if none came up.
    pub release: Option<String>,
    /// Lines that the guest sent.
    pub lines: Vec<Line>,
    /// How it ended.
    pub ended: BootEnd,
    /// Last lines of its console, and of QEMU's errors.
    pub last_words: Vec<String>,
    /// Time from the start of QEMU to its end.
    pub took: Duration,
}

impl Boot {
    /// Description of the failure in one line, with the guest's last words; `None` if the program
    /// ended.
    pub fn failure(&self) -> Option<String> {
        let took = self.took.as_secs();
        let what = match &self.ended {
            BootEnd::Done(_) => return None,
            BootEnd::Killed(status) => format!("the program in the guest ended by {status}"),
            BootEnd::Early if self.release.is_some() => {
                format!("the guest ended after {took} s, before it was done")
            }
            BootEnd::Early => format!("the guest did not come up and ended after {took} s"),
            BootEnd::Late if self.release.is_some() => {
                format!("the guest was not done after {took} s and was ended")
            }
            BootEnd::Late => format!("the guest did not come up within {took} s and was ended"),
            BootEnd::Stopped => "the guest was stopped".to_string(),
        };
        let words = self.last_words.join(" | ");
        Some(match words.is_empty() {
            true => format!("{what}; nothing was on its console"),
            false => format!("{what}; its last words: {words}"),
        })
    }
}

impl Boot {
    /// Result of a guest of which nothing is known yet; `release` is known of a restored one.
    pub(crate) fn new(release: Option<String>) -> Boot {
        Boot {
            release,
            lines: Vec::new(),
            ended: BootEnd::Early,
            last_words: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Handles the guest's lines until it ends.
    pub(crate) fn follow(
        mut self,
        mut running: Running,
        console: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Boot {
        let silence = loop {
            match running.line(stop) {
                Ok(line) => self.take(&line),
                Err(silence) => break silence,
            }
        };
        self.end(running, silence, console);
        self
    }

    /// Sets how the guest ended, and its last words.
    pub(crate) fn end(&mut self, running: Running, silence: Silence, console: &Path) {
        match silence {
            // A guest that was done is so even if QEMU was slow to end.
            _ if matches!(self.ended, BootEnd::Done(_) | BootEnd::Killed(_)) => {}
            Silence::Ended => {}
            Silence::Late => self.ended = BootEnd::Late,
            Silence::Stopped => self.ended = BootEnd::Stopped,
        }
        self.took = running.began.elapsed();
        let errors = running.end();
        self.last_words = last_words(&end_of(console, CONSOLE_BYTES), &errors);
    }

    /// Handles a line from the guest.
    pub(crate) fn take(&mut self, line: &str) {
        let (what, text) = line.split_once(' ').unwrap_or((line, ""));
        match what {
            "up" => self.release = Some(text.to_string()),
            "said" => self.lines.push(Line::Printed(text.to_string())),
            "of" => {
                let (name, text) = text.split_once(' ').unwrap_or((text, ""));
                self.lines
                    .push(Line::ResultsFile(name.to_string(), text.to_string()));
            }
            "end" => {
                let killed = || BootEnd::Killed(text.to_string());
                self.ended = text.parse().map_or_else(|_| killed(), BootEnd::Done);
            }
            // A line of the firmware, before the kernel has the port.
            _ => {}
        }
    }
}

/// Bytes at the end of a console in which last words are looked for.
const CONSOLE_BYTES: u64 = 64 << 10;

/// Last meaningful lines: without terminal control characters (the firmware begins with them), and
/// without stack and registers, which a panic prints after its reason.
fn last_words(console: &str, errors: &[String]) -> Vec<String> {
    const MOST: usize = 6;
    let clean = |line: &str| -> String {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        line.trim().to_string()
    };
    let console = console.lines().map(clean);
    let lines: Vec<String> = console
        .chain(errors.iter().map(|line| clean(line)))
        .filter(|line| !line.is_empty() && !is_of_a_dump(line))
        .collect();
    lines[lines.len().saturating_sub(MOST)..].to_vec()
}

/// True for lines of a stack, of registers and of the machine's name: Linux's `arch/x86/kernel/dumpstack.c` and
/// `arch/arm64/kernel/process.c` print them. The line of the instruction (`RIP:`, `pc :`) is none of them.
fn is_of_a_dump(line: &str) -> bool {
    const BEGIN: [&str; 15] = [
        "---[",
        "Call ",
        "Code:",
        "CR2:",
        "CS:",
        "DR",
        "FS:",
        "Hardware name:",
        "Kernel Offset:",
        "Modules linked",
        "PKRU:",
        "RSP:",
        "lr :",
        "pstate:",
        "sp :",
    ];
    let said = line.split_once("] ").map_or(line, |(_, said)| said).trim();
    // A number with a colon names a register: RAX:, R08:, x29:.
    let is_register = said.split_once(':').is_some_and(|(name, _)| {
        let of_x86 = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
        let x86 = name.strip_prefix('R').filter(|rest| *rest != "IP");
        let arm64 = name.strip_prefix('x');
        x86.is_some_and(|rest| rest.len() <= 2 && rest.chars().all(of_x86))
            || arm64.is_some_and(|number| number.parse::<u8>().is_ok())
    });
    let is_of_a_stack = said.contains("TASK>")
        || said.contains("+0x") && !["RIP:", "pc :"].iter().any(|begin| said.starts_with(begin));
    is_register || is_of_a_stack || BEGIN.iter().any(|begin| said.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> Boot {
        Boot {
            took: Duration::from_secs(9),
            ..Boot::new(None)
        }
    }

    #[test]
    fn a_guests_lines_are_its_kernel_what_it_said_its_results_and_its_end() {
        let mut boot = boot();
        for line in [
            "SeaBIOS",
            "up 6.1.0-x",
            "said a b",
            "of r.jsonl {\"a\": 1}",
            "end 3",
        ] {
            boot.take(line);
        }
        assert_eq!(boot.release.as_deref(), Some("6.1.0-x"));
        let of = Line::ResultsFile("r.jsonl".into(), "{\"a\": 1}".into());
        assert_eq!(boot.lines, [Line::Printed("a b".into()), of]);
        assert_eq!(boot.ended, BootEnd::Done(3));
        assert_eq!(boot.failure(), None);
        boot.take("end signal: 9 (SIGKILL)");
        assert!(boot.failure().unwrap().contains("SIGKILL"));
    }

    #[test]
    fn a_guest_that_panics_tells_its_last_words() {
        let console = "\u{1b}cSeaBIOS\n\n[ 1.0] VFS: no root\r\n[ 1.1] Kernel panic - not syncing\n[ 1.2] Call Trace:\n[ 1.2]  panic+0x118/0x2f4\n";
        let boot = Boot {
            last_words: last_words(console, &[]),
            ..boot()
        };
        let told = boot.failure().unwrap();
        assert!(told.starts_with("the guest did not come up"), "{told}");
        assert!(
            told.ends_with("[ 1.0] VFS: no root | [ 1.1] Kernel panic - not syncing"),
            "{told}"
        );
    }

    #[test]
    fn an_oops_is_told_by_its_reason_and_place_without_registers() {
        let console = "[ 5.74] Oops: int3: 0000 [#1] SMP NOPTI
[ 5.74] CPU: 1 UID: 0 PID: 34 Comm: kworker/1:1 Not tainted 7.3.4
[ 5.74] Hardware name: QEMU Standard PC (i440FX + PIIX, 1996)
[ 5.74] RIP: 0010:process_one_work+0x1bd/0x3c0
[ 5.74] Code: e7 e8 e7 1d
[ 5.74] RSP: 0018:ff493a9e4011fe58 EFLAGS: 00000246
[ 5.74] RAX: 0000000000000000 RBX: ff1374fd86a354f0
[ 5.74] R08: 8080808080808080 R09: 0000000000000001
[ 5.74] CR2: 00007fd3470941d0 CR3: 0000000004603000
[ 5.74] Call Trace:
[ 5.74]  worker_thread+0x1af/0x320
[ 5.74] x29: ffff800080d13d70 x28: 0000000000000000
[ 5.74] xfs: no filesystem
[ 5.74] ---[ end trace 0000000000000000 ]---
[ 5.74] Kernel panic - not syncing: Fatal exception in interrupt
";
        let words = last_words(console, &[]);
        let said: Vec<&str> = words.iter().map(|line| &line[7..11]).collect();
        assert_eq!(said, [" Oop", " CPU", " RIP", " xfs", " Ker"], "{words:?}");
    }
}
