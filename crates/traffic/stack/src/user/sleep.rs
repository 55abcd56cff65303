//! Sleeping until there is something to do.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use tcpcost_link::Device;

use super::{UserStack, Wire};

impl<D: Device<Wire>> UserStack<D> {
    /// Sleeps until a packet comes, a timer is due or `deadline` has come. True if the descriptor
    /// of [`UserStack::wake_by`] is readable.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> io::Result<bool> {
        let due = [
            deadline,
            self.endpoint.next_timeout(),
            self.device.next_event(),
        ];
        let timeout = due
            .into_iter()
            .flatten()
            .min()
            .map(|due| due.saturating_duration_since(Instant::now()));
        let other = self.wakes.as_ref().map(AsFd::as_fd);
        let Some(descriptor) = self.device.descriptor() else {
            // Nothing to wait on: yield, and try again.
            std::thread::yield_now();
            return other.map_or(Ok(false), |other| {
                let mut fds = [PollFd::from_borrowed_fd(other, PollFlags::IN)];
                Ok(rustix::event::poll(&mut fds, Some(&Timespec::default()))? > 0)
            });
        };
        if timeout == Some(Duration::ZERO) && other.is_none() {
            return Ok(false);
        }
        let events = self.interest();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut fds = [
            PollFd::from_borrowed_fd(descriptor, events),
            PollFd::from_borrowed_fd(other.unwrap_or(descriptor), PollFlags::IN),
        ];
        let count = if other.is_some() { 2 } else { 1 };
        rustix::event::poll(&mut fds[..count], timeout.as_ref())?;
        Ok(other.is_some() && !fds[1].revents().is_empty())
    }

    /// Events that end a sleep. Includes room if the stack, or a wrapper of the device, holds
    /// packets.
    fn interest(&self) -> PollFlags {
        if self.out.is_empty() && !self.device.is_blocked() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tcpcost_link::memory::{self, Memory};
    use tcpcost_link::{Frame, Impaired, Impairment};
    use tcpcost_tcp::{Config, Pool};

    use super::*;
    use crate::stack::{SocketOptions, Stack};
    use crate::user::Slabs;

    type Bad = Impaired<Memory<Wire>, Wire>;

    fn stack(device: Bad) -> UserStack<Bad> {
        let addresses = ["10.0.0.1".parse().unwrap()];
        let options = SocketOptions::default();
        UserStack::new(device, &addresses, &Config::default(), &options).unwrap()
    }

    #[test]
    fn a_poll_ends_by_another_descriptor_than_the_devices() {
        let (near, _far) = memory::pair::<Wire>(1);
        let well = Impairment::default();
        let mut stack = stack(Impaired::new(near, well, well, 1));
        let (wakes, wake) = rustix::pipe::pipe().unwrap();
        stack.wake_by(wakes);
        rustix::io::write(&wake, b"x").unwrap();
        assert_eq!(stack.poll(None).unwrap(), 0);
    }

    #[test]
    fn a_sleep_ends_by_room_for_what_a_wrapper_keeps() {
        let (near, mut far) = memory::pair::<Wire>(1);
        let well = Impairment::default();
        let mut stack = stack(Impaired::new(near, well, well, 1));
        assert_eq!(stack.interest(), PollFlags::IN);
        for port in [80, 81] {
            let remote = format!("10.0.0.2:{port}").parse().unwrap();
            stack.connect(remote, 0).unwrap();
        }
        stack.flush().unwrap();
        assert!(stack.out.is_empty(), "the wrapper took both SYNs");
        assert_eq!(stack.interest(), PollFlags::IN | PollFlags::OUT);
        let (mut source, mut arrived) = (Slabs(Pool::default()), VecDeque::new());
        let now = Instant::now();
        far.receive(&mut source, &mut arrived, 9, now).unwrap();
        stack.flush().unwrap();
        assert_eq!(stack.interest(), PollFlags::IN);
        far.receive(&mut source, &mut arrived, 9, now).unwrap();
        assert_eq!(arrived.iter().filter(|frame| !frame.is_empty()).count(), 2);
    }
}
