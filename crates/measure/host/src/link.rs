//! Devices: veth pairs, addresses, MTU, and limits of super-segments.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::SystemError;
use crate::netlink::ask;

/// Device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index in this namespace.
    pub index: u32,
    /// True if the device is up.
    pub up: bool,
    /// MTU, bytes.
    pub mtu: u32,
    /// Limit of packets in its queue (txqueuelen); for a TUN or TAP, of packets that its program
    /// has not read.
    pub tx_queue_len: u32,
    /// Limit of segments in a super-segment.
    pub gso_max_segs: u32,
    /// Limit of bytes in a super-segment (IPv6, and IPv4 on kernels before 6.3).
    pub gso_max_size: u32,
    /// Limit of bytes in a super-segment of IPv4. `None` on kernels before 6.3.
    pub gso_ipv4_max_size: Option<u32>,
    /// Limit of bytes that GRO merges (IPv6, and IPv4 on kernels before 6.3).
    pub gro_max_size: u32,
    /// Limit of bytes of IPv4 that GRO merges. `None` on kernels before 6.3.
    pub gro_ipv4_max_size: Option<u32>,
    /// Name of the root qdisc.
    pub qdisc: String,
}

/// Reads a device.
///
/// # Errors
/// ENODEV if this namespace has no device of this name.
pub fn read(device: &str) -> Result<Link, SystemError> {
    let tried = format!("read device {device}");
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::IfName(device.to_string())];
    let answers = ask(&tried, RouteNetlinkMessage::GetLink(message), 0)?;
    let Some(RouteNetlinkMessage::NewLink(found)) = answers.into_iter().next() else {
        return Err(SystemError::strange(tried, "no answer"));
    };
    let mut link = Link {
        index: found.header.index,
        up: found.header.flags.contains(LinkFlags::Up),
        mtu: 0,
        tx_queue_len: 0,
        gso_max_segs: 0,
        gso_max_size: 0,
        gso_ipv4_max_size: None,
        gro_max_size: 0,
        gro_ipv4_max_size: None,
        qdisc: String::new(),
    };
    for attribute in found.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::TxQueueLen(packets) => link.tx_queue_len = packets,
            LinkAttribute::GsoMaxSegs(segments) => link.gso_max_segs = segments,
            LinkAttribute::GsoMaxSize(bytes) => link.gso_max_size = bytes,
            LinkAttribute::GsoIpv4MaxSize(bytes) => link.gso_ipv4_max_size = Some(bytes),
            LinkAttribute::GroMaxSize(bytes) => link.gro_max_size = bytes,
            LinkAttribute::GroIpv4MaxSize(bytes) => link.gro_ipv4_max_size = Some(bytes),
            LinkAttribute::Qdisc(name) => link.qdisc = name,
            _ => {}
        }
    }
    Ok(link)
}

/// Creates a veth pair: `name` here, and `peer_name` in the network namespace of the process (or
/// thread) `peer_pid`. Both are down and have no address.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN here and there; EEXIST if the name is taken; ESRCH if the process
/// has ended.
pub fn create_veth(name: &str, peer_name: &str, peer_pid: u32) -> Result<(), SystemError> {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(peer_name.to_string()),
        LinkAttribute::NetNsPid(peer_pid),
    ];
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(name.to_string()),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    let tried = format!("make veth pair {name} and {peer_name} of process {peer_pid}");
    ask(
        &tried,
        RouteNetlinkMessage::NewLink(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )?;
    Ok(())
}

fn change(device: &str, what: &str, attributes: Vec<LinkAttribute>) -> Result<(), SystemError> {
    let mut message = LinkMessage::default();
    message.header.index = read(device)?.index;
    message.attributes = attributes;
    let tried = format!("set {what} of {device}");
    ask(&tried, RouteNetlinkMessage::SetLink(message), 0)?;
    Ok(())
}

/// Sets a device up.
pub fn set_up(device: &str) -> Result<(), SystemError> {
    set_flags(device, LinkFlags::Up, "up")
}

/// Sets a device down. Its routes and IPv6 addresses are lost.
pub fn set_down(device: &str) -> Result<(), SystemError> {
    set_flags(device, LinkFlags::empty(), "down")
}

fn set_flags(device: &str, flags: LinkFlags, what: &str) -> Result<(), SystemError> {
    let mut message = LinkMessage::default();
    message.header.index = read(device)?.index;
    message.header.flags = flags;
    message.header.change_mask = LinkFlags::Up;
    ask(
        &format!("take {device} {what}"),
        RouteNetlinkMessage::SetLink(message),
        0,
    )?;
    Ok(())
}

/// Moves a device to the network namespace of a process. It is down and has no address there.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN here and there; ESRCH if the process has ended.
pub fn move_to(device: &str, pid: u32) -> Result<(), SystemError> {
    let what = format!("namespace of process {pid}");
    change(device, &what, vec![LinkAttribute::NetNsPid(pid)])
}

/// Moves a device to a network namespace that is open. It is down and has no address there.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN here and there; EEXIST if the name is taken there.
pub fn move_to_namespace(device: &str, namespace: BorrowedFd<'_>) -> Result<(), SystemError> {
    let fd = namespace.as_raw_fd();
    change(device, "namespace", vec![LinkAttribute::NetNsFd(fd)])
}

/// Moves a device to the network namespace of a process, and renames it to `name` there.
///
/// # Errors
/// Those of [`move_to`]; EEXIST if the name is taken there.
pub fn move_to_as(device: &str, pid: u32, name: &str) -> Result<(), SystemError> {
    let what = format!("namespace of process {pid} and the name {name}");
    let attributes = vec![
        LinkAttribute::NetNsPid(pid),
        LinkAttribute::IfName(name.to_string()),
    ];
    change(device, &what, attributes)
}

/// Sets the MTU, bytes.
pub fn set_mtu(device: &str, bytes: u32) -> Result<(), SystemError> {
    change(
        device,
        &format!("mtu {bytes}"),
        vec![LinkAttribute::Mtu(bytes)],
    )
}

/// Sets the limit of packets in its queue (txqueuelen).
pub fn set_tx_queue_len(device: &str, packets: u32) -> Result<(), SystemError> {
    let what = format!("txqueuelen {packets}");
    change(device, &what, vec![LinkAttribute::TxQueueLen(packets)])
}

/// Sets the limit of segments in a super-segment. A connection adopts the limit when it connects.
pub fn set_gso_max_segs(device: &str, segments: u32) -> Result<(), SystemError> {
    let what = format!("gso_max_segs {segments}");
    change(device, &what, vec![LinkAttribute::GsoMaxSegs(segments)])
}

/// Sets the limit of bytes in a super-segment. `ipv4_bytes`: IPv4's own limit (kernel 6.3 and
/// later).
pub fn set_gso_max_size(
    device: &str,
    bytes: u32,
    ipv4_bytes: Option<u32>,
) -> Result<(), SystemError> {
    let mut attributes = vec![LinkAttribute::GsoMaxSize(bytes)];
    attributes.extend(ipv4_bytes.map(LinkAttribute::GsoIpv4MaxSize));
    change(device, &format!("gso_max_size {bytes}"), attributes)
}

/// Sets the limit of bytes that GRO merges. `ipv4_bytes`: IPv4's own limit (kernel 6.3 and later).
pub fn set_gro_max_size(
    device: &str,
    bytes: u32,
    ipv4_bytes: Option<u32>,
) -> Result<(), SystemError> {
    let mut attributes = vec![LinkAttribute::GroMaxSize(bytes)];
    attributes.extend(ipv4_bytes.map(LinkAttribute::GroIpv4MaxSize));
    change(device, &format!("gro_max_size {bytes}"), attributes)
}

/// Adds an address to a device. The kernel adds the route to its prefix when the device is up.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; EEXIST if the device has the address already.
pub fn add_address(
    device: &str,
    address: impl Into<IpAddr>,
    prefix_length: u8,
) -> Result<(), SystemError> {
    let address = address.into();
    let message = address_message(device, address, prefix_length)?;
    ask(
        &format!("give {device} the address {address}/{prefix_length}"),
        RouteNetlinkMessage::NewAddress(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )?;
    Ok(())
}

/// Removes an address from a device.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; EADDRNOTAVAIL if the device does not have the address.
pub fn remove_address(
    device: &str,
    address: impl Into<IpAddr>,
    prefix_length: u8,
) -> Result<(), SystemError> {
    let address = address.into();
    let message = address_message(device, address, prefix_length)?;
    ask(
        &format!("take the address {address}/{prefix_length} from {device}"),
        RouteNetlinkMessage::DelAddress(message),
        0,
    )?;
    Ok(())
}

fn address_message(
    device: &str,
    address: IpAddr,
    prefix_length: u8,
) -> Result<AddressMessage, SystemError> {
    let mut message = AddressMessage::default();
    message.header.family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        // No other host is on our own link, and duplicate address detection would take a second.
        message.header.flags = AddressHeaderFlags::Nodad;
        AddressFamily::Inet6
    };
    message.header.prefix_len = prefix_length;
    message.header.index = read(device)?.index;
    message.attributes = vec![
        AddressAttribute::Address(address),
        AddressAttribute::Local(address),
    ];
    Ok(message)
}
