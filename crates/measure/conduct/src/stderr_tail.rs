//! The last lines that a program wrote to its standard error, for the message about the program's end.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tcpcost_counts::Printable;

/// Limit on the lines that are shown. If ssh fails behind jump hosts, each hop writes a line.
const LINES: usize = 4;
/// Limit on the bytes that are kept.
const BYTES: usize = 1024;
/// Limit on the wait for the rest of the output of a process that has ended. Its pipe stays open if a child has it.
const REST_MAX: Duration = Duration::from_secs(1);

/// The last bytes of a standard error.
pub struct StderrTail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

impl StderrTail {
    /// Reads the pipe on a thread of its own.
    pub fn read(mut pipe: impl Read + Send + 'static) -> StderrTail {
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let shared = Arc::clone(&kept);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; BYTES];
            loop {
                match pipe.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => {
                        let mut kept = lock(&shared);
                        kept.extend(&bytes[..count]);
                        let surplus = kept.len().saturating_sub(BYTES);
                        kept.drain(..surplus);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        StderrTail { kept, reader }
    }

    /// Returns the last lines since the previous call, joined to one line. `None` if there are none. Call it when the process has
    /// ended.
    pub fn take(&self) -> Option<String> {
        let until = Instant::now() + REST_MAX;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let bytes: Vec<u8> = lock(&self.kept).drain(..).collect();
        let lines = bytes.split(|&byte| byte == b'\n');
        let lines: Vec<String> = lines
            .map(|line| Printable::of_bytes(line.trim_ascii()).to_string())
            .filter(|line| !line.is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        (!last.is_empty()).then(|| last.join("; "))
    }
}

fn lock(kept: &Mutex<VecDeque<u8>>) -> MutexGuard<'_, VecDeque<u8>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_returned_once_and_without_control_characters() {
        let written = "1\n2\n3\n\n4\n\u{1b}[31m5\r\n";
        let tail = StderrTail::read(written.as_bytes());
        assert_eq!(tail.take().unwrap(), "2; 3; 4; ␛[31m5");
        assert_eq!(tail.take(), None);
    }

    #[test]
    fn of_a_line_without_an_end_the_last_bytes_are_kept() {
        let written = [b"x".repeat(3 * BYTES), b"end".to_vec()].concat();
        let tail = StderrTail::read(std::io::Cursor::new(written));
        let taken = tail.take().unwrap();
        assert_eq!(taken.len(), BYTES);
        assert!(taken.ends_with("xend"));
    }
}
