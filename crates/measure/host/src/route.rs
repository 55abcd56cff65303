//! Route to the peer: its `quickack` metric, and its description in ip-route's words.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::SystemError;
use crate::link;
use crate::netlink::ask;

/// True if the route over `device` to `peer` has `quickack 1`.
pub fn read_quickack(device: &str, peer: IpAddr) -> Result<bool, SystemError> {
    let route = device_route(device, peer)?;
    Ok(metrics(&route).contains(&RouteMetric::QuickAck(1)))
}

/// Sets or clears `quickack` on the route over `device` to `peer`; all else of the route is kept.
///
/// Connections adopt it at once: the kernel reads the route whenever it considers an ACK.
pub fn set_quickack(device: &str, peer: IpAddr, on: bool) -> Result<(), SystemError> {
    let mut route = device_route(device, peer)?;
    let mut wanted = metrics(&route);
    wanted.retain(|metric| !matches!(metric, RouteMetric::QuickAck(_)));
    if on {
        wanted.push(RouteMetric::QuickAck(1));
    }
    route.attributes.retain(|attribute| {
        !matches!(
            attribute,
            RouteAttribute::Metrics(_) | RouteAttribute::CacheInfo(_)
        )
    });
    if !wanted.is_empty() {
        route.attributes.push(RouteAttribute::Metrics(wanted));
    }
    // The kernel refuses its own flag for "the link is down".
    route.header.flags = RouteFlags::empty();
    ask(
        &format!("set quickack of the route over {device} to {peer}"),
        RouteNetlinkMessage::NewRoute(route),
        NLM_F_CREATE | NLM_F_REPLACE,
    )?;
    Ok(())
}

/// Adds a route through a neighbour to a network, given by its first address and the length of its
/// prefix.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; ENETUNREACH if no device leads to the neighbour.
pub fn add(to: IpAddr, prefix: u8, via: IpAddr) -> Result<(), SystemError> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to).0;
    message.header.destination_prefix_length = prefix;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(to.into()),
        RouteAttribute::Gateway(via.into()),
    ];
    let tried = format!("add a route to {to}/{prefix} via {via}");
    ask(
        &tried,
        RouteNetlinkMessage::NewRoute(message),
        NLM_F_CREATE | NLM_F_EXCL,
    )?;
    Ok(())
}

/// Describes the route that packets to `peer` take, in the words of `ip route get`, with metrics;
/// e.g. `10.9.0.2 dev tc0 src 10.9.0.1 quickack 1`.
pub fn describe(peer: IpAddr) -> Result<String, SystemError> {
    let mut message = RouteMessage::default();
    let (family, length) = family(peer);
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.attributes = vec![RouteAttribute::Destination(peer.into())];
    let tried = format!("read the route to {peer}");
    let answers = ask(&tried, RouteNetlinkMessage::GetRoute(message), 0)?;
    let Some(RouteNetlinkMessage::NewRoute(route)) = answers.into_iter().next() else {
        return Err(SystemError::strange(tried, "no answer"));
    };
    let mut words = match route.header.kind {
        RouteType::Unicast => String::new(),
        kind => format!("{kind:?} ").to_lowercase(),
    };
    words.push_str(&peer.to_string());
    let mut after = String::new();
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(via)) => {
                words.push_str(&format!(" via {via}"));
            }
            RouteAttribute::Gateway(RouteAddress::Inet6(via)) => {
                words.push_str(&format!(" via {via}"));
            }
            RouteAttribute::Oif(index) => {
                words.push_str(&format!(" dev {}", device_name(*index)));
            }
            RouteAttribute::PrefSource(RouteAddress::Inet(source)) => {
                after.push_str(&format!(" src {source}"));
            }
            RouteAttribute::PrefSource(RouteAddress::Inet6(source)) => {
                after.push_str(&format!(" src {source}"));
            }
            _ => {}
        }
    }
    for metric in metrics(&route) {
        after.push_str(&match metric {
            RouteMetric::QuickAck(value) => format!(" quickack {value}"),
            RouteMetric::Mtu(value) => format!(" mtu {value}"),
            RouteMetric::Advmss(value) => format!(" advmss {value}"),
            RouteMetric::Window(value) => format!(" window {value}"),
            RouteMetric::InitCwnd(value) => format!(" initcwnd {value}"),
            RouteMetric::InitRwnd(value) => format!(" initrwnd {value}"),
            RouteMetric::Cwnd(value) => format!(" cwnd {value}"),
            RouteMetric::RtoMin(value) => format!(" rto_min {value}ms"),
            RouteMetric::CcAlgo(name) => format!(" congctl {name}"),
            RouteMetric::Lock(_) => continue,
            other => format!(" {other:?}").to_lowercase(),
        });
    }
    Ok(words + &after)
}

/// Most specific route of the main table over `device` that contains `peer`.
fn device_route(device: &str, peer: IpAddr) -> Result<RouteMessage, SystemError> {
    let index = link::read(device)?.index;
    let tried = format!("read the route over {device} to {peer}");
    let mut message = RouteMessage::default();
    message.header.address_family = family(peer).0;
    message.header.protocol = RouteProtocol::Unspec;
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unspec;
    let answers = ask(&tried, RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)?;
    answers
        .into_iter()
        .filter_map(|answer| match answer {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        })
        .filter(|route| {
            route.header.table == RouteHeader::RT_TABLE_MAIN
                && route.attributes.contains(&RouteAttribute::Oif(index))
                && holds(route, peer)
        })
        .max_by_key(|route| route.header.destination_prefix_length)
        .ok_or_else(|| {
            let none = std::io::Error::from_raw_os_error(libc::ENOENT);
            SystemError::new(tried, none)
        })
}

fn holds(route: &RouteMessage, peer: IpAddr) -> bool {
    let length = u32::from(route.header.destination_prefix_length);
    let destination = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(net)) => Some(IpAddr::V4(*net)),
            RouteAttribute::Destination(RouteAddress::Inet6(net)) => Some(IpAddr::V6(*net)),
            _ => None,
        });
    match (destination, peer) {
        (None, _) => length == 0,
        (Some(IpAddr::V4(net)), IpAddr::V4(peer)) => {
            let differing = u32::from(net) ^ u32::from(peer);
            differing.leading_zeros() >= length
        }
        (Some(IpAddr::V6(net)), IpAddr::V6(peer)) => {
            let differing = u128::from(net) ^ u128::from(peer);
            differing.leading_zeros() >= length
        }
        _ => false,
    }
}

fn metrics(route: &RouteMessage) -> Vec<RouteMetric> {
    let of = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::Metrics(metrics) => Some(metrics.clone()),
        _ => None,
    };
    route.attributes.iter().find_map(of).unwrap_or_default()
}

fn family(address: IpAddr) -> (AddressFamily, u8) {
    match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    }
}

#[allow(unsafe_code, reason = "if_indextoname without a socket")]
pub(crate) fn device_name(index: u32) -> String {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the IF_NAMESIZE bytes that the call may write.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return format!("if{index}");
    }
    let bytes: Vec<u8> = name
        .iter()
        .take_while(|&&byte| byte != 0)
        .map(|&byte| byte.to_ne_bytes()[0])
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
