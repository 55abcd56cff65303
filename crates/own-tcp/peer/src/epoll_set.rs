//! Descriptors that an instance waits for, besides its interface: the bell of new applications and the sockets of its relays.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// An epoll instance with the bell and the sockets.
pub struct EpollSet {
    epoll: OwnedFd,
}

impl EpollSet {
    /// Makes an epoll instance without descriptors.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        use rustix::event::epoll;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll })
    }

    /// Makes an epoll instance with a bell.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn with_bell(bell: &impl AsFd) -> io::Result<Self> {
        use rustix::event::epoll;
        let epoll_set = Self::new()?;
        let (data, events) = (epoll::EventData::new_u64(BELL), epoll::EventFlags::IN);
        epoll::add(&epoll_set.epoll, bell, data, events)?;
        Ok(epoll_set)
    }

    /// Descriptor for [`UserStack::wake_by`](tcpcost_stack::UserStack::wake_by).
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.try_clone()
    }

    /// Adds a socket, whose changes are reported under `token`. Closing the socket removes it.
    ///
    /// # Errors
    /// The kernel's limit of watched descriptors is reached.
    pub fn add(&self, socket: impl AsFd, token: u32) -> io::Result<()> {
        use rustix::event::epoll::{self, EventFlags};
        // Edge-triggered: a full send queue must not keep the loop awake.
        let events = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            epoll::EventData::new_u64(token.into()),
            events,
        )?)
    }

    /// Tokens of the sockets that changed; `None` is the bell.
    ///
    /// # Errors
    /// epoll_wait(2) failed.
    pub fn changes(&self) -> io::Result<Vec<Option<u32>>> {
        use rustix::event::epoll;
        let mut events = Vec::with_capacity(EVENTS);
        let now = rustix::event::Timespec::default();
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&now),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events
            .iter()
            .map(|event: &epoll::Event| u32::try_from(event.data.u64()).ok())
            .collect())
    }
}

/// Data of the bell's event: above every token.
const BELL: u64 = u64::MAX;
/// Limit of events of one call.
const EVENTS: usize = 256;
