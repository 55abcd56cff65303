//! Modes `user` and `user-copy` on the command line: our own TCP, with its own interface and
//! addresses, like `tcpcost peer`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tcpcost_console::exit::usage;
use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_relay::{Address, Config, Relay};
use tcpcost_stack::{SocketOptions, UserSettings, UserStack};
use tcpcost_tcp::{Config as Tcp, KeepAlive};

use super::super::not_started;
use super::Flags;
use tcpcost_peer::{KernelSide, Network, check_networks, check_remote, interface_name};

/// The flags of modes `user` and `user-copy`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modes user and user-copy: our own TCP, as in tcpcost peer")]
pub struct UserFlags {
    /// Create or use the TAP interface NAME.
    #[arg(long, value_name = "NAME", value_parser = interface_name)]
    pub tap: Option<String>,
    /// Create or use the TUN interface NAME.
    #[arg(long, value_name = "NAME", conflicts_with = "tap", value_parser = interface_name)]
    pub tun: Option<String>,
    /// Address of our TCP, at which --listen listens; at most one of each family.
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub local: Vec<Network>,
    /// Address of the kernel's side, which is then set up [default: the interface is left as it is].
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub host_address: Vec<Network>,
}

impl UserFlags {
    /// Checks these flags: which are missing, and which have no effect. `is_handed`: the service
    /// manager passed sockets.
    ///
    /// # Errors
    /// The first mistake on the command line.
    pub fn check(&self, flags: &Flags, is_handed: bool) -> anyhow::Result<()> {
        let has_interface = self.tap.is_some() || self.tun.is_some();
        let has_address = !self.local.is_empty() || !self.host_address.is_empty();
        let mode = flags.mode.word();
        if !flags.mode.is_user() {
            let is_any =
                has_interface || has_address || flags.set.policies.choices().next().is_some();
            return if is_any {
                Err(usage(
                    "an interface, addresses and policies of our own TCP need --mode user or user-copy",
                ))
            } else {
                Ok(())
            };
        }
        if !has_interface || self.local.is_empty() {
            return Err(usage(format!(
                "--mode {mode} needs --tap NAME and --local ADDR/PREFIX: our own TCP has an interface and an address of its own"
            )));
        }
        check_networks("--local", &self.local, &[])?;
        check_networks("--host-address", &self.host_address, &self.local)?;
        if is_handed {
            return Err(usage(format!(
                "--mode {mode}: sockets of a service manager are the kernel's"
            )));
        }
        if flags.workers() > 1 {
            return Err(usage(format!(
                "--mode {mode} has one worker: packets come to a thread by their port"
            )));
        }
        for address in &flags.listen {
            let own = |local: &SocketAddr| {
                let is_own = |own: &Network| own.address == local.ip();
                local.ip().is_unspecified() || self.local.iter().any(is_own)
            };
            if !matches!(address, Address::Tcp(local) if own(local)) {
                return Err(usage(format!("--listen {address}: no --local of ours")));
            }
        }
        for address in &flags.to {
            if let Address::Tcp(remote) = address {
                check_remote("--to", *remote, &self.local)?;
            }
        }
        Ok(())
    }

    /// Starts the relay over the interface. Returns the relay, its listening addresses, and the
    /// guard that restores the interface when it is dropped.
    ///
    /// # Errors
    /// The interface cannot be opened or set up, or the relay cannot be started.
    pub fn start(
        &self,
        flags: &Flags,
        config: Config,
    ) -> anyhow::Result<(Relay, Vec<String>, KernelSide)> {
        let (name, layer) = match (&self.tap, &self.tun) {
            (Some(name), _) => (name, Layer::Ethernet),
            (None, name) => (name.as_ref().context("an interface")?, Layer::Ip),
        };
        let mut tap = Tap::open(name, layer, Offloads::ALL)
            .with_context(|| format!("open interface {name}"))?;
        for network in &self.local {
            tap.answer_for(network.address);
        }
        let kernel_side = KernelSide::set_up(tap.name(), None, &self.host_address)?;
        let addresses: Vec<IpAddr> = self.local.iter().map(|own| own.address).collect();
        let networks: Vec<_> = self.local.iter().map(Network::pair).collect();
        let options = SocketOptions {
            send_buffer_bytes: config.send_buffer,
            receive_buffer_bytes: config.receive_buffer,
            nodelay: config.nodelay,
            ..SocketOptions::default()
        };
        let settings = settings(flags, &config, kernel_side.mtu());
        let stack = UserStack::with_settings(tap, &addresses, &settings, &options)?;
        let stack = stack.with_networks(&networks);
        let listen = flags.listen.iter().filter_map(|address| match address {
            Address::Tcp(local) => Some(*local),
            _ => None,
        });
        let started = Relay::start_user(vec![(stack, listen.collect())], config);
        let (relay, local) = started.map_err(not_started)?;
        let local = local.iter().flatten().map(SocketAddr::to_string);
        Ok((relay, local.collect(), kernel_side))
    }
}

/// Returns the settings of our TCP over an interface of this MTU.
fn settings(flags: &Flags, config: &Config, mtu: u32) -> UserSettings {
    let keepalive = config.keepalive.map(|idle| KeepAlive {
        idle,
        // Interval of the relay's kernel sockets, and the kernel's tcp_keepalive_probes.
        interval: (idle / 10).max(Duration::from_secs(1)),
        probes: 9,
    });
    let tcp = Tcp {
        mss: u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX),
        keepalive,
        ..Tcp::default()
    };
    UserSettings::new(&tcp, flags.set.policies.choices())
}
