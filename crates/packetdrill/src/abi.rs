//! `struct packetdrill_interface` (packetdrill.h): raw pointers in, calls of `calls.rs`, errno out.
//!
//! packetdrill has two threads: one runs the script, the other makes calls that block. Time passes only
//! when one of them asks what time it is, which then waits until a blocked call of the other has got
//! what it waited for or waits again.

#![allow(unsafe_code, reason = "the interface that packetdrill calls is C")]

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_longlong, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

use libc::{size_t, sockaddr, socklen_t, ssize_t};

use crate::calls::{Failure, Report, Sockets, Write};
use crate::control::Control;

/// What both threads share.
struct Shim {
    shared: Mutex<Shared>,
    /// Something happened that a blocked call may wait for.
    happened: Condvar,
    /// The blocked call has looked.
    looked: Condvar,
    script: ThreadId,
}

struct Shared {
    sockets: Sockets,
    /// Counts what happened.
    generation: u64,
    /// A call is blocked, and has looked at so much.
    blocked: Option<u64>,
    /// The thread of one that was blocked and has come to an end.
    ended: Option<libc::pid_t>,
}

static SHIM: OnceLock<Shim> = OnceLock::new();

thread_local! {
    /// When the call that was blocked came to an end.
    static ENDED_US: Cell<Option<u64>> = const { Cell::new(None) };
}

impl Shim {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happened: the blocked call has its turn.
    fn notify<'a>(&'a self, mut shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        shared.generation += 1;
        self.happened.notify_all();
        while shared.blocked.is_some_and(|seen| seen < shared.generation) {
            shared = self
                .looked
                .wait(shared)
                .unwrap_or_else(PoisonError::into_inner);
        }
        shared
    }

    /// Lets time pass to `until_us`, timer by timer.
    fn advance<'a>(
        &'a self,
        mut shared: MutexGuard<'a, Shared>,
        until_us: u64,
    ) -> MutexGuard<'a, Shared> {
        while shared.sockets.tick(until_us) {
            shared = self.notify(shared);
        }
        shared.sockets.host.pass(until_us);
        shared
    }

    /// Makes a call, again and again while it would block and may.
    fn call<T>(
        &self,
        fd: c_int,
        call: impl FnMut(&mut Sockets) -> Result<T, Failure>,
    ) -> Result<T, c_int> {
        self.call_with(fd, 0, call)
    }

    /// The same with MSG_DONTWAIT or without.
    fn call_with<T>(
        &self,
        fd: c_int,
        flags: c_int,
        mut call: impl FnMut(&mut Sockets) -> Result<T, Failure>,
    ) -> Result<T, c_int> {
        let mut shared = self.lock();
        let nonblocking = shared.sockets.is_nonblocking(fd)
            || self.is_script()
            || flags & libc::MSG_DONTWAIT != 0;
        loop {
            match call(&mut shared.sockets) {
                Err(Failure::Again) if nonblocking => return Err(libc::EAGAIN),
                Err(Failure::Again) => {
                    shared.blocked = Some(shared.generation);
                    self.looked.notify_all();
                    shared = self
                        .happened
                        .wait(shared)
                        .unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                Ok(value) => {
                    self.end(&mut shared);
                    return Ok(value);
                }
                Err(Failure::Errno(errno)) => {
                    self.end(&mut shared);
                    return Err(errno);
                }
            }
        }
    }

    fn end(&self, shared: &mut Shared) {
        shared.blocked = None;
        if !self.is_script() {
            ENDED_US.set(Some(shared.sockets.host.now_us()));
            // SAFETY: asks for a number.
            shared.ended = Some(unsafe { libc::gettid() });
        }
        self.looked.notify_all();
    }

    fn is_script(&self) -> bool {
        std::thread::current().id() == self.script
    }
}

fn shim() -> &'static Shim {
    SHIM.get_or_init(|| Shim {
        shared: Mutex::new(Shared {
            sockets: Sockets::new(),
            generation: 0,
            blocked: None,
            ended: None,
        }),
        happened: Condvar::new(),
        looked: Condvar::new(),
        script: std::thread::current().id(),
    })
}

fn finish<T: TryInto<R>, R: From<i8>>(result: Result<T, c_int>) -> R {
    match result {
        Ok(value) => value.try_into().unwrap_or_else(|_| R::from(-1)),
        Err(errno) => {
            // SAFETY: the calling thread's own errno.
            unsafe { *libc::__errno_location() = errno };
            R::from(-1)
        }
    }
}

/// # Safety
/// `address` is null or a socket address of `len` bytes.
unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Result<SocketAddr, c_int> {
    if address.is_null() || (len as usize) < size_of::<libc::sockaddr_in>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller promises; read without regard to alignment.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Ok(SocketAddr::new(ip.to_canonical(), port))
            }
            _ => Err(libc::EAFNOSUPPORT),
        }
    }
}

/// # Safety
/// `address` and `len` are null or have room for what `len` says.
unsafe fn write_address(remote: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    // SAFETY: as the caller promises.
    unsafe {
        if address.is_null() || len.is_null() {
            return;
        }
        let room = *len as usize;
        match remote {
            SocketAddr::V4(remote) if room >= size_of::<libc::sockaddr_in>() => {
                let mut v4: libc::sockaddr_in = std::mem::zeroed();
                v4.sin_family = libc::AF_INET as u16;
                v4.sin_port = remote.port().to_be();
                v4.sin_addr.s_addr = u32::from(*remote.ip()).to_be();
                address.cast::<libc::sockaddr_in>().write_unaligned(v4);
                *len = size_of::<libc::sockaddr_in>() as socklen_t;
            }
            SocketAddr::V6(remote) if room >= size_of::<libc::sockaddr_in6>() => {
                let mut v6: libc::sockaddr_in6 = std::mem::zeroed();
                v6.sin6_family = libc::AF_INET6 as u16;
                v6.sin6_port = remote.port().to_be();
                v6.sin6_addr.s6_addr = remote.ip().octets();
                address.cast::<libc::sockaddr_in6>().write_unaligned(v6);
                *len = size_of::<libc::sockaddr_in6>() as socklen_t;
            }
            _ => {}
        }
    }
}

/// # Safety
/// `data` is null or has `len` bytes.
unsafe fn bytes<'a>(data: *const c_void, len: size_t) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// # Safety
/// `data` is null or has room for `len` bytes.
unsafe fn room<'a>(data: *mut c_void, len: size_t) -> &'a mut [u8] {
    if data.is_null() {
        return &mut [];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(data.cast(), len) }
}

/// # Safety
/// `iov` has `count` entries that say what is there.
unsafe fn gathered(iov: *const libc::iovec, count: usize) -> Vec<u8> {
    // SAFETY: as the caller promises.
    unsafe {
        let parts = std::slice::from_raw_parts(iov, count);
        parts
            .iter()
            .flat_map(|part| bytes(part.iov_base, part.iov_len))
            .copied()
            .collect()
    }
}

extern "C" fn free(_: *mut c_void) {}

extern "C" fn socket(_: *mut c_void, _: c_int, _: c_int, _: c_int) -> c_int {
    shim().lock().sockets.socket()
}

unsafe extern "C" fn bind(
    _: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's address.
    let address = unsafe { read_address(address, len) };
    finish(address.and_then(|address| shim().call(fd, |sockets| sockets.bind(fd, address))))
}

extern "C" fn listen(_: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    finish(shim().call(fd, |sockets| sockets.listen(fd, backlog)))
}

unsafe extern "C" fn accept(
    _: *mut c_void,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let accepted = shim().call(fd, |sockets| sockets.accept(fd));
    finish(accepted.map(|(fd, remote)| {
        // SAFETY: packetdrill's buffer.
        unsafe { write_address(remote, address, len) };
        fd
    }))
}

unsafe extern "C" fn connect(
    _: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's address.
    let address = unsafe { read_address(address, len) };
    let mut begun = false;
    let result = address.and_then(|remote| {
        shim().call(fd, |sockets| {
            if std::mem::replace(&mut begun, true) {
                sockets.connected(fd)
            } else {
                sockets.connect(fd, remote)
            }
        })
    });
    finish(result.map_err(|errno| {
        if errno == libc::EAGAIN {
            libc::EINPROGRESS
        } else {
            errno
        }
    }))
}

fn read_into(fd: c_int, to: &mut [u8], flags: c_int) -> Result<i64, c_int> {
    let peek = flags & libc::MSG_PEEK != 0;
    shim().call_with(fd, flags, |sockets| sockets.read(fd, to, peek))
}

unsafe extern "C" fn read(this: *mut c_void, fd: c_int, data: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { recv(this, fd, data, len, 0) }
}

unsafe extern "C" fn readv(
    _: *mut c_void,
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's vector.
    finish(unsafe { scattered(fd, iov, count.max(0) as usize, 0) })
}

/// Reads into a vector.
///
/// # Safety
/// `iov` has `count` entries that say what is there.
unsafe fn scattered(
    fd: c_int,
    iov: *const libc::iovec,
    count: usize,
    flags: c_int,
) -> Result<i64, c_int> {
    // SAFETY: as the caller promises.
    let parts = unsafe { std::slice::from_raw_parts(iov, count) };
    let mut buffer = vec![0; parts.iter().map(|part| part.iov_len).sum()];
    let read = read_into(fd, &mut buffer, flags)?;
    let mut left = &buffer[..read as usize];
    for part in parts {
        // SAFETY: as the caller promises.
        let to = unsafe { room(part.iov_base, part.iov_len) };
        let here = to.len().min(left.len());
        to[..here].copy_from_slice(&left[..here]);
        left = &left[here..];
    }
    Ok(read)
}

unsafe extern "C" fn recv(
    _: *mut c_void,
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if data.is_null() && len > 0 {
        return finish::<i64, _>(Err(libc::EFAULT));
    }
    // SAFETY: packetdrill's buffer.
    let to = unsafe { room(data, len) };
    finish(read_into(fd, to, flags))
}

unsafe extern "C" fn recvfrom(
    this: *mut c_void,
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    _: *mut sockaddr,
    _: *mut socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { recv(this, fd, data, len, flags) }
}

unsafe extern "C" fn recvmsg(
    _: *mut c_void,
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's message.
    let (to, iov, count) = unsafe {
        let to = room((*message).msg_control, (*message).msg_controllen);
        (to, (*message).msg_iov, (*message).msg_iovlen)
    };
    let mut control = Control::new(to);
    let mut said = 0;
    let result = if flags & libc::MSG_ERRQUEUE != 0 {
        let report = shim().call_with(fd, libc::MSG_DONTWAIT, |sockets| sockets.report(fd));
        report.map(|(report, is_v4)| {
            said = libc::MSG_ERRQUEUE;
            if matches!(report, Report::Stamp { .. }) {
                // The segment is there, too, and finds no room.
                said |= libc::MSG_TRUNC;
            }
            control.report(report, is_v4);
            0
        })
    } else {
        // SAFETY: packetdrill's message.
        let read = unsafe { scattered(fd, iov, count, flags) };
        if read.is_ok()
            && let Some(left) = shim().lock().sockets.left(fd)
        {
            control.left(left);
        }
        read
    };
    if result.is_ok() {
        // SAFETY: packetdrill's message.
        unsafe {
            (*message).msg_controllen = control.len();
            (*message).msg_flags = said;
        }
    }
    finish(result)
}

fn send_all(fd: c_int, data: &[u8], flags: c_int) -> ssize_t {
    let deferred = shim().lock().sockets.deferred(fd);
    if let Some(remote) = deferred {
        return send_first(fd, data, flags, remote);
    }
    send_from(fd, data, flags, 0)
}

/// The caller's pointer, if it is one.
///
/// # Safety
/// `data` is null or has `len` bytes.
unsafe fn send_bytes(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    if data.is_null() && len > 0 {
        return finish::<i64, _>(Err(libc::EFAULT));
    }
    // SAFETY: as the caller promises.
    send_all(fd, unsafe { bytes(data, len) }, flags)
}

/// What the error queue tells of a call that wrote.
fn note_written(fd: c_int, flags: c_int, result: &Result<i64, c_int>) {
    if matches!(result, Ok(written) if *written > 0) {
        let zerocopy = flags & libc::MSG_ZEROCOPY != 0;
        shim().lock().sockets.on_written(fd, zerocopy);
    }
}

/// What is left from `done` on.
fn send_from(fd: c_int, data: &[u8], flags: c_int, mut done: usize) -> ssize_t {
    let mut waited = false;
    let result = shim().call_with(fd, flags, |sockets| {
        let waited = std::mem::replace(&mut waited, true);
        push_on(sockets, fd, data, flags, waited, &mut done)
    });
    let result = match result {
        Err(libc::EAGAIN) if done > 0 => Ok(done as i64),
        result => result,
    };
    note_written(fd, flags, &result);
    finish(result)
}

fn push_on(
    sockets: &mut Sockets,
    fd: c_int,
    data: &[u8],
    flags: c_int,
    waited: bool,
    done: &mut usize,
) -> Result<i64, Failure> {
    let waits = !sockets.is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0;
    let how = Write {
        more: flags & libc::MSG_MORE != 0,
        ends_record: flags & libc::MSG_EOR != 0,
        waited,
    };
    match sockets.write(fd, &data[*done..], how) {
        Ok(written) => {
            *done += written as usize;
            if *done < data.len() && waits {
                Err(Failure::Again)
            } else {
                Ok(*done as i64)
            }
        }
        Err(Failure::Again) if *done > 0 && !waits => Ok(*done as i64),
        Err(failure) => Err(failure),
    }
}

unsafe extern "C" fn write(_: *mut c_void, fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { send_bytes(fd, data, len, 0) }
}

unsafe extern "C" fn writev(
    _: *mut c_void,
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's vector.
    send_all(fd, &unsafe { gathered(iov, count.max(0) as usize) }, 0)
}

unsafe extern "C" fn send(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { send_bytes(fd, data, len, flags) }
}

/// MSG_FASTOPEN: what the SYN does not carry follows when the connection is open.
fn send_first(fd: c_int, data: &[u8], flags: c_int, remote: SocketAddr) -> ssize_t {
    let mut done = None;
    let result = shim().call_with(fd, flags, |sockets| {
        let waits = !sockets.is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0;
        let done = match &mut done {
            Some(done) => done,
            none => match sockets.connect_with_data(fd, remote, data, waits) {
                Ok(sent) if !waits => return Ok(sent),
                Ok(sent) => none.insert(sent as usize),
                Err(Failure::Again) => none.insert(0),
                Err(failure) => return Err(failure),
            },
        };
        sockets.connected(fd)?;
        if *done == data.len() {
            return Ok(*done as i64);
        }
        push_on(sockets, fd, data, flags, false, done)
    });
    note_written(fd, flags, &result);
    match result {
        Err(libc::EAGAIN) => finish::<i64, _>(Err(libc::EINPROGRESS)),
        result => finish(result),
    }
}

unsafe extern "C" fn sendto(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    if data.is_null() && len > 0 {
        return finish::<i64, _>(Err(libc::EFAULT));
    }
    // SAFETY: packetdrill's buffer and address.
    let (data, address) = unsafe { (bytes(data, len), read_address(address, address_len)) };
    match address {
        Ok(remote) if flags & libc::MSG_FASTOPEN != 0 => send_first(fd, data, flags, remote),
        // As the kernel's `tcp_sendmsg_fastopen`: to nowhere is no way to open.
        Err(libc::EAFNOSUPPORT) if flags & libc::MSG_FASTOPEN != 0 => {
            finish::<i64, _>(Err(libc::EOPNOTSUPP))
        }
        Err(errno) if flags & libc::MSG_FASTOPEN != 0 => finish::<i64, _>(Err(errno)),
        _ => send_all(fd, data, flags),
    }
}

unsafe extern "C" fn sendmsg(
    _: *mut c_void,
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's message.
    let (data, address) = unsafe {
        let address = read_address((*message).msg_name.cast(), (*message).msg_namelen);
        (gathered((*message).msg_iov, (*message).msg_iovlen), address)
    };
    match address {
        Ok(remote) if flags & libc::MSG_FASTOPEN != 0 => send_first(fd, &data, flags, remote),
        _ => send_all(fd, &data, flags),
    }
}

extern "C" fn fcntl(_: *mut c_void, fd: c_int, command: c_int, argument: c_long) -> c_int {
    finish(shim().call(fd, |sockets| sockets.fcntl(fd, command, argument as c_int)))
}

unsafe extern "C" fn ioctl(_: *mut c_void, fd: c_int, request: u64, to: *mut c_int) -> c_int {
    let result = shim().call(fd, |sockets| sockets.ioctl(fd, request));
    finish(result.map(|value| {
        // SAFETY: all requests that are known answer with an int.
        unsafe { *to = value };
        0
    }))
}

extern "C" fn close(_: *mut c_void, fd: c_int) -> c_int {
    finish(shim().call(fd, |sockets| sockets.close(fd)))
}

extern "C" fn shutdown(_: *mut c_void, fd: c_int, how: c_int) -> c_int {
    finish(shim().call(fd, |sockets| sockets.shutdown(fd, how)))
}

unsafe extern "C" fn get_option(
    _: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let result = shim().call(fd, |sockets| sockets.option(fd, level, name));
    finish(result.map(|answer| {
        // SAFETY: packetdrill's buffer of `*len` bytes.
        unsafe {
            let to = room(value, *len as usize);
            let here = to.len().min(answer.len());
            to[..here].copy_from_slice(&answer[..here]);
            *len = here as socklen_t;
        }
        0
    }))
}

unsafe extern "C" fn set_option(
    _: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's buffer.
    let value = unsafe { bytes(value, len as usize) };
    let number = value
        .first_chunk()
        .map_or(0, |bytes| c_int::from_ne_bytes(*bytes));
    finish(shim().call(fd, |sockets| match (level, name) {
        (libc::IPPROTO_TCP, TCP_FASTOPEN_KEY) => sockets.set_keys(value),
        _ => sockets.set_option(fd, level, name, number),
    }))
}

unsafe extern "C" fn poll(
    _: *mut c_void,
    polls: *mut libc::pollfd,
    count: u64,
    timeout: c_int,
) -> c_int {
    // SAFETY: packetdrill's array.
    let polls = unsafe { std::slice::from_raw_parts_mut(polls, count as usize) };
    // Whether it waits is its own choice.
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

unsafe extern "C" fn netdev_send(_: *mut c_void, data: *const c_void, len: size_t) -> c_int {
    let shim = shim();
    let mut shared = shim.lock();
    // SAFETY: packetdrill's packet.
    shared.sockets.arrive(unsafe { bytes(data, len) });
    drop(shim.notify(shared));
    0
}

/// Lets time pass until something leaves.
unsafe extern "C" fn netdev_receive(
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

extern "C" fn usleep(_: *mut c_void, us: u32) -> c_int {
    let shim = shim();
    let shared = shim.lock();
    let until = shared.sockets.host.now_us() + u64::from(us);
    let ended = shim.advance(shared, until).ended.take();
    if let Some(thread) = ended {
        await_rest(thread);
    }
    0
}

/// Lets the thread of a call that has come to an end tell packetdrill so, until it sleeps, as packetdrill
/// itself waits for one: the script goes on in no time, and would overtake it.
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

/// Whoever asks waits for time to pass.
unsafe extern "C" fn gettimeofday(_: *mut c_void, to: *mut libc::timeval, _: *mut c_void) -> c_int {
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

extern "C" fn epoll_create(_: *mut c_void, _: c_int) -> c_int {
    shim().lock().sockets.epoll_create()
}

unsafe extern "C" fn epoll_ctl(
    _: *mut c_void,
    epfd: c_int,
    call: c_int,
    fd: c_int,
    event: *const libc::epoll_event,
) -> c_int {
    // SAFETY: packetdrill's event, which EPOLL_CTL_DEL need not have.
    let event = unsafe { event.as_ref() };
    let (events, data) = event.map_or((0, 0), |event| (event.events, event.u64));
    finish(shim().call(epfd, |sockets| {
        sockets.epoll_ctl(epfd, call, fd, events, data)
    }))
}

unsafe extern "C" fn epoll_wait(
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
            // SAFETY: packetdrill's array of `max`, and no more are found.
            unsafe { events.add(index).write_unaligned(events_found) };
        }
        found.len() as c_int
    }))
}

unsafe extern "C" fn pipe(_: *mut c_void, to: *mut c_int) -> c_int {
    let ends = shim().lock().sockets.pipe();
    // SAFETY: packetdrill's array of two.
    unsafe { to.cast::<[c_int; 2]>().write(ends) };
    0
}

/// Offsets are of no use to sockets and pipes.
extern "C" fn splice(
    _: *mut c_void,
    from: c_int,
    _: *mut c_longlong,
    to: c_int,
    _: *mut c_longlong,
    len: size_t,
    _: std::ffi::c_uint,
) -> ssize_t {
    finish(shim().call(from, |sockets| sockets.splice(from, to, len)))
}

/// packetdrill calls the C library's, as for [`getsockopt`].
///
/// # Safety
/// As the function of the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut libc::off_t,
    count: size_t,
) -> ssize_t {
    if !SHIM.get().is_some_and(|shim| shim.lock().sockets.knows(to)) {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) as ssize_t };
    }
    let mut data = vec![0_u8; count];
    // SAFETY: as the caller promises; as many bytes as there is room for.
    let read = unsafe {
        let at = if offset.is_null() { 0 } else { *offset };
        libc::pread(from, data.as_mut_ptr().cast(), count, at)
    };
    let Ok(read) = usize::try_from(read) else {
        return -1;
    };
    let sent = send_all(to, &data[..read], 0);
    if sent > 0 && !offset.is_null() {
        // SAFETY: as the caller promises.
        unsafe { *offset += sent as libc::off_t };
    }
    sent
}

/// The commands of scripts. One that clears what the kernel remembers of other hosts means us.
///
/// # Safety
/// As the function of the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    if command.is_null() {
        return 1;
    }
    // SAFETY: as the caller promises.
    let command = unsafe { std::ffi::CStr::from_ptr(command) };
    let status = std::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(std::ffi::OsStr::from_bytes(command.to_bytes()))
        .status();
    if command.to_string_lossy().contains("tcp_metrics flush")
        && let Some(shim) = SHIM.get()
    {
        shim.lock().sockets.host.endpoint.forget_cookies();
    }
    status.map_or(-1, ExitStatusExt::into_raw)
}

/// packetdrill asks for TCP_INFO by the C library's function, whatever it has loaded: preloaded, this is
/// it.
///
/// # Safety
/// As the function of the same name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if SHIM.get().is_some_and(|shim| shim.lock().sockets.knows(fd)) {
            return get_option(std::ptr::null_mut(), fd, level, name, value, len);
        }
        libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int
    }
}

/// The functions in the order of packetdrill.h, after the user's pointer.
#[repr(C)]
pub struct Interface([*const c_void; 33]);

/// What packetdrill calls first.
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

const TCP_FASTOPEN_KEY: c_int = 33;
/// Longer than any timer a script waits for.
const PATIENCE_US: u64 = 3_600_000_000;
