//! A rule of somebody else's, from another crate, about what the built-in ones would send.

use std::fmt;

use super::{Cut, SendView};

/// How much less leaves at once, or that it waits for an acknowledgement.
pub trait OwnCut: fmt::Debug + Send + Sync {
    /// The others would send `bytes`, whole segments but for the end of the queue: how many of them
    /// leave now as one unit. More than `bytes` is `bytes`; less than one segment is one, except
    /// that 0 waits for the next acknowledgement, if anything is in flight that will bring one.
    fn cut(&self, bytes: u32, view: &SendView) -> u32;
}

/// One [`OwnCut`], compared by where it is.
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
