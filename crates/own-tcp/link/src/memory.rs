//! In-memory wire: packets are moved, not copied. Works across threads.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::{Bell, Device, Frame, Offloads, Source};

/// One end of an in-memory wire.
pub struct Memory<F> {
    out: Arc<Queue<F>>,
    arrived: Arc<Queue<F>>,
    /// Our bell and the other end's; `None` if no user sleeps.
    bells: Option<(Arc<Bell>, Arc<Bell>)>,
}

struct Queue<F> {
    state: Mutex<State<F>>,
    frames_max: usize,
}

struct State<F> {
    frames: VecDeque<F>,
    /// True if the receiver found nothing and may be asleep.
    awaited: bool,
    /// True if the sender found no room and may be asleep.
    blocked: bool,
}

impl<F> Queue<F> {
    fn new(frames_max: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                frames: VecDeque::new(),
                awaited: false,
                blocked: false,
            }),
            frames_max,
        })
    }

    fn lock(&self) -> io::Result<std::sync::MutexGuard<'_, State<F>>> {
        self.state
            .lock()
            .map_err(|_| io::Error::other("the other end panicked"))
    }
}

/// Makes two connected ends. Each direction holds at most `frames_max` packets; further packets
/// stay with the sender.
pub fn pair<F: Frame>(frames_max: usize) -> (Memory<F>, Memory<F>) {
    let (a, b) = (Queue::new(frames_max), Queue::new(frames_max));
    let near = Memory {
        out: Arc::clone(&a),
        arrived: Arc::clone(&b),
        bells: None,
    };
    let far = Memory {
        out: b,
        arrived: a,
        bells: None,
    };
    (near, far)
}

/// Makes two connected ends whose users can sleep: each has a [`descriptor`](Device::descriptor).
/// Before a user sleeps on it, the user must receive until nothing comes and then send what is left
/// to send, in this order; otherwise a wake-up may be lost.
///
/// # Errors
/// No descriptors are left.
pub fn waitable_pair<F: Frame>(frames_max: usize) -> io::Result<(Memory<F>, Memory<F>)> {
    let (mut near, mut far) = pair(frames_max);
    let (a, b) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
    near.bells = Some((Arc::clone(&a), Arc::clone(&b)));
    far.bells = Some((b, a));
    Ok((near, far))
}

impl<F> Clone for Memory<F> {
    /// Returns the same end, for another user after this one.
    fn clone(&self) -> Self {
        Self {
            out: Arc::clone(&self.out),
            arrived: Arc::clone(&self.arrived),
            bells: self.bells.clone(),
        }
    }
}

impl<F> Memory<F> {
    fn ring_other(&self) {
        if let Some((_, others)) = &self.bells {
            others.ring();
        }
    }
}

impl<F: Frame> Device<F> for Memory<F> {
    fn offloads(&self) -> Offloads {
        // Memory does not corrupt bits and takes packets of any size.
        Offloads {
            checksum: true,
            segmentation: true,
        }
    }

    fn send(&mut self, frames: &mut VecDeque<F>, _now: Instant) -> io::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let mut queue = self.out.lock()?;
        let room = self.out.frames_max.saturating_sub(queue.frames.len());
        queue.frames.extend(frames.drain(..room.min(frames.len())));
        queue.blocked = !frames.is_empty();
        let rings = std::mem::take(&mut queue.awaited);
        drop(queue);
        if rings {
            self.ring_other();
        }
        Ok(())
    }

    fn receive(
        &mut self,
        _source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        _now: Instant,
    ) -> io::Result<()> {
        let mut queue = self.arrived.lock()?;
        let count = max.min(queue.frames.len());
        frames.extend(queue.frames.drain(..count));
        queue.awaited = count == 0;
        let rings = count > 0 && std::mem::take(&mut queue.blocked);
        if let (0, Some((ours, _))) = (count, &self.bells) {
            // Called under the lock, so no ring for a later packet is lost. A ring for free room
            // may be lost, but the `send` that must follow before any sleep finds the room.
            ours.hear();
        }
        drop(queue);
        if rings {
            self.ring_other();
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.bells.as_ref().map(|(ours, _)| ours.as_fd())
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

    fn rings(end: &Memory<Copied>) -> bool {
        end.bells.as_ref().unwrap().0.is_rung()
    }

    #[test]
    fn who_found_nothing_is_rung_and_so_is_who_found_no_room() {
        let (mut a, mut b) = waitable_pair(1).unwrap();
        let (now, mut arrived) = (Instant::now(), VecDeque::new());
        let frame = || Copied::from([1].as_slice());
        a.send(&mut VecDeque::from([frame()]), now).unwrap();
        assert!(!rings(&b), "nobody has looked yet");
        let mut left = VecDeque::from([frame()]);
        a.send(&mut left, now).unwrap();
        let mut receive = |b: &mut Memory<Copied>| {
            b.receive(&mut Copied::source(), &mut arrived, 9, now)
                .unwrap()
        };
        receive(&mut b);
        assert!(rings(&a), "there is room");
        receive(&mut b);
        a.send(&mut left, now).unwrap();
        assert!(rings(&b), "there is a packet");
        receive(&mut b);
        receive(&mut b);
        assert!(!rings(&b), "heard");
    }
}
