//! What a program by which a host is reached says on its standard error, kept for when its end is told.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tcpcost_counts::Printable;

/// Lines that are shown: of a host that cannot be reached by way of others, each has its line.
const LINES: usize = 4;
/// Bytes that are kept.
const BYTES: usize = 1024;
/// The pipe of a process that has ended is closed, unless a child of its has it.
const REST_MAX: Duration = Duration::from_secs(1);

/// The last bytes that were said.
pub struct LastWords {
    said: Arc<Mutex<VecDeque<u8>>>,
    reader: JoinHandle<()>,
}

impl LastWords {
    /// Hears them on a thread of its own.
    pub fn hear(mut pipe: impl Read + Send + 'static) -> LastWords {
        let said = Arc::new(Mutex::new(VecDeque::new()));
        let heard = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; BYTES];
            loop {
                match pipe.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) => {
                        let mut said = lock(&heard);
                        said.extend(&bytes[..count]);
                        let surplus = said.len().saturating_sub(BYTES);
                        said.drain(..surplus);
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        LastWords { said, reader }
    }

    /// The last lines that were said since the call before, as one line; `None` where nothing was. For a process that has ended.
    pub fn take(&self) -> Option<String> {
        let until = Instant::now() + REST_MAX;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said: Vec<u8> = lock(&self.said).drain(..).collect();
        let lines = said.split(|&byte| byte == b'\n');
        let lines: Vec<String> = lines
            .map(|line| Printable::of_bytes(line.trim_ascii()).to_string())
            .filter(|line| !line.is_empty())
            .collect();
        let last = &lines[lines.len().saturating_sub(LINES)..];
        (!last.is_empty()).then(|| last.join("; "))
    }
}

fn lock(said: &Mutex<VecDeque<u8>>) -> MutexGuard<'_, VecDeque<u8>> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn of_a_line_without_an_end_the_last_bytes_are_kept() {
        let said = [b"x".repeat(3 * BYTES), b"end".to_vec()].concat();
        let words = LastWords::hear(std::io::Cursor::new(said));
        let taken = words.take().unwrap();
        assert_eq!(taken.len(), BYTES);
        assert!(taken.ends_with("xend"));
    }
}
