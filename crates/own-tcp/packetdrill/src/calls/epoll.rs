//! epoll instances: watched descriptors, and their new events.

/// An epoll instance.
#[derive(Debug, Default)]
pub struct Epoll {
    items: Vec<Item>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    fd: i32,
    events: u32,
    data: u64,
    /// True if the item is on the ready list: it may have an event.
    news: bool,
}

impl Epoll {
    /// Handles EPOLL_CTL_ADD and EPOLL_CTL_MOD: puts the descriptor on the ready list.
    pub fn set(&mut self, fd: i32, events: u32, data: u64) {
        self.remove(fd);
        self.items.push(Item {
            fd,
            events,
            data,
            news: true,
        });
    }

    pub fn contains(&self, fd: i32) -> bool {
        self.items.iter().any(|item| item.fd == fd)
    }

    pub fn remove(&mut self, fd: i32) -> bool {
        let before = self.items.len();
        self.items.retain(|item| item.fd != fd);
        self.items.len() < before
    }

    /// Puts a descriptor on the ready list.
    pub fn wake(&mut self, fd: i32) {
        for item in self.items.iter_mut().filter(|item| item.fd == fd) {
            item.news = true;
        }
    }

    /// Returns at most `max` events with their data; `poll` returns the events of a descriptor. A
    /// level-triggered descriptor stays on the ready list as long as it has events.
    pub fn wait(&mut self, max: usize, mut poll: impl FnMut(i32) -> u32) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for item in self.items.iter_mut().filter(|item| item.news).take(max) {
            let asked = item.events & !(EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE);
            let always = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
            // 0: disarmed after EPOLLONESHOT.
            let there = match asked {
                0 => 0,
                _ => poll(item.fd) & (asked | always),
            };
            item.news = there != 0 && item.events & (EPOLLET | EPOLLONESHOT) == 0;
            if there != 0 {
                found.push((there, item.data));
                if item.events & EPOLLONESHOT != 0 {
                    item.events = EPOLLONESHOT;
                }
            }
        }
        found
    }
}

const EPOLLET: u32 = libc::EPOLLET as u32;
const EPOLLONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EPOLLEXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: u32 = libc::EPOLLOUT as u32;

    #[test]
    fn edges_are_told_once() {
        let mut epoll = Epoll::default();
        epoll.set(4, OUT | EPOLLET, 7);
        assert_eq!(epoll.wait(9, |_| OUT), [(OUT, 7)]);
        assert_eq!(epoll.wait(9, |_| OUT), []);
        epoll.wake(4);
        assert_eq!(epoll.wait(9, |_| OUT), [(OUT, 7)]);
    }

    #[test]
    fn levels_are_told_while_they_hold() {
        let mut epoll = Epoll::default();
        epoll.set(4, OUT, 7);
        assert_eq!(epoll.wait(9, |_| OUT), [(OUT, 7)]);
        assert_eq!(epoll.wait(9, |_| OUT), [(OUT, 7)]);
        assert_eq!(epoll.wait(9, |_| 0), []);
        assert_eq!(epoll.wait(9, |_| OUT), [], "not before it is woken");
    }

    #[test]
    fn one_shot_is_over_until_it_is_set_again() {
        let mut epoll = Epoll::default();
        epoll.set(4, OUT | EPOLLONESHOT, 7);
        assert_eq!(epoll.wait(9, |_| OUT), [(OUT, 7)]);
        epoll.wake(4);
        assert_eq!(epoll.wait(9, |_| OUT), []);
        epoll.set(4, OUT, 7);
        assert_eq!(epoll.wait(9, |_| OUT), [(OUT, 7)]);
    }
}
