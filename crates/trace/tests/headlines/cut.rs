//! Device that loses every frame for some time, or every large one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use tcpcost_link::{Device, Frame, Offloads, Source};

/// Wrapper that loses frames sent or received between the two times, and frames longer than `most` bytes at any time.
pub struct Cut<D> {
    pub inner: D,
    pub times: [Instant; 2],
    pub most: usize,
}

impl<D> Cut<D> {
    fn is_cut(&self, now: Instant) -> bool {
        let [from, until] = self.times;
        (from..until).contains(&now)
    }
}

impl<F: Frame, D: Device<F>> Device<F> for Cut<D> {
    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        if self.is_cut(now) {
            frames.clear();
        }
        frames.retain(|frame| frame.len() <= self.most);
        self.inner.send(frames, now)
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        let held = frames.len();
        self.inner.receive(source, frames, max, now)?;
        if self.is_cut(now) {
            frames.truncate(held);
        }
        let received = frames.split_off(held);
        frames.extend(
            received
                .into_iter()
                .filter(|frame| frame.len() <= self.most),
        );
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }
}
