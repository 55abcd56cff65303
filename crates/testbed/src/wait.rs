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

/// As good as never, also on a machine that is busy with other things.
const LONGEST: Duration = Duration::from_secs(60);
/// So long that asking takes no CPU to speak of.
const PAUSE: Duration = Duration::from_millis(5);
