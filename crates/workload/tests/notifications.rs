//! MSG_ZEROCOPY when the kernel has little or no room for notifications (ENOBUFS), in a network
//! namespace of the test's own, since the room is a sysctl.

mod common;

use std::fs;
use std::io;

use common::{exchange, settings};
use tcpcost_study::Quantity as Q;

/// Moves this thread, and those it will start, to a new network namespace with loopback up.
fn new_namespace() -> io::Result<()> {
    // SAFETY: unshare takes no pointers and changes the calling thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: socket takes no pointers; ifreq is plain data for which all zeroes is valid, has a
    // terminated name and lives through the call; the descriptor is closed once.
    let result = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let result = libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw mut request);
        libc::close(fd);
        result
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends 3 MB by reference with `room` bytes for notifications; gives the counts of the sender.
/// `None` where the namespace or the sysctl is not to be had.
fn send_with_room(room: &'static str) -> Option<tcpcost_study::Counts> {
    std::thread::spawn(move || {
        let made = new_namespace().and_then(|()| fs::write("/proc/sys/net/core/optmem_max", room));
        if let Err(error) = made {
            println!("skipped: a namespace with its own net.core.optmem_max: {error}");
            return None;
        }
        let settings = settings(&[("send_with", "zerocopy"), ("check", "on"), ("flows", "2")]);
        let ends = exchange(&settings, 1, Q::PayloadBytesSent, 3_000_000);
        Some(ends.client.totals())
    })
    .join()
    .unwrap()
}

#[test]
fn without_room_for_a_notification_the_bytes_go_by_copy() {
    if let Some(totals) = send_with_room("100") {
        assert_eq!(totals[&Q::ZerocopyCompletions], 0, "{totals:?}");
    }
}

#[test]
fn with_room_for_few_the_sender_waits_for_completions() {
    // 700 bytes are room for one or a few notifications, whatever the size of an skb.
    if let Some(totals) = send_with_room("700") {
        assert!(totals[&Q::ZerocopyCompletions] > 0, "{totals:?}");
    }
}
