//! A TCP under test, as non-blocking sockets.
//!
//! [`Stack`] is the interface that a workload uses: over the kernel's TCP ([`KernelStack`] by
//! epoll, [`RingStack`] by io_uring) or our own TCP over a device ([`UserStack`]). A workload is
//! generic over the trait, never `dyn`: a virtual call per read would be part of what is measured.
//! This crate knows no workload and no trial: it moves bytes when asked.
//!
//! Start with [`Stack`], [`KernelStack`], [`UserStack`] and, before a large trial, [`limits`].
//!
//! ```
//! use tcpcost_stack::{KernelStack, SocketOptions, Stack};
//! let mut stack = KernelStack::new(&SocketOptions::default())?;
//! let listener = stack.listen("127.0.0.1:0".parse().unwrap(), 16, 0)?;
//! let server = stack.local_addr(listener)?;
//! let client = stack.connect(server, 1)?;
//! let ready = stack.poll(None)?;
//! assert!((0..ready).all(|index| stack.ready(index).token <= 1));
//! stack.close(client);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod blocking;
mod buffer_ring;
mod error;
mod file_sizes;
mod files;
mod kernel;
pub mod limits;
mod reader;
mod ring;
mod stack;
mod timeouts;
mod uring;
mod user;

pub use blocking::{BlockingConnector, BlockingListener, BlockingSocket};
pub use error::StackError;
pub use file_sizes::FileSizes;
pub use kernel::acks::ack_delay_max_here;
pub use kernel::options::{options_here, set_socket_knob, socket_buffers, socket_knob};
pub use kernel::tls::ktls_refusal;
pub use kernel::{KernelConn, KernelListener, KernelSink, KernelSource, KernelStack};
pub use ring::{Ring, RingCompletion};
pub use stack::{Completions, Content, Moved, Pages, Ready, SocketOptions, Stack};
pub use timeouts::use_precise_timeouts;
pub use uring::{RingConn, RingListener, RingSink, RingSource, RingStack, uring_refusal};
pub use user::{
    Forwarded, Slabs, Stopped, UserConn, UserListener, UserSettings, UserSink, UserSource,
    UserStack, Wire, config_for,
};
