//! Acknowledgement by the application's read (Klemkow 2020; OpenBSD's tcp_input.c 1.366, reverted
//! before 6.9). Its limits (a count, half the window and the delay) are those of `every`.

use super::Read;

/// True if the window can grow by two segments or half the buffer, as in 4.4BSD's `tcp_output`,
/// which every read calls.
pub(super) fn is_due(read: &Read) -> bool {
    let growth = read.window_new.saturating_sub(read.window_known);
    let worth = (2 * read.full_segment_bytes).min(read.buffer / 2);
    growth >= worth.max(1) || read.has_reopened()
}
