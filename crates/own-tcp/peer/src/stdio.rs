//! Standard input and output as the two directions of a connection (`--service stdio`).

use std::io::{self, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use tcpcost_counts::{Guard, TextForm};

/// Standard input and output as one socket.
pub struct Stdio {
    output: JoinHandle<io::Result<u64>>,
}

impl Stdio {
    /// Makes the socket to relay. Two threads copy, because a pipe or terminal that other processes share must not be
    /// made non-blocking, and epoll takes no file.
    ///
    /// # Errors
    /// The limit of sockets or threads is reached.
    pub fn open() -> io::Result<(OwnedFd, Self)> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let mut writer = far.try_clone()?;
        let input = move || {
            // Ends with the input, or with the connection.
            let _ = copy(&mut io::stdin().lock(), &mut writer);
            let _ = writer.shutdown(Shutdown::Write);
        };
        std::thread::Builder::new()
            .name("input".to_string())
            .spawn(input)?;
        let mut far = far;
        let output = move || {
            let stdout = io::stdout();
            let copied = if stdout.is_terminal() {
                // The other end may send control characters.
                copy(&mut far, &mut Guard::new(stdout, TextForm::Lines))
            } else {
                copy(&mut far, &mut stdout.lock())
            };
            if copied.is_err() {
                // Standard output is closed: the connection's next byte fails.
                let _ = far.shutdown(Shutdown::Both);
            }
            copied
        };
        let output = std::thread::Builder::new()
            .name("output".to_string())
            .spawn(output)?;
        Ok((near.into(), Self { output }))
    }

    /// Waits until all received bytes are written.
    ///
    /// # Errors
    /// Standard output could not be written.
    pub fn finish(self) -> io::Result<()> {
        match self.output.join() {
            Ok(written) => written.map(drop),
            Err(_) => Err(io::Error::other("the thread for standard output panicked")),
        }
    }
}

/// Copies like `std::io::copy`, but writes each read at once: the input may be typed.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let (mut buffer, mut copied) = (vec![0; 1 << 16], 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(bytes) => {
                to.write_all(&buffer[..bytes])?;
                to.flush()?;
                copied += bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
