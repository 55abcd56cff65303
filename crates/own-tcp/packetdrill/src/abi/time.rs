//! The wire and the clock: time passes only here.

use std::ffi::{c_int, c_longlong, c_void};

use libc::size_t;

use super::pointers::{bytes, room};
use super::shim::{ENDED_US, shim};

pub(super) unsafe extern "C" fn netdev_send(
    _: *mut c_void,
    data: *const c_void,
    len: size_t,
) -> c_int {
    let shim = shim();
    let mut shared = shim.lock();
    // SAFETY: packetdrill's packet.
    shared.sockets.arrive(unsafe { bytes(data, len) });
    drop(shim.notify(shared));
    0
}

/// Advances the time until a packet is sent.
pub(super) unsafe extern "C" fn netdev_receive(
    _: *mut c_void,
    data: *mut c_void,
    len: *mut size_t,
    at: *mut c_longlong,
) -> c_int {
    let shim = shim();
    let mut shared = shim.lock();
    let last = shared.sockets.host.now_us() + PATIENCE_US;
    loop {
        if let Some((sent_us, packet)) = shared.sockets.host.next_sent() {
            // SAFETY: packetdrill's buffer of `*len` bytes.
            unsafe {
                let to = room(data, *len);
                let here = to.len().min(packet.len());
                to[..here].copy_from_slice(&packet[..here]);
                *len = here;
                *at = sent_us as c_longlong;
            }
            return 0;
        }
        if !shared.sockets.tick(last) {
            eprintln!("packetdrill waits for a packet, and nothing will ever be sent");
            std::process::exit(1);
        }
        shared = shim.notify(shared);
    }
}

pub(super) extern "C" fn usleep(_: *mut c_void, us: u32) -> c_int {
    let shim = shim();
    let shared = shim.lock();
    let until = shared.sockets.host.now_us() + u64::from(us);
    let ended = shim.advance(shared, until).ended.take();
    if let Some(thread) = ended {
        await_rest(thread);
    }
    0
}

/// Waits until the thread of an ended call sleeps, so that it can report the end to packetdrill.
/// The script continues without delay and would otherwise overtake it.
fn await_rest(thread: libc::pid_t) {
    let stat = format!("/proc/self/task/{thread}/stat");
    for _ in 0..10_000 {
        let state = std::fs::read_to_string(&stat).unwrap_or_default();
        let state = state
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        if state != Some('R') {
            return;
        }
        std::thread::yield_now();
    }
}

/// Advances the time by 1 µs, unless a blocked call of this thread has just ended.
pub(super) unsafe extern "C" fn gettimeofday(
    _: *mut c_void,
    to: *mut libc::timeval,
    _: *mut c_void,
) -> c_int {
    let shim = shim();
    let now = ENDED_US.take().unwrap_or_else(|| {
        let shared = shim.lock();
        let until = shared.sockets.host.now_us() + 1;
        shim.advance(shared, until).sockets.host.now_us()
    });
    // SAFETY: packetdrill's buffer.
    unsafe {
        (*to).tv_sec = (now / 1_000_000) as libc::time_t;
        (*to).tv_usec = (now % 1_000_000) as libc::suseconds_t;
    }
    0
}

/// Longer than any timer that a script waits for.
const PATIENCE_US: u64 = 3_600_000_000;
