//! Calls that ask which descriptors are ready: poll, epoll.

use std::ffi::{c_int, c_void};

use super::shim::{finish, shim};
use crate::calls::Failure;

pub(super) unsafe extern "C" fn poll(
    _: *mut c_void,
    polls: *mut libc::pollfd,
    count: u64,
    timeout: c_int,
) -> c_int {
    // SAFETY: packetdrill's array.
    let polls = unsafe { std::slice::from_raw_parts_mut(polls, count as usize) };
    // Waits or not according to `timeout`, whatever the descriptors' flags.
    let result = shim().call(-1, |sockets| {
        for poll in polls.iter_mut() {
            poll.revents = sockets.poll(poll.fd, poll.events);
        }
        let ready = polls.iter().filter(|poll| poll.revents != 0).count() as c_int;
        if ready == 0 && timeout != 0 {
            Err(Failure::Again)
        } else {
            Ok(ready)
        }
    });
    finish(match result {
        Err(libc::EAGAIN) => Ok(0),
        result => result,
    })
}

pub(super) extern "C" fn epoll_create(_: *mut c_void, _: c_int) -> c_int {
    shim().lock().sockets.epoll_create()
}

pub(super) unsafe extern "C" fn epoll_ctl(
    _: *mut c_void,
    epfd: c_int,
    call: c_int,
    fd: c_int,
    event: *const libc::epoll_event,
) -> c_int {
    // SAFETY: packetdrill's event, which may be null for EPOLL_CTL_DEL.
    let event = unsafe { event.as_ref() };
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    finish(shim().call(epfd, |sockets| {
        sockets.epoll_ctl(epfd, call, fd, events, data)
    }))
}

pub(super) unsafe extern "C" fn epoll_wait(
    _: *mut c_void,
    epfd: c_int,
    events: *mut libc::epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    let found = shim().call(epfd, |sockets| {
        let found = sockets.epoll_wait(epfd, max.max(0) as usize)?;
        if found.is_empty() && timeout != 0 {
            Err(Failure::Again)
        } else {
            Ok(found)
        }
    });
    let found = match found {
        Err(libc::EAGAIN) => Ok(Vec::new()),
        found => found,
    };
    finish(found.map(|found| {
        for (index, &(events_found, u64)) in found.iter().enumerate() {
            let events_found = libc::epoll_event {
                events: events_found,
                u64,
            };
            // SAFETY: packetdrill's array of `max`, and at most that many are found.
            unsafe { events.add(index).write_unaligned(events_found) };
        }
        found.len() as c_int
    }))
}
