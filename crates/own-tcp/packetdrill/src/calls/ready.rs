//! Readiness of a descriptor: poll and epoll.

use libc::EINVAL;
use tcpcost_tcp::{Connection, State};

use super::Failure::Errno;
use super::epoll::Epoll;
use super::{Result, Socket, Sockets};

impl Sockets {
    /// Events among `events` that have occurred.
    pub fn poll(&mut self, fd: i32, events: i16) -> i16 {
        let Ok(descriptor) = self.get(fd) else {
            return libc::POLLNVAL;
        };
        match descriptor.socket {
            Socket::Fresh(_) if matches!(descriptor.deferred, Some(Some(_))) => {
                libc::POLLOUT & events
            }
            Socket::Fresh(_) => libc::POLLOUT | libc::POLLHUP,
            Socket::Listener(_) | Socket::Epoll(_) | Socket::Pipe(_) => 0,
            Socket::Connection { id, .. } => {
                let has_room = self.has_room(fd);
                let has_reports = self.has_reports(fd);
                let Some(connection) = self.host.endpoint.connection(id) else {
                    return libc::POLLNVAL;
                };
                let mut found = 0;
                let finished = connection.is_finished();
                if connection.readable() > 0 || finished {
                    found |= libc::POLLIN;
                }
                if matches!(
                    connection.state(),
                    State::CloseWait | State::Closing | State::LastAck | State::TimeWait
                ) {
                    found |= libc::POLLRDHUP;
                }
                if has_room && may_write(connection) {
                    found |= libc::POLLOUT;
                }
                if has_reports {
                    found |= libc::POLLERR;
                }
                if connection.ended().is_some() {
                    found |= libc::POLLERR | libc::POLLOUT | libc::POLLIN;
                }
                if connection.state() == State::Closed {
                    found |= libc::POLLHUP;
                }
                found & (events | libc::POLLERR | libc::POLLHUP)
            }
        }
    }
    /// True if the send buffer is writable. Otherwise notes that a wake-up is needed.
    fn has_room(&mut self, fd: i32) -> bool {
        let (Some(view), Ok(descriptor)) = (self.view(fd), self.get(fd)) else {
            return false;
        };
        let has_room = descriptor.buffer.is_writable(&view);
        descriptor.buffer.full |= !has_room;
        has_room
    }

    fn has_reports(&mut self, fd: i32) -> bool {
        self.get(fd).is_ok_and(|found| !found.reports.is_empty())
    }

    pub fn epoll_create(&mut self) -> i32 {
        let config = crate::sysctl::config();
        self.add(Socket::Epoll(Epoll::default()), config)
    }

    pub fn epoll_ctl(
        &mut self,
        epfd: i32,
        call: i32,
        fd: i32,
        events: u32,
        data: u64,
    ) -> Result<i64> {
        self.get(fd)?;
        let epoll = self.epoll(epfd)?;
        match (call, epoll.contains(fd)) {
            (libc::EPOLL_CTL_ADD, true) => return Err(Errno(libc::EEXIST)),
            (libc::EPOLL_CTL_ADD, false) | (libc::EPOLL_CTL_MOD, true) => {
                epoll.set(fd, events, data);
            }
            (libc::EPOLL_CTL_DEL, true) => {
                epoll.remove(fd);
            }
            (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, false) => {
                return Err(Errno(libc::ENOENT));
            }
            _ => return Err(Errno(EINVAL)),
        }
        Ok(0)
    }

    /// Events with their data, at most `max`.
    pub fn epoll_wait(&mut self, epfd: i32, max: usize) -> Result<Vec<(u32, u64)>> {
        let mut epoll = std::mem::take(self.epoll(epfd)?);
        let found = epoll.wait(max, |fd| self.poll(fd, i16::MAX) as u32);
        *self.epoll(epfd)? = epoll;
        Ok(found)
    }

    fn epoll(&mut self, epfd: i32) -> Result<&mut Epoll> {
        match &mut self.get(epfd)?.socket {
            Socket::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno(EINVAL)),
        }
    }

    /// Puts a descriptor on the ready lists of all epolls.
    pub(super) fn wake(&mut self, fd: i32) {
        self.epolls().for_each(|epoll| epoll.wake(fd));
    }

    /// Removes a closed descriptor from all epolls.
    pub(super) fn forget(&mut self, fd: i32) {
        self.epolls().for_each(|epoll| {
            epoll.remove(fd);
        });
    }

    fn epolls(&mut self) -> impl Iterator<Item = &mut Epoll> {
        (self.descriptors.values_mut()).filter_map(|descriptor| match &mut descriptor.socket {
            Socket::Epoll(epoll) => Some(epoll),
            _ => None,
        })
    }
}

fn may_write(connection: &Connection) -> bool {
    matches!(
        connection.state(),
        State::Established | State::CloseWait | State::SynReceived
    )
}
