//! `struct packetdrill_interface` (packetdrill.h): raw pointers in, calls of `calls`, errno out.
//!
//! packetdrill has two threads: one runs the script, the other makes calls that block. Time passes
//! only when one of them asks for the time. That call then waits until a blocked call of the other
//! thread has got what it waited for, or waits again.

#![allow(unsafe_code, reason = "the interface that packetdrill calls is C")]

mod pointers;
mod preloaded;
mod readiness;
mod reading;
mod shim;
mod sockets;
mod time;
mod writing;

use std::ffi::{c_char, c_void};

use readiness::{epoll_create, epoll_ctl, epoll_wait, poll};
use reading::{read, readv, recv, recvfrom, recvmsg};
use shim::shim;
use sockets::{
    accept, bind, close, connect, fcntl, get_option, ioctl, listen, set_option, shutdown, socket,
};
use time::{gettimeofday, netdev_receive, netdev_send, usleep};
use writing::{pipe, send, sendmsg, sendto, splice, write, writev};

extern "C" fn free(_: *mut c_void) {}

/// Functions in the order of packetdrill.h, after the user's pointer.
#[repr(C)]
pub struct Interface([*const c_void; 33]);

/// Fills in the functions; packetdrill calls this first.
///
/// # Safety
/// `interface` points to a `struct packetdrill_interface`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(_: *const c_char, interface: *mut Interface) {
    shim();
    let functions = [
        std::ptr::null(),
        free as *const c_void,
        socket as *const c_void,
        bind as *const c_void,
        listen as *const c_void,
        accept as *const c_void,
        connect as *const c_void,
        read as *const c_void,
        readv as *const c_void,
        recv as *const c_void,
        recvfrom as *const c_void,
        recvmsg as *const c_void,
        write as *const c_void,
        writev as *const c_void,
        send as *const c_void,
        sendto as *const c_void,
        sendmsg as *const c_void,
        fcntl as *const c_void,
        ioctl as *const c_void,
        close as *const c_void,
        shutdown as *const c_void,
        get_option as *const c_void,
        set_option as *const c_void,
        poll as *const c_void,
        netdev_send as *const c_void,
        netdev_receive as *const c_void,
        usleep as *const c_void,
        gettimeofday as *const c_void,
        epoll_create as *const c_void,
        epoll_ctl as *const c_void,
        epoll_wait as *const c_void,
        pipe as *const c_void,
        splice as *const c_void,
    ];
    // SAFETY: as the caller promises.
    unsafe { interface.write(Interface(functions)) };
}
