//! Socket options, tried once and then set with as few calls as will do.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::error::{StackError, call};
use crate::kernel::zerocopy;
use crate::stack::SocketOptions;

/// Options without those that a fresh socket has anyway: `crr` pays for each setsockopt once per
/// transaction.
#[derive(Debug)]
pub(super) struct Prepared(SocketOptions);

impl Prepared {
    pub(super) fn new(options: &SocketOptions) -> Result<Prepared, StackError> {
        let fresh = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)
            .map_err(call("socket"))?;
        let mut options = options.clone();
        let host = sockopt::tcp_congestion(&fresh).map_err(call("getsockopt TCP_CONGESTION"))?;
        if options.congestion_control.as_ref() == Some(&host) {
            options.congestion_control = None;
        }
        let prepared = Prepared(options);
        prepared.apply(&fresh)?;
        Ok(prepared)
    }

    /// Before connect or listen: buffer sizes decide the window scale in the SYN.
    pub(super) fn apply(&self, fd: &OwnedFd) -> Result<(), StackError> {
        let options = &self.0;
        if let Some(bytes) = options.send_buffer_bytes {
            sockopt::set_socket_send_buffer_size(fd, bytes)
                .map_err(call("setsockopt SO_SNDBUF"))?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            sockopt::set_socket_recv_buffer_size(fd, bytes)
                .map_err(call("setsockopt SO_RCVBUF"))?;
        }
        if options.nodelay {
            sockopt::set_tcp_nodelay(fd, true).map_err(call("setsockopt TCP_NODELAY"))?;
        }
        if let Some(name) = &options.congestion_control {
            sockopt::set_tcp_congestion(fd, name).map_err(|error| refused(name, error.into()))?;
        }
        if options.zerocopy {
            zerocopy::enable(fd).map_err(call("setsockopt SO_ZEROCOPY"))?;
        }
        Ok(())
    }
}

fn refused(asked: &str, error: io::Error) -> StackError {
    let list = |which: &str| {
        fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"))
            .map_or_else(|_| "unknown".to_string(), |text| text.trim().to_string())
    };
    StackError::CongestionControl {
        asked: asked.to_string(),
        available: list("available"),
        allowed: list("allowed"),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_congestion_control_names_those_there_are() {
        let options = SocketOptions {
            congestion_control: Some("nosuch".into()),
            ..SocketOptions::default()
        };
        let text = Prepared::new(&options).unwrap_err().to_string();
        assert!(text.starts_with("congestion control \"nosuch\":"), "{text}");
        assert!(
            text.contains("available: ") && text.contains("reno"),
            "{text}"
        );
    }

    #[test]
    fn options_are_set_as_asked() {
        let options = SocketOptions {
            send_buffer_bytes: Some(40_000),
            receive_buffer_bytes: Some(50_000),
            nodelay: true,
            congestion_control: Some("reno".into()),
            zerocopy: true,
        };
        let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        Prepared::new(&options).unwrap().apply(&fd).unwrap();
        assert_eq!(sockopt::socket_send_buffer_size(&fd).unwrap(), 80_000);
        assert_eq!(sockopt::socket_recv_buffer_size(&fd).unwrap(), 100_000);
        assert!(sockopt::tcp_nodelay(&fd).unwrap());
        assert_eq!(sockopt::tcp_congestion(&fd).unwrap(), "reno");
    }
}
