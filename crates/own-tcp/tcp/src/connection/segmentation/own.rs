//! Segmentation rule of another crate, applied after the built-in rules.

use std::fmt;

use super::{Cut, SendView};

/// Rule that sends less than the built-in rules, or waits for an acknowledgement.
pub trait OwnCut: fmt::Debug + Send + Sync {
    /// Returns how many of `bytes` leave now as one unit. `bytes` is what the built-in rules would
    /// send: whole segments, except at the end of the queue. A larger result counts as `bytes`; a
    /// smaller one is rounded down to whole segments, at least one. 0 waits for the next
    /// acknowledgement; if nothing is in flight, 0 sends one segment.
    fn cut(&self, bytes: u32, view: &SendView) -> u32;
}

/// Rule of another crate. Two are equal if they have the same address.
#[derive(Clone, Copy, Debug)]
pub struct OwnSegmentation(pub &'static dyn OwnCut);

impl PartialEq for OwnSegmentation {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for OwnSegmentation {}

impl OwnSegmentation {
    #[cold]
    pub(super) fn cut(self, bytes: u32, view: &SendView) -> Cut {
        let mss = view.mss.max(1);
        match self.0.cut(bytes, view) {
            0 if view.in_flight => Cut::Wait,
            wanted if wanted >= bytes => Cut::Send(bytes),
            wanted => Cut::Send((wanted - wanted % mss).max(mss).min(bytes)),
        }
    }
}
