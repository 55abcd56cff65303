//! Two ends in memory: packets are moved, nothing is copied. Also across threads.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::{Device, Frame, Offloads, Source};

/// One end of a pair.
pub struct Memory<F> {
    out: Arc<Queue<F>>,
    arrived: Arc<Queue<F>>,
}

struct Queue<F> {
    frames: Mutex<VecDeque<F>>,
    frames_max: usize,
}

/// Two ends; each direction holds at most `frames_max` packets, then sending blocks.
pub fn pair<F: Frame>(frames_max: usize) -> (Memory<F>, Memory<F>) {
    let queue = || {
        Arc::new(Queue {
            frames: Mutex::new(VecDeque::new()),
            frames_max,
        })
    };
    let (a, b) = (queue(), queue());
    (
        Memory {
            out: Arc::clone(&a),
            arrived: Arc::clone(&b),
        },
        Memory { out: b, arrived: a },
    )
}

impl<F: Frame> Device<F> for Memory<F> {
    fn offloads(&self) -> Offloads {
        // Nothing here can break a bit or needs a smaller packet.
        Offloads {
            checksum: true,
            segmentation: true,
        }
    }

    fn send(&mut self, frames: &mut VecDeque<F>, _now: Instant) -> io::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut queue = self
            .out
            .frames
            .lock()
            .map_err(|_| io::Error::other("the other end panicked"))?;
        let room = self.out.frames_max.saturating_sub(queue.len());
        queue.extend(frames.drain(..room.min(frames.len())));
        Ok(())
    }

    fn receive(
        &mut self,
        _source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        _now: Instant,
    ) -> io::Result<()> {
        let mut queue = self
            .arrived
            .frames
            .lock()
            .map_err(|_| io::Error::other("the other end panicked"))?;
        let count = max.min(queue.len());
        frames.extend(queue.drain(..count));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Copied;

    #[test]
    fn a_full_queue_leaves_the_rest_with_the_sender() {
        let (mut a, mut b) = pair(2);
        let now = Instant::now();
        let mut out: VecDeque<Copied> = (0..3u8).map(|n| Copied::from([n].as_slice())).collect();
        a.send(&mut out, now).unwrap();
        assert_eq!(out.len(), 1);
        let mut arrived = VecDeque::new();
        b.receive(&mut Copied::source(), &mut arrived, 1, now)
            .unwrap();
        b.receive(&mut Copied::source(), &mut arrived, 9, now)
            .unwrap();
        let bytes: Vec<u8> = arrived.iter().map(|frame| frame.bytes[0]).collect();
        assert_eq!(bytes, [0, 1]);
    }
}
