//! What a program by which a host is reached says on its standard error, kept for when its end is told.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tcpcost_counts::Printable;

/// Lines that are kept: of a host that cannot be reached by way of others, each has its line.
const LINES: usize = 4;
/// The pipe of a process that has ended is closed, unless a child of its has it.
const REST_MAX: Duration = Duration::from_secs(1);

/// The last lines.
pub struct LastWords {
    lines: Arc<Mutex<VecDeque<Printable>>>,
    reader: JoinHandle<()>,
}

impl LastWords {
    /// Hears them on a thread of its own.
    pub fn hear(pipe: impl Read + Send + 'static) -> LastWords {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let heard = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let line = Printable::of_bytes(line.trim_ascii());
                if line.is_empty() {
                    continue;
                }
                let mut lines = lock(&heard);
                lines.push_back(line);
                if lines.len() > LINES {
                    lines.pop_front();
                }
            }
        });
        LastWords { lines, reader }
    }

    /// What was said since they were last taken, in one line; `None` where nothing was. To be asked once the process has
    /// ended.
    pub fn take(&self) -> Option<String> {
        let until = Instant::now() + REST_MAX;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let lines: Vec<String> = lock(&self.lines)
            .drain(..)
            .map(|line| line.to_string())
            .collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

fn lock(lines: &Mutex<VecDeque<Printable>>) -> MutexGuard<'_, VecDeque<Printable>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_told_once_and_without_control_characters() {
        let said = "1\n2\n3\n\n4\n\u{1b}[31m5\r\n";
        let words = LastWords::hear(said.as_bytes());
        assert_eq!(words.take().unwrap(), "2; 3; 4; ␛[31m5");
        assert_eq!(words.take(), None);
    }
}
