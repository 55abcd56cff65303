//! Sets up the kernel's side of the interface, and restores it when the peer ends.
//!
//! An interface that the peer made is removed with it. On an interface that existed before, all changes are undone, also
//! after a signal or an error, but not after kill -9.

use tcpcost_console::output::say;
use tcpcost_host::error::SystemError;
use tcpcost_host::link;

use super::flags::Network;

/// Changes of the interface. Dropping the value undoes them.
pub struct KernelSide {
    name: String,
    mtu: u32,
    undo: Vec<Undo>,
}

/// How to undo one change.
enum Undo {
    QueueLength(u32),
    Mtu(u32),
    Address(Network),
    Down,
}

/// Default lengths, packets, of the queue that a TUN (TUN_READQ_SIZE of drivers/net/tun.c) and a TAP hold for their program.
/// Thousands of connections fill it while the peer waits for a CPU. A packet that finds it full is dropped, and a SYN is
/// sent again after a second.
const KERNELS_QUEUES: [u32; 2] = [500, 1000];
/// Length that the peer sets, packets: two or three for each of 3,000 connections. TCP small queues keep a single connection
/// from filling it.
const QUEUE: u32 = 8192;

impl KernelSide {
    /// Sets MTU and addresses of interface `name`, and sets it up if there are addresses. A queue of the kernel's default length
    /// gets `QUEUE`.
    ///
    /// # Errors
    /// A setting failed. The settings before it are undone.
    pub fn set_up(
        name: &str,
        mtu: Option<u32>,
        host_address: &[Network],
    ) -> Result<Self, SystemError> {
        let before = link::read(name)?;
        let mut side = Self {
            name: name.to_string(),
            mtu: before.mtu,
            undo: Vec::new(),
        };
        // Without privileges the length stays as it is.
        let length = before.tx_queue_len;
        if KERNELS_QUEUES.contains(&length) && link::set_tx_queue_len(name, QUEUE).is_ok() {
            side.undo.push(Undo::QueueLength(length));
        }
        if let Some(mtu) = mtu {
            link::set_mtu(name, mtu)?;
            side.undo.push(Undo::Mtu(before.mtu));
            side.mtu = mtu;
        }
        for network in host_address {
            match link::add_address(name, network.address, network.prefix) {
                // The interface had the address before, and keeps it.
                Err(error) if error.source.raw_os_error() == Some(libc::EEXIST) => {}
                other => {
                    other?;
                    side.undo.push(Undo::Address(*network));
                }
            }
        }
        if !host_address.is_empty() {
            link::set_up(name)?;
            if !before.up {
                side.undo.push(Undo::Down);
            }
        }
        Ok(side)
    }

    /// MTU, bytes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }
}

impl Drop for KernelSide {
    fn drop(&mut self) {
        // An interface that the peer made is gone by now.
        if link::read(&self.name).is_err() {
            return;
        }
        for undo in self.undo.drain(..).rev() {
            let done = match undo {
                Undo::QueueLength(packets) => link::set_tx_queue_len(&self.name, packets),
                Undo::Mtu(bytes) => link::set_mtu(&self.name, bytes),
                Undo::Address(network) => {
                    link::remove_address(&self.name, network.address, network.prefix)
                }
                Undo::Down => link::set_down(&self.name),
            };
            if let Err(error) = done {
                say!("tcpcost: {error}");
            }
        }
    }
}
