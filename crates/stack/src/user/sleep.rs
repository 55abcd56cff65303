//! Sleeping until there is something to do.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use tcpcost_link::Device;

use super::{UserStack, Wire};

impl<D: Device<Wire>> UserStack<D> {
    /// Sleeps until a packet comes, a timer is due or `deadline` is there.
    pub(super) fn sleep(&self, deadline: Option<Instant>) -> io::Result<()> {
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
        if timeout == Some(Duration::ZERO) {
            return Ok(());
        }
        let Some(descriptor) = self.device.descriptor() else {
            // Nothing to wait on: let others run, and look again.
            std::thread::yield_now();
            return Ok(());
        };
        let events = self.interest();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut fds = [PollFd::from_borrowed_fd(descriptor, events)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What a sleep is to end by: room for what the device had no room for, or kept for want of it.
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
