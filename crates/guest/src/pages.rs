//! The guest's free pages, before a trial.
//!
//! Linux keeps free pages for each CPU. Since 6.7 it gives all of them back to the zone where larger blocks are freed in a row with
//! nothing allocated between (`free_high` of mm/page_alloc.c), which a stream does once in a while. What that costs is as many pages as
//! there are, and the trial before has left them: `crr` 800 (1.1 % of a stream of 16 MiB), a boot 300, `rr` none. Given back before
//! the warm-up, each trial begins with none.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;

use crate::init::COUNTS;

/// Sockets that are filled and closed. Each takes five or six blocks of 32 KiB by default, and pages go back from the eighth block in a row on, up
/// to 2016 with each.
const SOCKETS: usize = 16;

/// Makes the kernel give back what free pages its CPU keeps; nothing outside of a guest whose clock counts.
///
/// # Errors
/// A file or a socket cannot be had.
pub fn give_back_pages() -> io::Result<()> {
    if !fs::read_to_string("/proc/cmdline")?.contains(COUNTS) {
        return Ok(());
    }
    let block = [0; 32 << 10];
    let mut pairs = Vec::new();
    for _ in 0..SOCKETS {
        let (mut from, to) = UnixStream::pair()?;
        from.set_nonblocking(true)?;
        // Until it is full.
        while from.write(&block).is_ok_and(|written| written > 0) {}
        pairs.push((from, to));
    }
    Ok(())
}
