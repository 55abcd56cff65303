//! The reader's read acknowledges (Klemkow 2020; OpenBSD's tcp_input.c 1.366, backed out before
//! 6.9). Its guards, a count, half the window and the delay, are those of `every`.

use super::Read;

/// 4.4BSD's tcp_output, which every read calls: a window that can grow by two segments or by half
/// the buffer is worth an acknowledgement.
pub(super) fn is_due(read: &Read) -> bool {
    let growth = read.window_new.saturating_sub(read.window_known);
    let worth = (2 * read.full_segment_bytes).min(read.buffer / 2);
    growth >= worth.max(1) || read.has_reopened()
}
