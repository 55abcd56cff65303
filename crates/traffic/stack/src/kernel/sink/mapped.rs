//! TCP_ZEROCOPY_RECEIVE: whole pages of payload are mapped instead of copied (net/ipv4/tcp.c,
//! tcp_zerocopy_receive).
//!
//! A page is mapped if it is a whole fragment of an skb: payload that arrived in pages of its own,
//! from a device that splits headers from data, with an MTU that carries whole pages. All other
//! payload is read by copy; the counts show how much.

#![allow(
    unsafe_code,
    reason = "the socket's pages are mapped into memory of ours, and given back"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::stack::{Completions, Moved};

// linux/tcp.h; the crate libc does not have it.
const TCP_ZEROCOPY_RECEIVE: libc::c_int = 35;

/// struct tcp_zerocopy_receive as of Linux 5.12; an older kernel fills the first fields.
#[repr(C)]
#[derive(Default)]
struct Request {
    address: u64,
    length: u32,
    recv_skip_hint: u32,
    inq: u32,
    err: i32,
    copybuf_address: u64,
    copybuf_len: i32,
    flags: u32,
    msg_control: u64,
    msg_controllen: u64,
    msg_flags: u32,
    reserved: u32,
}

/// One mapping, whatever the number of connections: its pages are released after each call.
#[derive(Debug)]
pub(super) struct Mapped {
    /// `None` until there is a socket to map.
    window: Option<Window>,
    len: usize,
    /// Buffer for bytes that cannot be mapped.
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Window {
    /// A number, not a pointer, because the owner of the sink may move it to another thread.
    address: usize,
    len: usize,
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no other code has its address.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.len) };
    }
}

impl Window {
    fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Window> {
        // SAFETY: a new mapping at an address that the kernel chooses; TCP sockets can be mapped
        // for reading.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        match address == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Window {
                address: address as usize,
                len,
            }),
        }
    }
}

impl Mapped {
    pub(super) fn new(read_bytes: usize) -> Mapped {
        let page = rustix::param::page_size();
        Mapped {
            window: None,
            len: read_bytes.next_multiple_of(page),
            buffer: vec![0; read_bytes],
        }
    }

    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        completions: &mut Completions,
    ) -> io::Result<Moved> {
        let window = match &self.window {
            Some(window) => window,
            None => self.window.insert(Window::new(fd, self.len)?),
        };
        let mut request = Request {
            address: window.address as u64,
            length: window.len as u32,
            ..Request::default()
        };
        let mut len = mem::size_of::<Request>() as libc::socklen_t;
        // SAFETY: the request is plain data of the length passed, and its address is a mapping of
        // ours that no code reads.
        let result = unsafe {
            libc::getsockopt(
                fd.as_raw_fd(),
                libc::IPPROTO_TCP,
                TCP_ZEROCOPY_RECEIVE,
                (&raw mut request).cast(),
                &raw mut len,
            )
        };
        if result != 0 {
            let error = io::Error::last_os_error();
            // EIO is the end of the stream; read(2) then reports it as usual.
            if error.raw_os_error() != Some(libc::EIO) {
                return Err(error);
            }
            (request.length, request.recv_skip_hint) = (0, 0);
        }
        let mapped = request.length as usize;
        if mapped > 0 {
            // SAFETY: the pages just mapped, at the start of our mapping, to which there are no
            // references.
            unsafe {
                libc::madvise(
                    window.address as *mut libc::c_void,
                    mapped,
                    libc::MADV_DONTNEED,
                )
            };
            completions.mapped_bytes += mapped as u64;
        }
        // The hint is the number of bytes that must be read before the next page can be mapped. 0
        // means that the queue was empty; the read shows whether that is the end.
        let hint = request.recv_skip_hint as usize;
        if mapped > 0 && hint == 0 {
            return Ok(Moved {
                bytes: mapped,
                again: true,
            });
        }
        let wanted = match hint {
            0 => self.buffer.len(),
            hint => hint.min(self.buffer.len()),
        };
        match rustix::io::read(fd, &mut self.buffer[..wanted]) {
            // An end of stream after mapped bytes is reported by the next call.
            Ok(read) => Ok(Moved {
                bytes: mapped + read,
                again: mapped > 0 || read == wanted,
            }),
            Err(rustix::io::Errno::WOULDBLOCK) if mapped > 0 => Ok(Moved {
                bytes: mapped,
                again: false,
            }),
            Err(error) => Err(error.into()),
        }
    }
}
