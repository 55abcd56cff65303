//! Capabilities of the commands that read or serve untrusted data: they give up all others before they begin. A command that is
//! not here keeps all: it changes the host, or runs other programs for its caller.

use std::net::SocketAddr;
use std::path::Path;

use tcpcost_console::format::Format;
use tcpcost_console::output;
use tcpcost_host::privileges::{self, CapabilitySet};
use tcpcost_observe::{By, CommandNeed, WatchArgs};
use tcpcost_relay::Address;

use crate::cli::Command;
use crate::relay;
use crate::trace::TraceArgs;

const fn need(
    command: &'static str,
    when: &'static str,
    capabilities: CapabilitySet,
) -> CommandNeed {
    CommandNeed {
        command,
        when,
        capabilities,
    }
}

const METERS: CommandNeed = need(
    "watch",
    "",
    CapabilitySet::BPF.union(CapabilitySet::PERFMON),
);
const COST: CommandNeed = need(
    "watch",
    "what its own programs cost: self%, --self-max",
    CapabilitySet::SYS_ADMIN,
);
const OWNERS: CommandNeed = need(
    "watch",
    "the screen, --by connection, --by process: processes of other users",
    CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH),
);
const HOLDERS: CommandNeed = need(
    "watch",
    "the screen, --by but connection: whose CPU time it is",
    CapabilitySet::NET_ADMIN,
);
const NETNS: CommandNeed = need(
    "watch",
    "--netns",
    CapabilitySet::SYS_ADMIN.union(CapabilitySet::SYS_PTRACE),
);
const LIVE: CommandNeed = need("trace", "-i", CapabilitySet::NET_RAW);
const CAPTURES: CommandNeed = need(
    "trace",
    "files: captures of other users",
    CapabilitySet::DAC_READ_SEARCH,
);
const PAGE: CommandNeed = need(
    "trace",
    "-o FILE: folders of other users",
    CapabilitySet::DAC_OVERRIDE,
);
const LIMITS: CommandNeed = need(
    "relay",
    "more open files and pipes than a user may have",
    CapabilitySet::SYS_RESOURCE,
);
const UNIX: CommandNeed = need(
    "relay",
    "unix:/PATH: sockets and folders of other users",
    CapabilitySet::DAC_OVERRIDE,
);
/// Capabilities for a TAP or TUN: an interface with several queues steers by an eBPF program.
const INTERFACE: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::BPF);
const RELAY_INTERFACE: CommandNeed = need("relay", "--mode user, user-copy", INTERFACE);
const PEER_INTERFACE: CommandNeed = need("peer", "", INTERFACE);
const SERVED: CommandNeed = need(
    "peer",
    "--service serve:DIR: files of other users",
    CapabilitySet::DAC_READ_SEARCH,
);
const CAPTURE: CommandNeed = need(
    "peer",
    "--pcap: folders of other users",
    CapabilitySet::DAC_OVERRIDE,
);
const PORTS: CommandNeed = need(
    "watch, relay, peer",
    "ports below 1024",
    CapabilitySet::NET_BIND_SERVICE,
);

/// Needs of all commands.
pub const NEEDS: [CommandNeed; 15] = [
    METERS,
    COST,
    OWNERS,
    HOLDERS,
    NETNS,
    LIVE,
    CAPTURES,
    PAGE,
    LIMITS,
    UNIX,
    RELAY_INTERFACE,
    PEER_INTERFACE,
    SERVED,
    CAPTURE,
    PORTS,
];

/// Gives up the capabilities that this command does not need. No thread may run yet. If that is refused (an emulator's own
/// thread, a container's filter of system calls), the command prints so and keeps all capabilities.
pub fn give_up(command: &Command) {
    if matches!(command, Command::Watch(_)) {
        tcpcost_meter::bpf::look_up_functions();
    }
    let needs = match command {
        Command::Watch(args) if args.soak.is_some() => return,
        Command::Watch(args) => watch_needs(args),
        Command::Trace(args) => trace_needs(args),
        Command::Relay(flags) => relay_needs(flags),
        Command::Peer(flags) => peer_needs(flags),
        _ => return,
    };
    let all = needs.into_iter().filter(|(_, is_needed)| *is_needed);
    let wanted = all.fold(CapabilitySet::empty(), |sum, (need, _)| {
        sum | need.capabilities
    });
    match privileges::keep_only(wanted) {
        Ok(kept) => tracing::info!("capabilities kept: {}", privileges::names(kept)),
        Err(error) => output::say!("tcpcost: all capabilities are kept: {error}"),
    }
}

fn watch_needs(args: &WatchArgs) -> Vec<(CommandNeed, bool)> {
    let has_screen = args.output.has(Format::Screen);
    let is_one = |of: By| args.by.contains(&of);
    let shows_owners = is_one(By::Connection) || is_one(By::Process);
    vec![
        (METERS, true),
        (COST, true),
        (OWNERS, has_screen || shows_owners),
        (HOLDERS, shows_holders(args)),
        (NETNS, args.netns.is_some()),
        (PORTS, args.metrics.is_some_and(is_low)),
    ]
}

fn shows_holders(args: &WatchArgs) -> bool {
    let has_screen = args.output.has(Format::Screen);
    let mut by = args.by.iter();
    has_screen || by.any(|by| *by != By::Connection)
}

fn trace_needs(args: &TraceArgs) -> Vec<(CommandNeed, bool)> {
    vec![
        (LIVE, args.interface.is_some()),
        (
            CAPTURES,
            args.files.iter().any(|file| file != Path::new("-")),
        ),
        (PAGE, args.output.has_files()),
    ]
}

fn relay_needs(flags: &relay::Flags) -> Vec<(CommandNeed, bool)> {
    let is_low_one = |address: &Address| matches!(address, Address::Tcp(at) if is_low(*at));
    let is_unix = |address: &Address| matches!(address, Address::Unix(_));
    let listens_low = flags.listen.iter().any(is_low_one) || flags.metrics.is_some_and(is_low);
    vec![
        (LIMITS, true),
        (UNIX, flags.listen.iter().chain(&flags.to).any(is_unix)),
        (RELAY_INTERFACE, flags.mode.is_user()),
        (PORTS, listens_low),
    ]
}

fn peer_needs(flags: &tcpcost_peer::Flags) -> Vec<(CommandNeed, bool)> {
    let forwards_low = flags.forward.iter().any(|forward| is_low(forward.local));
    vec![
        (PEER_INTERFACE, true),
        (SERVED, flags.serves_directory()),
        (CAPTURE, flags.pcap.is_some()),
        (PORTS, forwards_low),
    ]
}

fn is_low(address: SocketAddr) -> bool {
    (1..1024).contains(&address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_is_in_the_documents() {
        let page = include_str!("../../../docs/hosts.md");
        for need in &NEEDS {
            let when = if need.when.is_empty() {
                "always"
            } else {
                need.when
            };
            let names = privileges::names(need.capabilities);
            let row = format!("| `{}` | {when} | {names} |", need.command);
            assert!(page.contains(&row), "{row}");
        }
    }
}
