//! The command line of `tcpcost peer`.

mod local;
mod network;
mod service;
mod settings;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tcpcost_console::exit::usage;
use tcpcost_console::format::{Output, TextOrJson};
use tcpcost_console::set::Set;
use tcpcost_link::Layer;
use tcpcost_tcp::CongestionControl;

use super::service::Service;
pub use local::Forward;
pub use network::{Network, check as check_networks, check_remote};
pub use service::Task;
pub use settings::Settings;

/// Checks a name of an interface by the kernel's rule (`dev_valid_name`).
pub fn interface_name(text: &str) -> Result<String, String> {
    let odd = |byte: u8| matches!(byte, b'/' | b':') || byte.is_ascii_whitespace();
    let fits = (1..16).contains(&text.len()) && !text.bytes().any(odd);
    if fits && text != "." && text != ".." {
        Ok(text.to_string())
    } else {
        Err("expected 1 to 15 bytes without blanks, '/' and ':'".to_string())
    }
}

/// `tcpcost peer`.
#[derive(Debug, Clone, Args)]
#[command(
    after_long_help = "Example, as root, and then from another terminal:\n  \
    tcpcost peer --tap tcp0 --local 10.9.0.2/24 --host-address 10.9.0.1/24 --listen 5201 --service iperf3 --set ack_every=8\n  \
    iperf3 -c 10.9.0.2\n\
Or with --listen 80 --service serve:1GiB, and: curl -o /dev/null http://10.9.0.2/\n\
Or with --forward 8080=10.9.0.1:80, and: curl http://127.0.0.1:8080/ (more: docs/recipes.md)\n\
A wire that is impaired carries ordinary segments, no super-segments."
)]
pub struct Flags {
    /// Create or use the TAP interface NAME.
    #[arg(long, value_name = "NAME", required_unless_present = "tun", value_parser = interface_name)]
    pub tap: Option<String>,
    /// Create or use the TUN interface NAME.
    #[arg(long, value_name = "NAME", conflicts_with = "tap", value_parser = interface_name)]
    pub tun: Option<String>,
    /// Address of our TCP; at most one of each family.
    #[arg(long, value_name = "ADDR/PREFIX", required = true)]
    pub local: Vec<Network>,
    /// Address of the kernel's side, which is then set up [default: the interface is left as it is].
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub host_address: Vec<Network>,
    /// Find hosts of the networks of --local by ARP or neighbour discovery: for a TAP in a bridge. Without it all packets go to
    /// this host.
    #[arg(long, requires = "tap", conflicts_with = "instances")]
    pub resolve: bool,

    /// Listen on this port.
    #[arg(long, value_name = "PORT", required_unless_present_any = ["connect", "forward"], value_parser = clap::value_parser!(u16).range(1..))]
    pub listen: Option<u16>,
    /// Instances, each with a thread, a queue of the interface and a port: --listen and the ports after it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub instances: u16,
    /// Connect once, and end with the connection.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["listen", "instances"])]
    pub connect: Option<SocketAddr>,
    /// Accept at LOCAL:PORT with the kernel's TCP and connect to HOST:PORT with ours; may be repeated. PORT alone is on 127.0.0.1.
    /// This lets an unchanged application use our TCP.
    #[arg(long, value_name = "LOCAL:PORT=HOST:PORT")]
    pub forward: Vec<Forward>,

    /// Service for each connection (sink, echo, source, serve:DIR|SIZE, iperf3 or stdio).
    ///
    /// sink         receive and drop; sink:check compares with the bytes that source sends
    /// echo         send back all bytes
    /// source       send until the peer resets; source:SIZE sends SIZE bytes and closes
    /// serve:DIR    serve the files under DIR over HTTP/1.1
    /// serve:SIZE   answer any HTTP request with SIZE bytes and close
    /// iperf3       be the server of iperf3 clients, several at once: TCP, one direction at a time
    /// stdio        join one connection to standard input and output; messages go to standard error
    #[arg(long, value_name = "WHAT", verbatim_doc_comment)]
    pub service: Option<Task>,
    /// Settings of the peer's TCP and of its wire.
    #[command(flatten)]
    pub set: Set<Settings>,

    /// Format of the lines; the first line of JSON has the configuration.
    #[command(flatten)]
    pub output: Output<TextOrJson>,
    /// Print each second the state of the N busiest connections.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    pub top: Option<u16>,
    /// Write all packets of the interface to FILE, as pcapng.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
}

impl Flags {
    /// Checks that the flags fit together.
    ///
    /// # Errors
    /// The first conflict.
    pub fn check(&self) -> anyhow::Result<()> {
        network::check("--local", &self.local, &[])?;
        network::check("--host-address", &self.host_address, &self.local)?;
        if let Some(remote) = self.connect {
            network::check_remote("--connect", remote, &self.local)?;
        }
        let serves = self.service.is_some();
        if (self.listen.is_some() || self.connect.is_some()) != serves {
            return Err(usage(if serves {
                "--service needs --listen or --connect"
            } else {
                "--listen and --connect need --service, which handles the connections"
            }));
        }
        self.check_service()?;
        self.set.wire.check()?;
        let hystart = self.set.settings(MTU_MIN).config.hystart;
        if hystart && matches!(self.set.congestion_control.0, CongestionControl::Fixed(_)) {
            return Err(usage("--set hystart=on has no effect on a fixed window"));
        }
        let ports_left = self.listen.map_or(0, |first| u16::MAX - first);
        if self.listen.is_some() && ports_left < self.instances - 1 {
            return Err(usage(format!(
                "--listen leaves {} ports for {} --instances",
                ports_left + 1,
                self.instances
            )));
        }
        if self.tap.is_some() && self.set.mtu.is_some_and(|mtu| mtu > TAP_MTU_MAX) {
            return Err(usage(format!(
                "--set mtu of a TAP is {TAP_MTU_MAX} at most: its frames have a header of 14 bytes"
            )));
        }
        Ok(())
    }

    /// Checks that the service fits the other flags.
    fn check_service(&self) -> anyhow::Result<()> {
        let refused = match &self.service {
            Some(Task::Files(_) | Task::Simple(Service::Serve(_)) | Task::Iperf3) => self
                .connect
                .is_some()
                .then_some("serve and iperf3 need --listen, not --connect"),
            Some(Task::Stdio) => (self.instances > 1 || !self.forward.is_empty())
                .then_some("stdio has one connection: no --instances or --forward"),
            _ => None,
        };
        refused.map_or(Ok(()), |why| Err(usage(format!("--service: {why}"))))
    }

    /// True if files of this host are served.
    pub fn serves_directory(&self) -> bool {
        matches!(self.service, Some(Task::Files(_)))
    }

    /// Checks that the MSS fits the interface.
    ///
    /// # Errors
    /// The MSS is larger than the interface's MTU allows, so no segment of that size would be sent.
    pub fn check_mtu(&self, mtu: u32) -> anyhow::Result<()> {
        let most = mtu.saturating_sub(40);
        match self.set.mss {
            Some(mss) if u32::from(mss) > most => Err(usage(format!(
                "--set mss={mss} does not fit an MTU of {mtu}: {most} at most, or a larger mtu"
            ))),
            _ => Ok(()),
        }
    }

    /// Name and layer of the interface.
    pub fn interface(&self) -> (&str, Layer) {
        match (&self.tap, &self.tun) {
            (Some(name), _) => (name, Layer::Ethernet),
            (None, name) => (
                name.as_deref().expect("clap asks for one of the two"),
                Layer::Ip,
            ),
        }
    }
}

/// Smallest MTU of IPv6 (RFC 8200 §5).
const MTU_MIN: u32 = 1280;
/// The kernel counts the frame's header in its 65,535 bytes (`tun_net_init`).
const TAP_MTU_MAX: u32 = 65_521;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_that_the_kernel_takes_as_it_is() {
        assert_eq!(interface_name("tcp0"), Ok("tcp0".to_string()));
        for wrong in ["", ".", "..", "a/b", "a b", "a:b", "sixteen-bytes-it"] {
            assert!(interface_name(wrong).is_err(), "{wrong}");
        }
    }
}
