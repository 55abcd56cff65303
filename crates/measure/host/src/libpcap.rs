//! Live packets of an interface through libpcap, which is loaded when it is needed: neither
//! building this program nor its other commands needs it. The functions and layouts are those of
//! pcap(3PCAP), 1.0 and later.
//!
//! Packets come through a ring that the kernel fills (TPACKET_V3); those that find no room in it
//! are counted.

#![allow(unsafe_code, reason = "a C library, loaded when it is asked for")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::Duration;

use libloading::Library;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Reason why a capture cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// libpcap is missing or may not capture here: another attempt would not help.
    #[error("{0}")]
    Unavailable(String),
    /// Error of libpcap.
    #[error("{0}")]
    Failed(String),
}

/// Running capture.
pub struct Live {
    handle: NonNull<Handle>,
    link_type: u16,
    functions: Functions,
    interface: String,
}

/// `pcap_t`.
#[repr(C)]
struct Handle {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr`. The field for µs holds ns if the capture has that precision.
#[repr(C)]
struct Header {
    at: libc::timeval,
    captured: u32,
    wire: u32,
}

/// `struct pcap_stat` outside Windows.
#[repr(C)]
#[derive(Default)]
struct Statistics {
    received: c_uint,
    dropped: c_uint,
    dropped_by_interface: c_uint,
}

/// `struct bpf_program`.
#[repr(C)]
struct Program {
    length: c_uint,
    instructions: *mut c_void,
}

/// Declares the functions that are used, and their loading.
macro_rules! functions {
    ($($field:ident: $name:literal, fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            /// Dropped last, because it holds the functions.
            _library: Library,
        }

        impl Functions {
            fn load() -> Result<Functions, libloading::Error> {
                // SAFETY: libpcap does nothing of consequence when it is loaded, and each function
                // has the type that pcap(3PCAP) gives it.
                unsafe {
                    let library = Library::new("libpcap.so.0.8")
                        .or_else(|_| Library::new("libpcap.so.1"))
                        .or_else(|_| Library::new("libpcap.so"))?;
                    Ok(Functions {
                        $($field: *library.get($name)?,)+
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    create: b"pcap_create\0", fn(*const c_char, *mut c_char) -> *mut Handle;
    set_snaplen: b"pcap_set_snaplen\0", fn(*mut Handle, c_int) -> c_int;
    set_timeout: b"pcap_set_timeout\0", fn(*mut Handle, c_int) -> c_int;
    set_buffer_size: b"pcap_set_buffer_size\0", fn(*mut Handle, c_int) -> c_int;
    set_precision: b"pcap_set_tstamp_precision\0", fn(*mut Handle, c_int) -> c_int;
    precision: b"pcap_get_tstamp_precision\0", fn(*mut Handle) -> c_int;
    activate: b"pcap_activate\0", fn(*mut Handle) -> c_int;
    set_nonblock: b"pcap_setnonblock\0", fn(*mut Handle, c_int, *mut c_char) -> c_int;
    selectable_fd: b"pcap_get_selectable_fd\0", fn(*mut Handle) -> c_int;
    datalink: b"pcap_datalink\0", fn(*mut Handle) -> c_int;
    set_datalink: b"pcap_set_datalink\0", fn(*mut Handle, c_int) -> c_int;
    compile: b"pcap_compile\0", fn(*mut Handle, *mut Program, *const c_char, c_int, u32) -> c_int;
    set_filter: b"pcap_setfilter\0", fn(*mut Handle, *mut Program) -> c_int;
    free_code: b"pcap_freecode\0", fn(*mut Program);
    next_ex: b"pcap_next_ex\0", fn(*mut Handle, *mut *const Header, *mut *const u8) -> c_int;
    stats: b"pcap_stats\0", fn(*mut Handle, *mut Statistics) -> c_int;
    error: b"pcap_geterr\0", fn(*mut Handle) -> *const c_char;
    status: b"pcap_statustostr\0", fn(c_int) -> *const c_char;
    close: b"pcap_close\0", fn(*mut Handle);
}

impl Live {
    /// Begins to capture the TCP segments on this interface: `snap_len` bytes of each (0 for all),
    /// through a ring of `ring_bytes`.
    ///
    /// # Errors
    /// [`CaptureError::Unavailable`] if libpcap is missing or may not capture; else libpcap's
    /// error.
    pub fn open(interface: &str, snap_len: u32, ring_bytes: usize) -> Result<Live, CaptureError> {
        let failed = |why: &str| CaptureError::Failed(format!("capture on {interface}: {why}"));
        // libpcap would load a second C library next to ours.
        if cfg!(target_feature = "crt-static") {
            return Err(CaptureError::Unavailable(format!(
                "capture on {interface}: this is the static tcpcost, which cannot load libpcap (give the output of tcpdump -w - to tcpcost trace -)"
            )));
        }
        let functions = Functions::load().map_err(|error| {
            CaptureError::Unavailable(format!(
                "capture on {interface}: {error} (install libpcap: the package libpcap0.8 or libpcap; or give the output of tcpdump -w - to tcpcost trace -)"
            ))
        })?;
        let name = CString::new(interface).map_err(|error| failed(&error.to_string()))?;
        let mut buffer: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
        // SAFETY: `name` ends in NUL and outlives the call; `buffer` has the required size.
        let handle = unsafe { (functions.create)(name.as_ptr(), buffer.as_mut_ptr()) };
        let Some(handle) = NonNull::new(handle) else {
            // SAFETY: libpcap wrote a text that ends in NUL; the buffer was all NUL before.
            let why = unsafe { CStr::from_ptr(buffer.as_ptr()) };
            return Err(failed(&why.to_string_lossy()));
        };
        let mut live = Live {
            handle,
            link_type: 0,
            functions,
            interface: interface.to_string(),
        };
        let pcap = handle.as_ptr();
        let whole = |snap_len| if snap_len == 0 { WHOLE } else { snap_len };
        let snap_len = c_int::try_from(whole(snap_len)).unwrap_or(c_int::MAX);
        let ring_bytes = c_int::try_from(ring_bytes).unwrap_or(c_int::MAX);
        // SAFETY: `pcap` is a handle that is not active yet, as these four functions require.
        unsafe {
            (live.functions.set_snaplen)(pcap, snap_len);
            (live.functions.set_timeout)(pcap, TIMEOUT_MS);
            (live.functions.set_buffer_size)(pcap, ring_bytes);
            (live.functions.set_precision)(pcap, NANO);
        }
        // SAFETY: as above. The handle is active from here on unless this fails.
        let status = unsafe { (live.functions.activate)(pcap) };
        if status < 0 {
            let error = live.failed(status);
            return Err(match status {
                NO_PERMISSION => CaptureError::Unavailable(format!("{error} (needs CAP_NET_RAW)")),
                _ => error,
            });
        }
        // SAFETY: the handle is active; `buffer` has the required size.
        let nonblock = unsafe { (live.functions.set_nonblock)(pcap, 1, buffer.as_mut_ptr()) };
        if nonblock < 0 {
            return Err(live.failed(nonblock));
        }
        // SAFETY: the handle is active. If all interfaces are captured, version 2 has the interface
        // of each packet; a libpcap without it (before 1.10) stays with version 1.
        let link = unsafe {
            if (live.functions.datalink)(pcap) == COOKED_1 {
                (live.functions.set_datalink)(pcap, COOKED_2);
            }
            (live.functions.datalink)(pcap)
        };
        // For the link types that are read DLT and LINKTYPE are the same number, except raw IP (12
        // and 14).
        live.link_type = match u16::try_from(link) {
            Ok(12 | 14) => RAW,
            link => link.unwrap_or(u16::MAX),
        };
        // libpcap refuses VLAN tags on link types without them, such as cooked and raw ones.
        // Expressions after `vlan` refer to the packet after the tag, so `vlan` comes last.
        let expression = match link {
            ETHERNET => format!("{WANTED} or (vlan and ({WANTED}))"),
            _ => WANTED.to_string(),
        };
        live.filter(&CString::new(expression).expect("no NUL is in it"))?;
        // SAFETY: the handle is active.
        if unsafe { (live.functions.selectable_fd)(pcap) } < 0 {
            return Err(failed("the capture has no descriptor to wait for"));
        }
        live.count_loopback_once()
            .map_err(|error| failed(&format!("filter: {error}")))?;
        Ok(live)
    }

    /// Attaches a socket filter that omits the first of two views of each loopback packet: it
    /// passes here twice, out and in.
    ///
    /// libpcap omits the first view itself, but only after the kernel has given it room in the
    /// ring, or has counted it as dropped. The socket filter acts before that. It is not written in
    /// libpcap's language, because libpcap applies a new filter itself to the first round of the
    /// ring, without the direction of the packets.
    fn count_loopback_once(&self) -> io::Result<()> {
        const LENGTH_MAX: usize = 4096;
        let ancillary = |of| (libc::SKF_AD_OFF + of) as u32;
        let load = |k| instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, k);
        let unless_equal =
            |k, skip| instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, k);
        let mut program = vec![
            load(ancillary(libc::SKF_AD_PKTTYPE)),
            unless_equal(libc::PACKET_OUTGOING.into(), 3),
            load(ancillary(libc::SKF_AD_IFINDEX)),
            unless_equal(LOOPBACK_IFINDEX, 1),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        let mut libpcaps = vec![instruction(0, 0, 0, 0); LENGTH_MAX];
        // Length in instructions, not bytes (`sk_get_filter` in net/core/filter.c).
        let mut length = libpcaps.len() as libc::socklen_t;
        // SAFETY: the descriptor is open as long as the handle. At most `length` instructions are
        // written, and there is room for them; `length` is valid to write.
        let status = unsafe {
            let socket = (self.functions.selectable_fd)(self.handle.as_ptr());
            let to = libpcaps.as_mut_ptr().cast();
            libc::getsockopt(
                socket,
                libc::SOL_SOCKET,
                libc::SO_GET_FILTER,
                to,
                &mut length,
            )
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        match length {
            // libpcap filters in user space.
            0 => program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX)),
            _ => program.extend_from_slice(&libpcaps[..length as usize]),
        }
        let attached = libc::sock_fprog {
            len: program.len().try_into().map_err(io::Error::other)?,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the descriptor is open; `attached` has a program of that length, which the kernel
        // checks and copies.
        let status = unsafe {
            let socket = (self.functions.selectable_fd)(self.handle.as_ptr());
            let length = size_of_val(&attached) as libc::socklen_t;
            let from = (&raw const attached).cast();
            libc::setsockopt(
                socket,
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                from,
                length,
            )
        };
        match status {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sets a filter, so that the kernel omits packets that cannot be TCP.
    fn filter(&mut self, expression: &CStr) -> Result<(), CaptureError> {
        let pcap = self.handle.as_ptr();
        let mut program = Program {
            length: 0,
            instructions: std::ptr::null_mut(),
        };
        // SAFETY: the handle is active, `program` is valid to write, the text ends in NUL. The
        // compiled program is used and then freed.
        let status = unsafe {
            let compiled =
                (self.functions.compile)(pcap, &mut program, expression.as_ptr(), 1, u32::MAX);
            if compiled < 0 {
                compiled
            } else {
                let set = (self.functions.set_filter)(pcap, &mut program);
                (self.functions.free_code)(&mut program);
                set
            }
        };
        if status < 0 {
            return Err(self.failed_at("filter: ", status));
        }
        Ok(())
    }

    /// Waits until packets are available, for at most `most`. True if they are.
    ///
    /// # Errors
    /// The error of poll(2).
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        // SAFETY: the handle has a descriptor, as `open` checked, and it is open until pcap_close.
        let fd =
            unsafe { BorrowedFd::borrow_raw((self.functions.selectable_fd)(self.handle.as_ptr())) };
        let most = Timespec::try_from(most).expect("a poll of less than an age");
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&most)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
    }

    /// LINKTYPE of the packets.
    pub fn link_type(&self) -> u16 {
        self.link_type
    }

    /// Passes available packets to `each`: ns since the epoch, length on the wire, and captured
    /// bytes. At most 65,536 at a time, so that other work gets its turn.
    ///
    /// # Errors
    /// libpcap's error, e.g. for an interface that goes down.
    pub fn packets(&mut self, mut each: impl FnMut(u64, u32, &[u8])) -> Result<(), CaptureError> {
        // SAFETY: the handle is active.
        let precision = unsafe { (self.functions.precision)(self.handle.as_ptr()) };
        let ns_per_unit = if precision == NANO { 1 } else { 1000 };
        for _ in 0..AT_ONCE {
            let mut header = std::ptr::null();
            let mut data = std::ptr::null();
            // SAFETY: the handle is active, both pointers are valid to write.
            let status =
                unsafe { (self.functions.next_ex)(self.handle.as_ptr(), &mut header, &mut data) };
            match status {
                1 => {}
                0 => break,
                status => return Err(self.failed(status)),
            }
            // SAFETY: on 1 both pointers are valid until the next call, and the frame is `captured`
            // bytes long.
            let (header, frame) = unsafe {
                let header: &Header = &*header;
                (
                    header,
                    std::slice::from_raw_parts(data, header.captured as usize),
                )
            };
            let at = (header.at.tv_sec as u64)
                .saturating_mul(1_000_000_000)
                .saturating_add(header.at.tv_usec as u64 * ns_per_unit);
            each(at, header.wire, frame);
        }
        Ok(())
    }

    /// Packets that found no room in the ring since the beginning. Packets that the interface
    /// itself dropped are not included: TCP lost them as well.
    ///
    /// # Errors
    /// libpcap's error.
    pub fn dropped(&self) -> Result<u64, CaptureError> {
        let mut statistics = Statistics::default();
        // SAFETY: the handle is active, `statistics` is valid to write.
        let status = unsafe { (self.functions.stats)(self.handle.as_ptr(), &mut statistics) };
        if status < 0 {
            return Err(self.failed(status));
        }
        Ok(u64::from(statistics.dropped))
    }

    fn failed(&self, status: c_int) -> CaptureError {
        self.failed_at("", status)
    }

    fn failed_at(&self, step: &str, status: c_int) -> CaptureError {
        let (interface, why) = (&self.interface, self.says(status));
        CaptureError::Failed(format!("capture on {interface}: {step}{why}"))
    }

    fn says(&self, status: c_int) -> String {
        // SAFETY: both functions return texts that end in NUL and are valid until the next call.
        let (what, why) = unsafe {
            (
                CStr::from_ptr((self.functions.status)(status)),
                CStr::from_ptr((self.functions.error)(self.handle.as_ptr())),
            )
        };
        let what = if status == ERROR {
            ""
        } else {
            &what.to_string_lossy()
        };
        let parts = [what.to_string(), why.to_string_lossy().into_owned()];
        let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        said.join(": ")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: the handle is not used after this.
        unsafe { (self.functions.close)(self.handle.as_ptr()) }
    }
}

/// Instruction of classic BPF.
fn instruction(code: u32, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k,
    }
}

/// PCAP_ERRBUF_SIZE.
const ERROR_BYTES: usize = 256;
/// PCAP_ERROR: the text alone describes the error.
const ERROR: c_int = -1;
/// PCAP_ERROR_PERM_DENIED.
const NO_PERMISSION: c_int = -8;
/// DLT_EN10MB.
const ETHERNET: c_int = 1;

/// Filter: TCP, IPv6 with an extension header, and packets that may carry TCP: IP in IP, 6in4, GRE,
/// the authentication header, VXLAN (its port, and Linux's first), Geneve and GTP-U.
const WANTED: &str = "tcp or ip6 proto 0 or proto 4 or proto 41 or proto 47 or proto 51 \
    or udp port 4789 or udp port 8472 or udp port 6081 or udp port 2152";
/// DLT_LINUX_SLL and DLT_LINUX_SLL2.
const COOKED_1: c_int = 113;
const COOKED_2: c_int = 276;
/// Index of the loopback device in every namespace (include/net/net_namespace.h).
const LOOPBACK_IFINDEX: u32 = 1;
/// PCAP_TSTAMP_PRECISION_NANO.
const NANO: c_int = 1;

/// Snap length for whole packets: libpcap's own maximum (MAXIMUM_SNAPLEN), more than a
/// super-segment.
const WHOLE: u32 = 262_144;

/// LINKTYPE_RAW: IPv4 or IPv6 without a link header.
const RAW: u16 = 101;

const TIMEOUT_MS: c_int = 50;
/// Time for which the kernel holds a block that is not full. Packets are at most this late.
pub const TIMEOUT: Duration = Duration::from_millis(TIMEOUT_MS as u64);

/// Limit of packets at a time: about 10 ms of work.
const AT_ONCE: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use tcpcost_testbed::{has_program, in_namespace, until};

    /// Packets that the loopback device of this namespace has received.
    fn received() -> u64 {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let line = table.lines().find(|line| line.contains("lo:")).unwrap();
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    #[test]
    fn of_loopback_each_packet_is_kept_or_counted_as_dropped_once() {
        if !has_program("tcpdump") {
            return;
        }
        in_namespace(|| {
            link::set_up("lo").unwrap();
            for interface in ["lo", "any"] {
                let before = received();
                let mut live = Live::open(interface, 192, 65_536).unwrap();
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                // Many more packets than the ring holds, and none is read yet.
                for _ in 0..20_000 {
                    client.write_all(&[1]).unwrap();
                    server.read_exact(&mut [0]).unwrap();
                }
                drop((client, server, listener));
                let mut kept = 0;
                until("every packet", || {
                    live.packets(|_, _, _| kept += 1).unwrap();
                    let seen = kept + live.dropped().unwrap();
                    assert!(seen <= received() - before, "{interface}: {seen}");
                    (seen == received() - before).then_some(())
                });
                assert!(live.dropped().unwrap() > 0, "{interface}: {kept}");
            }
        });
    }
}
