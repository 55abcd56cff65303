//! A bed for one test: this process moves into a network namespace, a netserver is started in another one,
//! and a veth pair joins the two. The bed ends with the last process of its namespaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use tcpcost_host::error::SystemError;
use tcpcost_host::link::{add_address, create_veth, set_up};
use tcpcost_host::namespace::{
    NamespaceMethod, NetworkOf, can_make_namespaces, enter_new, enter_user_namespace,
};

use crate::Failure;
use crate::started::{Started, own_program};

/// Addresses of the two ends, of IPv4 and of IPv6.
const CLIENT: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 57, 0, 1)), 30),
    (IpAddr::V6(Ipv6Addr::new(0xfd57, 0, 0, 0, 0, 0, 0, 1)), 64),
];
const SERVER: [(IpAddr, u8); 2] = [
    (IpAddr::V4(Ipv4Addr::new(10, 57, 0, 2)), 30),
    (IpAddr::V6(Ipv6Addr::new(0xfd57, 0, 0, 0, 0, 0, 0, 2)), 64),
];

/// Makes the bed. Returns the netserver and its address.
///
/// # Errors
/// 255: namespaces cannot be made here; the programs unshare(1) and sh(1) are missing.
pub(crate) fn start(is_ipv6: bool) -> Result<(Started, SocketAddr), Failure> {
    let failed = |why: String| Failure::remote(format!("make a bed for the test: {why}"));
    let system = |error: SystemError| failed(error.to_string());
    if let NamespaceMethod::UserNamespace = can_make_namespaces().map_err(system)? {
        enter_user_namespace().map_err(system)?;
    }
    enter_new().map_err(system)?;
    let (server, _) = SERVER[usize::from(is_ipv6)];
    // The shell waits for a line and becomes netserver only once its device exists.
    let mut command = Command::new("unshare");
    command
        .args(["--net", "sh", "-c", "echo; read -r _ && exec \"$@\"", "sh"])
        .arg(own_program()?)
        .args([
            "netserver",
            "-D",
            "-e",
            "-p",
            "0",
            "-L",
            &server.to_string(),
        ]);
    // No other process is in its namespace, so it can stay root.
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    let mut started = Started::new(command).map_err(|why| failed(format!("unshare: {why}")))?;
    let no_namespace = || failed("unshare made no namespace".to_string());
    if started.line().as_deref() != Some("\n") {
        return Err(no_namespace());
    }
    let pid = started.pid();
    create_veth("tcpcost0", "tcpcost1", pid).map_err(system)?;
    take_up("tcpcost0", CLIENT).map_err(system)?;
    let theirs = NetworkOf::process(pid).map_err(system)?;
    let theirs = theirs.ok_or_else(no_namespace)?;
    let up = || set_up("lo").and_then(|()| take_up("tcpcost1", SERVER));
    theirs.within(up).and_then(|done| done).map_err(system)?;
    let address = started.go_on().and_then(|()| started.address());
    let address = address.map_err(|error| failed(error.to_string()))?;
    Ok((started, address))
}

fn take_up(device: &str, addresses: [(IpAddr, u8); 2]) -> Result<(), SystemError> {
    set_up(device)?;
    for (address, prefix_length) in addresses {
        // A kernel without IPv6 refuses only the IPv6 address.
        match add_address(device, address, prefix_length) {
            Err(error) if address.is_ipv4() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
