//! Scale of a window whose SYN was not captured (RFC 7323 §2.2), as what passes bounds it.

use super::Direction;

/// Bounds of the scale of one end's windows.
///
/// From below: the other end never sends beyond the window. From above: the right edge of a window never moves left
/// (RFC 9293 §3.8.6.2.1), so while an end acknowledges and does not read, its window shrinks by what it acknowledges. Where it
/// reads meanwhile the window shrinks less, and the ratio is too large.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scale {
    /// Lower bound, a shift.
    least: u8,
    /// Ratios of bytes to units of the window, by the shift that fits within an eighth.
    fits: [u8; 15],
    /// ACK number and window field of the segment since which the window only shrank.
    from: Option<(u64, u16)>,
    /// Window of the last segment.
    window: u16,
}

/// Largest shift (RFC 7323 §2.3).
const MOST: u8 = 14;

/// Units by which a window must shrink, so that its rounding changes the ratio by less than an eighth.
const UNITS: u16 = 12;

/// Times that a shift must fit: once may be chance.
const FITS: u8 = 3;

impl Scale {
    /// Notes the ACK and the window field of a segment. True if a ratio fitted a shift: then it may be known.
    #[inline]
    pub(crate) fn on_window(&mut self, ack: u64, window: u16) -> bool {
        self.window = window;
        let Some((last_ack, last_window)) = self.from.filter(|(_, last)| window < *last) else {
            self.from = Some((ack, window));
            return false;
        };
        let (bytes, units) = (ack.saturating_sub(last_ack), last_window - window);
        if bytes > 0 && units < UNITS {
            // Small steps add up.
            return false;
        }
        self.from = Some((ack, window));
        bytes > 0 && self.on_ratio(bytes as f64 / f64::from(units))
    }

    #[cold]
    fn on_ratio(&mut self, bytes_per_unit: f64) -> bool {
        let ratio = bytes_per_unit.log2();
        let shift = ratio.round();
        let fits = (0.0..=f64::from(MOST)).contains(&shift) && (ratio - shift).abs() < EIGHTH;
        if fits {
            let fits = &mut self.fits[shift as usize];
            *fits = fits.saturating_add(1);
        }
        fits
    }

    /// True if this many bytes are more than the last window by the lower bound: then the bound is higher.
    #[inline]
    pub(crate) fn is_beyond(&self, bytes: u64) -> bool {
        self.window > 0 && bytes > u64::from(self.window) << self.least
    }

    /// Notes that the other end had this many bytes in flight within the last window.
    #[cold]
    pub(crate) fn on_in_flight(&mut self, bytes: u64) {
        while self.least < MOST && self.is_beyond(bytes) {
            self.least += 1;
        }
    }

    /// Lower bound of what a window stands for, bytes.
    pub(crate) fn least_bytes(&self, window: u16) -> u64 {
        u64::from(window) << self.least
    }

    /// The scale, a shift. `None` until both bounds agree: a reader that reads half of what comes fits twice the unit.
    pub(crate) fn known(&self) -> Option<u8> {
        let smallest = self.fits.iter().position(|fits| *fits >= FITS)? as u8;
        (smallest == self.least).then_some(smallest)
    }
}

/// log2 of nine eighths.
const EIGHTH: f64 = 0.17;

/// Size that any receiver's whole window has, bytes: the smallest buffers of Linux and of others hold twice that.
const WINDOW_LEAST: u64 = 8192;

impl Direction {
    /// Bounds the scale of this end's windows by the other end's data in flight.
    #[inline]
    pub(crate) fn bound_scale(&mut self, in_flight: u64) {
        if self.scale.is_beyond(in_flight) {
            self.scale.on_in_flight(in_flight);
        }
    }

    /// Bounds the scale of this end's windows by an ACK of this end, and keeps it once it is sure.
    pub(super) fn infer_scale(&mut self, ack: u64, window: u16) {
        if self.scale.on_window(ack, window)
            && let Some(shift) = self.scale.known()
        {
            self.window_shift = Some(shift);
            self.window_most = self.window_most.saturating_mul(1 << shift);
        }
    }

    /// True if this end's windows of an unknown scale had room for more than the other end had in flight: they stayed about as
    /// large as ever, so that the reader had read all, and the lower bound of the scale leaves a quarter of them.
    pub(crate) fn was_ample_for(&self, in_flight: u64) -> bool {
        let stayed = u64::from(self.window_least) * 4 >= u64::from(self.window_most) * 3;
        let least = self.scale.least_bytes(self.window_least).max(WINDOW_LEAST);
        stayed && in_flight * 4 <= least * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_rests_shows_the_scale_and_one_that_reads_does_not() {
        let mut scale = Scale::default();
        // A window of 64 KiB with a scale of 7 that fills by 4 KiB an ACK.
        for step in 0..5u64 {
            scale.on_window(10_000 + step * 4096, 512 - step as u16 * 32);
        }
        assert_eq!(scale.known(), None);
        scale.on_in_flight(40_000);
        assert_eq!(scale.known(), Some(7));
        let mut reads = Scale::default();
        for step in 0..5u64 {
            reads.on_window(10_000 + step * 4096, 512);
        }
        assert_eq!(reads.known(), None);
        reads.on_in_flight(40_000);
        assert_eq!((reads.known(), reads.least), (None, 7));
    }
}
