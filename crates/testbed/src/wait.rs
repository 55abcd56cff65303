//! Waits that end.

use std::time::{Duration, Instant};

/// Repeats a question until there is an answer, for at most a minute.
///
/// # Panics
/// After a minute, with the description of the wait.
#[track_caller]
pub fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(begin.elapsed() < LONGEST, "waited {LONGEST:?} for {what}");
        std::thread::park_timeout(PAUSE);
    }
}

/// Repeats an attempt in which eBPF programs missed events (`None`), at most ten times.
///
/// Kernels of some providers run no tracing program while one of their own tasks is current (seen
/// on 6.18: the virtual machine's agent). Softirq work that interrupts such a task is not traced:
/// ftrace had exactly as many packets more. With other load on the machine one of six transfers of
/// 9,400 packets is hit.
///
/// # Panics
/// If the last attempt missed events, too: then the programs are wrong.
#[track_caller]
pub fn unless_missed<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    (0..MISSES)
        .find_map(|_| attempt())
        .unwrap_or_else(|| panic!("eBPF missed something {MISSES} times in a row"))
}

/// Limit of attempts. At one miss in four, a false alarm in 10^6.
const MISSES: u32 = 10;
/// Time limit, long enough for a busy machine.
const LONGEST: Duration = Duration::from_secs(60);
/// Pause between questions, long enough to cost little CPU.
const PAUSE: Duration = Duration::from_millis(5);
