//! Devices: making a veth pair, addresses, MTU, and how large super-segments may be.

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

/// A device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index in this namespace.
    pub index: u32,
    /// Whether it is up.
    pub up: bool,
    /// MTU, bytes.
    pub mtu: u32,
    /// Packets that its queue holds (txqueuelen); of a TUN or TAP, those that its program has not read.
    pub tx_queue_len: u32,
    /// Most segments in a super-segment.
    pub gso_max_segs: u32,
    /// Most bytes in a super-segment (IPv6, and IPv4 on kernels before 6.3).
    pub gso_max_size: u32,
    /// Most bytes in a super-segment of IPv4; `None` on kernels before 6.3.
    pub gso_ipv4_max_size: Option<u32>,
    /// Most bytes that GRO merges (IPv6, and IPv4 on kernels before 6.3).
    pub gro_max_size: u32,
    /// Most bytes of IPv4 that GRO merges; `None` on kernels before 6.3.
    pub gro_ipv4_max_size: Option<u32>,
    /// Name of the root qdisc.
    pub qdisc: String,
}

/// Reads a device.
///
/// # Errors
/// ENODEV where there is none of this name in this namespace.
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

/// Makes a veth pair: `name` here, `peer_name` at once in the network namespace of the process (or
/// thread) `peer_pid`. Both are down and have no address.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN here and there, EEXIST where the name is taken, ESRCH where the
/// process has gone.
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

/// Takes a device up.
pub fn set_up(device: &str) -> Result<(), SystemError> {
    set_flags(device, LinkFlags::Up, "up")
}

/// Takes a device down: its routes and its IPv6 addresses go.
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
/// EPERM without CAP_NET_ADMIN here and there, ESRCH where the process has gone.
pub fn move_to(device: &str, pid: u32) -> Result<(), SystemError> {
    let what = format!("namespace of process {pid}");
    change(device, &what, vec![LinkAttribute::NetNsPid(pid)])
}

/// Moves a device to a network namespace that is open. It is down and has no address there.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN here and there; EEXIST where the name is taken there.
pub fn move_to_namespace(device: &str, namespace: BorrowedFd<'_>) -> Result<(), SystemError> {
    let fd = namespace.as_raw_fd();
    change(device, "namespace", vec![LinkAttribute::NetNsFd(fd)])
}

/// Moves a device to the network namespace of a process, where it has this name.
///
/// # Errors
/// As of [`move_to`]; EEXIST where the name is taken there.
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

/// Sets how many packets its queue holds.
pub fn set_tx_queue_len(device: &str, packets: u32) -> Result<(), SystemError> {
    let what = format!("txqueuelen {packets}");
    change(device, &what, vec![LinkAttribute::TxQueueLen(packets)])
}

/// Sets the most segments in a super-segment. Connections take it up when they connect.
pub fn set_gso_max_segs(device: &str, segments: u32) -> Result<(), SystemError> {
    let what = format!("gso_max_segs {segments}");
    change(device, &what, vec![LinkAttribute::GsoMaxSegs(segments)])
}

/// Sets the most bytes in a super-segment, IPv4's own limit (kernel 6.3 and later) as given.
pub fn set_gso_max_size(
    device: &str,
    bytes: u32,
    ipv4_bytes: Option<u32>,
) -> Result<(), SystemError> {
    let mut attributes = vec![LinkAttribute::GsoMaxSize(bytes)];
    attributes.extend(ipv4_bytes.map(LinkAttribute::GsoIpv4MaxSize));
    change(device, &format!("gso_max_size {bytes}"), attributes)
}

/// Sets the most bytes that GRO merges, IPv4's own limit (kernel 6.3 and later) as given.
pub fn set_gro_max_size(
    device: &str,
    bytes: u32,
    ipv4_bytes: Option<u32>,
) -> Result<(), SystemError> {
    let mut attributes = vec![LinkAttribute::GroMaxSize(bytes)];
    attributes.extend(ipv4_bytes.map(LinkAttribute::GroIpv4MaxSize));
    change(device, &format!("gro_max_size {bytes}"), attributes)
}

/// Gives a device an address; the route to its prefix comes with it when the device is up.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN, EEXIST where it has it already.
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

/// Takes an address from a device.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN, EADDRNOTAVAIL where it has it not.
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
        // Nobody else is on a link of our own, and a second of asking around would be lost.
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
