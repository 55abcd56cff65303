//! Waits that end.

use std::time::{Duration, Instant};

/// Asks until there is an answer, a minute at most.
///
/// # Panics
/// When the minute is over, with what was waited for.
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

/// Tries again where eBPF programs missed something (`None`), a few times at most.
///
/// Kernels of some providers run no tracing program while a task of theirs is current (seen on 6.18: the virtual
/// machine's own agent). What a softirq does in that time, having interrupted such a task, passes unseen: ftrace had
/// exactly as many packets more. Beside other load one transfer of 9,400 packets in six is hit.
///
/// # Panics
/// When the last try missed something, too: then the programs are wrong.
#[track_caller]
pub fn unless_missed<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    (0..MISSES)
        .find_map(|_| attempt())
        .unwrap_or_else(|| panic!("eBPF missed something {MISSES} times in a row"))
}

/// At one miss in four tries, a false alarm in 10^6.
const MISSES: u32 = 10;
/// As good as never, also on a machine that is busy with other things.
const LONGEST: Duration = Duration::from_secs(60);
/// So long that asking takes no CPU to speak of.
const PAUSE: Duration = Duration::from_millis(5);
