//! Socket options: tried once, and then set with as few calls as possible.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketType, ipproto, sockopt};
use tcpcost_knobs::Value;

use crate::error::{StackError, call};
use crate::kernel::{acks, tls, zerocopy};
use crate::stack::SocketOptions;

/// SO_SNDBUF and SO_RCVBUF of a socket, bytes, as the kernel reports them (not halved).
pub fn socket_buffers(fd: BorrowedFd<'_>) -> Option<[u64; 2]> {
    let send = sockopt::socket_send_buffer_size(fd).ok()?;
    let receive = sockopt::socket_recv_buffer_size(fd).ok()?;
    Some([u64::try_from(send).ok()?, u64::try_from(receive).ok()?])
}

/// Value of a knob on a socket; `None` if the knob is not a socket's.
pub fn socket_knob(fd: BorrowedFd<'_>, knob: &str) -> Option<Value> {
    // The kernel doubles a size and reports the double (socket(7)).
    let bytes = |size: Result<usize, rustix::io::Errno>| {
        Some(Value::Bytes(u64::try_from(size.ok()? / 2).ok()?))
    };
    match knob {
        "nodelay" => Some(Value::Switch(sockopt::tcp_nodelay(fd).ok()?)),
        "congestion_control" => Some(Value::Word(sockopt::tcp_congestion(fd).ok()?)),
        "send_buffer" => bytes(sockopt::socket_send_buffer_size(fd)),
        "receive_buffer" => bytes(sockopt::socket_recv_buffer_size(fd)),
        "ktls" => Some(Value::Switch(tls::is_on(fd).ok()?)),
        "protocol" => {
            let word = match sockopt::socket_protocol(fd).ok()? {
                // The socket may have fallen back to TCP, which its protocol does not show.
                Some(ipproto::MPTCP) if !acks::has_fallen_back(fd).unwrap_or(false) => "mptcp",
                _ => "tcp",
            };
            Some(Value::Word(word.to_string()))
        }
        "rcvlowat" => Some(Value::Bytes(acks::receive_low_water(fd).ok()?.into())),
        "dscp" => Some(Value::Count(acks::dscp(fd).ok()?.into())),
        "ack_delay" => Some(Value::Time(acks::ack_delay_max(fd).ok()?)),
        "notsent_lowat" => Some(Value::Bytes(acks::notsent_low_water(fd).ok()?.into())),
        "busy_poll_us" => Some(Value::Count(acks::busy_poll(fd).ok()?.into())),
        "max_pacing_rate" => {
            let bytes_per_s = acks::max_pacing_rate(fd).ok()?;
            Some(Value::BitsPerS(bytes_per_s.checked_mul(8)?))
        }
        _ => None,
    }
}

/// Sets a knob on the socket of an open connection: a knob whose row has
/// [`KernelSupport::SocketOption`](tcpcost_knobs::KernelSupport).
///
/// # Errors
/// Errors of setsockopt; EINVAL if the knob is not a socket's, or the value is not of the knob's
/// kind.
pub fn set_socket_knob(fd: BorrowedFd<'_>, knob: &str, value: &Value) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let small = || {
        let whole = value.whole().ok_or_else(invalid)?;
        u32::try_from(whole).map_err(|_| invalid())
    };
    match knob {
        "rcvlowat" => acks::set_receive_low_water(fd, small()?),
        "notsent_lowat" => acks::set_notsent_low_water(fd, small()?),
        "busy_poll_us" => acks::set_busy_poll(fd, small()?),
        "ktls" => match value {
            Value::Switch(true) => tls::enable(fd),
            _ => Ok(()),
        },
        "dscp" => acks::set_dscp(fd, u8::try_from(small()?).map_err(|_| invalid())?),
        "ack_delay" => acks::set_ack_delay_max(fd, value.time().ok_or_else(invalid)?),
        "max_pacing_rate" => match value {
            Value::BitsPerS(rate) => acks::set_max_pacing_rate(fd, rate / 8),
            _ => Err(invalid()),
        },
        _ => Err(invalid()),
    }
}

/// Options without those that a new socket has already: `crr` pays for each setsockopt once per
/// transaction.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    options: SocketOptions,
    /// True if a buffer exceeds the limit for unprivileged users, and this user may exceed it.
    force: bool,
}

/// Checks that sockets of this host accept these options with the values asked for.
///
/// # Errors
/// [`StackError::Unsupported`] for a congestion control that is not available, or not to this user,
/// and for a buffer to which the kernel gives another size; errors of system calls.
pub fn options_here(options: &SocketOptions) -> Result<(), StackError> {
    Prepared::new(options).map(drop)
}

impl Prepared {
    pub(crate) fn new(options: &SocketOptions) -> Result<Prepared, StackError> {
        let protocol = options.mptcp.then_some(ipproto::MPTCP);
        let fresh = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, protocol);
        let fresh = fresh.map_err(|error| match options.mptcp {
            true => StackError::Unsupported {
                option: "protocol",
                reason: format!("this kernel has no MPTCP, or net.mptcp.enabled is 0 ({error})"),
            },
            false => call("socket")(error),
        })?;
        let mut options = options.clone();
        let host = sockopt::tcp_congestion(&fresh).map_err(call("getsockopt TCP_CONGESTION"))?;
        if options.congestion_control.as_ref() == Some(&host) {
            options.congestion_control = None;
        }
        let mut prepared = Prepared {
            options,
            force: false,
        };
        prepared.apply(&fresh)?;
        if let Err(error) = prepared.check_buffers(&fresh) {
            prepared.force = true;
            // This user may not exceed the limit: report the size.
            if prepared.apply(&fresh).is_err() {
                return Err(error);
            }
            prepared.check_buffers(&fresh)?;
        }
        Ok(prepared)
    }

    /// First and last port for listening at port 0.
    pub(crate) fn listen_ports(&self) -> Option<(u16, u16)> {
        self.options.listen_ports
    }

    /// Checks that the kernel made the buffers twice the size asked for, as it does (socket(7)).
    fn check_buffers(&self, fd: &OwnedFd) -> Result<(), StackError> {
        let check = |option, asked: Option<usize>, made: io::Result<usize>, limit: &str| {
            let Some(asked) = asked else {
                return Ok(());
            };
            let made = made.map_err(call("getsockopt of a buffer"))?;
            if made == 2 * asked {
                return Ok(());
            }
            let path = format!("/proc/sys/net/core/{limit}");
            let most = fs::read_to_string(path).unwrap_or_else(|_| "unknown".to_string());
            Err(StackError::Unsupported {
                option,
                reason: format!(
                    "the kernel makes it {} bytes, not {asked} (net.core.{limit} is {})",
                    made / 2,
                    most.trim()
                ),
            })
        };
        let (send, receive) = (
            sockopt::socket_send_buffer_size(fd).map_err(io::Error::from),
            sockopt::socket_recv_buffer_size(fd).map_err(io::Error::from),
        );
        let options = &self.options;
        check("send_buffer", options.send_buffer_bytes, send, "wmem_max")?;
        check(
            "receive_buffer",
            options.receive_buffer_bytes,
            receive,
            "rmem_max",
        )
    }

    /// Protocol for socket(2); `None` is TCP.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        self.options.mptcp.then_some(ipproto::MPTCP)
    }

    /// Sets the options. Call this before connect or listen: buffer sizes decide the window scale
    /// in the SYN.
    pub(crate) fn apply(&self, fd: &OwnedFd) -> Result<(), StackError> {
        let options = &self.options;
        if let Some(bytes) = options.send_buffer_bytes {
            match self.force {
                true => sockopt::set_socket_send_buffer_size_force(fd, bytes),
                false => sockopt::set_socket_send_buffer_size(fd, bytes),
            }
            .map_err(call("setsockopt SO_SNDBUF"))?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            match self.force {
                true => sockopt::set_socket_recv_buffer_size_force(fd, bytes),
                false => sockopt::set_socket_recv_buffer_size(fd, bytes),
            }
            .map_err(call("setsockopt SO_RCVBUF"))?;
        }
        if options.nodelay {
            sockopt::set_tcp_nodelay(fd, true).map_err(call("setsockopt TCP_NODELAY"))?;
        }
        if let Some(name) = &options.congestion_control {
            sockopt::set_tcp_congestion(fd, name).map_err(|error| refused(name, error))?;
        }
        if options.zerocopy {
            zerocopy::enable(fd).map_err(call("setsockopt SO_ZEROCOPY"))?;
        }
        Ok(())
    }
}

/// Makes a socket that listens at `local`. With port 0 the port is a free one of `ports`, or the
/// kernel's choice.
///
/// # Errors
/// Errors of the calls; EADDRINUSE if all of `ports` are taken.
pub(crate) fn listen(
    local: SocketAddr,
    backlog: u32,
    ports: Option<(u16, u16)>,
    new_socket: impl Fn(&SocketAddr) -> Result<OwnedFd, StackError>,
) -> Result<OwnedFd, StackError> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    let listen_at = |local: SocketAddr| {
        let fd = new_socket(&local)?;
        sockopt::set_socket_reuseaddr(&fd, true).map_err(call("setsockopt SO_REUSEADDR"))?;
        rustix::net::bind(&fd, &local).map_err(call("bind"))?;
        rustix::net::listen(&fd, backlog).map_err(call("listen"))?;
        Ok(fd)
    };
    let Some((first, last)) = ports.filter(|_| local.port() == 0) else {
        return listen_at(local);
    };
    let is_taken = |error: &StackError| matches!(error, StackError::Call { error, .. } if error.kind() == io::ErrorKind::AddrInUse);
    for port in first..=last {
        match listen_at(SocketAddr::new(local.ip(), port)) {
            // Taken by another worker, or another program.
            Err(error) if is_taken(&error) => {}
            listening => return listening,
        }
    }
    let text = format!("all ports of data_ports {first}-{last} are taken: widen the range");
    let error = io::Error::new(io::ErrorKind::AddrInUse, text);
    Err(call("listen")(error))
}

/// Explains a refusal of TCP_CONGESTION. ENOENT: the kernel does not have it; EPERM: this user may
/// not use it.
fn refused(asked: &str, error: Errno) -> StackError {
    let list = |which: &str| {
        fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"))
            .map_or_else(
                |_| "unknown".to_string(),
                |text| text.trim().replace(' ', ", "),
            )
    };
    let reason = match error {
        Errno::NOENT => format!(
            "this kernel has none called \"{asked}\", it has {} (modprobe tcp_{asked}, if there is such a module)",
            list("available")
        ),
        Errno::PERM => format!(
            "this user may not use \"{asked}\", only {}: run as root, or add it to the sysctl \
             net.ipv4.tcp_allowed_congestion_control",
            list("allowed")
        ),
        _ => format!("\"{asked}\": {}", io::Error::from(error)),
    };
    StackError::Unsupported {
        option: "congestion_control",
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_used_up_from_its_first() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let new_socket = |_: &SocketAddr| {
            rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
                .map_err(call("socket"))
        };
        let port = |fd: &OwnedFd| {
            let address = SocketAddr::try_from(rustix::net::getsockname(fd).unwrap());
            address.unwrap().port()
        };
        // A range of one port, which is free.
        let free = listen(loopback, 1, None, new_socket).unwrap();
        let only = port(&free);
        let range = Some((only, only));
        let error = listen(loopback, 1, range, new_socket)
            .unwrap_err()
            .to_string();
        let expected =
            format!("listen: all ports of data_ports {only}-{only} are taken: widen the range");
        assert_eq!(error, expected);
        drop(free);
        let first = listen(loopback, 1, range, new_socket).unwrap();
        assert_eq!(port(&first), only);
        // A port other than 0 is used as it is.
        let named = SocketAddr::from(([127, 0, 0, 1], only));
        assert!(listen(named, 1, None, new_socket).is_err());
    }

    #[test]
    fn an_unknown_congestion_control_names_those_there_are() {
        let options = SocketOptions {
            congestion_control: Some("nosuch".into()),
            ..SocketOptions::default()
        };
        let text = Prepared::new(&options).unwrap_err().to_string();
        assert!(
            text.starts_with("congestion_control: this kernel has none called \"nosuch\", it has "),
            "{text}"
        );
        assert!(text.contains("reno"), "{text}");
    }

    #[test]
    fn a_buffer_of_another_size_than_asked_for_is_told() {
        let sizes = |send, receive| {
            options_here(&SocketOptions {
                send_buffer_bytes: send,
                receive_buffer_bytes: receive,
                ..SocketOptions::default()
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!(sizes(Some(40_000), Some(50_000)), Ok(()));
        // Below the kernel's least size.
        let error = sizes(Some(1), None).unwrap_err();
        assert!(
            error.starts_with("send_buffer: the kernel makes it "),
            "{error}"
        );
        let most = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        let beyond = most.trim().parse::<usize>().unwrap() + 4096;
        match sizes(None, Some(beyond)) {
            Ok(()) => {} // This user may exceed the limit.
            Err(error) => assert!(error.contains("net.core.rmem_max is"), "{error}"),
        }
    }

    #[test]
    fn options_are_set_as_asked() {
        let options = SocketOptions {
            send_buffer_bytes: Some(40_000),
            receive_buffer_bytes: Some(50_000),
            nodelay: true,
            mptcp: false,
            congestion_control: Some("reno".into()),
            zerocopy: true,
            listen_ports: None,
        };
        let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        Prepared::new(&options).unwrap().apply(&fd).unwrap();
        assert_eq!(sockopt::socket_send_buffer_size(&fd).unwrap(), 80_000);
        assert_eq!(sockopt::socket_recv_buffer_size(&fd).unwrap(), 100_000);
        assert!(sockopt::tcp_nodelay(&fd).unwrap());
        assert_eq!(sockopt::tcp_congestion(&fd).unwrap(), "reno");
    }
}
