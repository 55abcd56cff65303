//! virtio-net header and the ioctls that enable it (Linux `tun.rst`, `virtio_net.h`).

#![allow(unsafe_code, reason = "ioctls of a TUN device, and a header as bytes")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::{Layer, TapError};
use crate::{Offload, Offloads, PartialChecksum, Segmentation};

pub(super) fn open() -> Result<File, TapError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(PATH)
        .map_err(|inner| TapError { tried: OPEN, inner })
}

/// Attaches the file to an interface, as its only queue or as one of `several`. Returns the
/// interface's name.
pub(super) fn attach(
    file: &File,
    name: &str,
    layer: Layer,
    several: bool,
) -> Result<String, TapError> {
    let mut request = empty_request();
    for (to, from) in request
        .ifr_name
        .iter_mut()
        .zip(name.bytes().take(libc::IFNAMSIZ - 1))
    {
        *to = from as libc::c_char;
    }
    let layer = match layer {
        Layer::Ethernet => libc::IFF_TAP,
        Layer::Ip => libc::IFF_TUN,
    };
    let queues = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    request.ifr_ifru.ifru_flags =
        (layer | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`.
    check("TUNSETIFF", unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request)
    })?;
    let size = HEADER_BYTES as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads an `int`.
    check("TUNSETVNETHDRSZ", unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size)
    })?;
    let little: libc::c_int = 1;
    // SAFETY: TUNSETVNETLE reads an `int`.
    check("TUNSETVNETLE", unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETLE, &raw const little)
    })?;
    let name = request
        .ifr_name
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| *byte as u8 as char);
    Ok(name.collect())
}

pub(super) fn set_offloads(file: &File, offloads: Offloads) -> Result<(), TapError> {
    let flags = match offloads {
        Offloads {
            segmentation: true, ..
        } => libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
        Offloads { checksum: true, .. } => libc::TUN_F_CSUM,
        _ => 0,
    };
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    check("TUNSETOFFLOAD", unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(flags),
        )
    })
}

/// Returns the hardware address of the kernel's side.
pub(super) fn hardware_address(file: &File) -> Result<[u8; 6], TapError> {
    let mut request = empty_request();
    // SAFETY: SIOCGIFHWADDR on a TAP's file writes an `ifreq`.
    check("SIOCGIFHWADDR", unsafe {
        libc::ioctl(file.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request)
    })?;
    // SAFETY: the call above filled this member of the union.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut bytes = [0; 6];
    for (to, from) in bytes.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    Ok(bytes)
}

fn empty_request() -> libc::ifreq {
    // SAFETY: an `ifreq` consists of bytes and a union of plain values, for which all zeros are
    // valid.
    unsafe { std::mem::zeroed() }
}

fn check(tried: &'static str, result: libc::c_int) -> Result<(), TapError> {
    if result < 0 {
        Err(TapError {
            tried,
            inner: io::Error::last_os_error(),
        })
    } else {
        Ok(())
    }
}

/// Writes a `struct virtio_net_hdr` for a packet with `link` bytes before its IP header.
pub(super) fn encode(offload: &Offload, link: u16) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, value: u16| header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    if let Some(segmentation) = offload.segmentation {
        put(2, link + segmentation.header_bytes);
        put(4, segmentation.size);
    }
    if let Some(partial) = offload.partial {
        put(6, link + partial.start);
        put(8, partial.offset);
    }
    header[0] = if offload.partial.is_some() {
        NEEDS_CHECKSUM
    } else {
        0
    };
    header[1] = match offload.segmentation {
        None => 0,
        Some(Segmentation { v6: false, .. }) => TCP_V4,
        Some(Segmentation { v6: true, .. }) => TCP_V6,
    };
    header
}

/// Reads a `struct virtio_net_hdr`. A partial checksum with an invalid offset is ignored, so the
/// checksum is verified.
pub(super) fn decode(header: &[u8; HEADER_BYTES], link: u16) -> Offload {
    let get = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let partial = (header[0] & NEEDS_CHECKSUM != 0 && get(6) >= link).then(|| PartialChecksum {
        start: get(6) - link,
        offset: get(8),
    });
    let kind = header[1] & !CONGESTION;
    let segmentation = matches!(kind, TCP_V4 | TCP_V6).then(|| Segmentation {
        size: get(4),
        header_bytes: get(2).saturating_sub(link),
        v6: kind == TCP_V6,
    });
    Offload {
        partial,
        verified: header[0] & DATA_VALID != 0,
        segmentation,
    }
}

const PATH: &str = "/dev/net/tun";
/// Text for the field `tried` of [`TapError`] if the file cannot be opened.
pub(super) const OPEN: &str = "open /dev/net/tun";
/// Size of `struct virtio_net_hdr` without the number of buffers.
pub(super) const HEADER_BYTES: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const CONGESTION: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_decodes_to_itself() {
        let offload = Offload {
            partial: Some(PartialChecksum {
                start: 20,
                offset: 16,
            }),
            verified: false,
            segmentation: Some(Segmentation {
                size: 1448,
                header_bytes: 52,
                v6: true,
            }),
        };
        assert_eq!(decode(&encode(&offload, 14), 14), offload);
        assert_eq!(
            decode(&encode(&Offload::default(), 0), 0),
            Offload::default()
        );
    }
}
