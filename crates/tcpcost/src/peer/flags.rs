//! The command line of `tcpcost peer`, and the choices of TCP and wire that it stands for.

mod local;
mod network;
mod wire;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use tcpcost_link::{Layer, Offloads};
use tcpcost_stack::UserSettings;
use tcpcost_study::units;
use tcpcost_tcp::{Config, CongestionControl, KeepAlive, Nagle};

use super::policy::PolicyFlags;
use crate::exit::usage;
pub use local::Forward;
pub use network::{Network, check as check_networks, check_remote};
pub use wire::WireFlags;

/// A congestion control by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Congestion(CongestionControl);

impl FromStr for Congestion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected cubic, reno or fixed:SIZE".to_string();
        Ok(Self(match text.split_once(':') {
            None if text == "cubic" => CongestionControl::Cubic,
            None if text == "reno" => CongestionControl::NewReno,
            Some(("fixed", size)) => CongestionControl::Fixed(size_of(size)?),
            _ => return Err(wrong()),
        }))
    }
}

fn size_of(text: &str) -> Result<u32, String> {
    let bytes = units::bytes(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes)
        .ok()
        .filter(|&bytes| bytes < 1 << 30)
        .ok_or_else(|| "expected less than 1GiB".to_string())
}

/// A buffer holds a segment or two at the least, as the kernel's do (SOCK_MIN_SNDBUF is 4.5 KiB): with
/// less each segment waits for the acknowledgement of the one before.
fn buffer(text: &str) -> Result<u32, String> {
    size_of(text)
        .ok()
        .filter(|&bytes| bytes >= 4096)
        .ok_or_else(|| "expected a size from 4KiB to less than 1GiB".to_string())
}

/// What the kernel takes for the name of an interface (`dev_valid_name`).
pub fn interface_name(text: &str) -> Result<String, String> {
    let odd = |byte: u8| matches!(byte, b'/' | b':') || byte.is_ascii_whitespace();
    let fits = (1..16).contains(&text.len()) && !text.bytes().any(odd);
    if fits && text != "." && text != ".." {
        Ok(text.to_string())
    } else {
        Err("expected 1 to 15 bytes without blanks, '/' and ':'".to_string())
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    units::bytes(text).map_err(|error| error.to_string())
}

fn ratio(text: &str) -> Result<f64, String> {
    units::ratio(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    units::duration(text).map_err(|error| error.to_string())
}

fn wait(text: &str) -> Result<Duration, String> {
    time(text).and_then(|time| match time {
        time if time >= WAIT_MIN => Ok(time),
        _ => Err("expected 10ms or more".to_string()),
    })
}

/// `tcpcost peer`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Example, as root, and then from another terminal:\n  \
    tcpcost peer --tap tcp0 --address 10.9.0.2/24 --host-address 10.9.0.1/24 --listen 5201 --iperf3 --ack-every 8\n  \
    iperf3 -c 10.9.0.2\n\
Or with --listen 80 --serve 1GiB, and: curl -o /dev/null http://10.9.0.2/\n\
Or with --forward 8080=10.9.0.1:80, and: curl http://127.0.0.1:8080/ (more: docs/recipes.md)\n\
A wire that is impaired carries ordinary segments, no super-segments.")]
pub struct Flags {
    /// Make or take the TAP interface NAME.
    #[arg(long, value_name = "NAME", required_unless_present = "tun", value_parser = interface_name)]
    pub tap: Option<String>,
    /// Make or take the TUN interface NAME.
    #[arg(long, value_name = "NAME", conflicts_with = "tap", value_parser = interface_name)]
    pub tun: Option<String>,
    /// Our address; one of each family at most.
    #[arg(long, value_name = "ADDR/PREFIX", required = true)]
    pub address: Vec<Network>,
    /// Address to give the kernel's side and take it up; without it the interface is left as it is.
    #[arg(long, value_name = "ADDR/PREFIX")]
    pub host_address: Vec<Network>,
    /// Ask for the hosts of the networks of --address by ARP or neighbour discovery, instead of
    /// taking this host for all of them: for a TAP in a bridge.
    #[arg(long, requires = "tap", conflicts_with = "instances")]
    pub resolve: bool,

    /// Take connections to this port.
    #[arg(long, value_name = "PORT", required_unless_present_any = ["connect", "forward"], value_parser = clap::value_parser!(u16).range(1..))]
    pub listen: Option<u16>,
    /// Run so many instances, each on a thread and a queue of the interface by itself, with as many
    /// ports in a row from --listen on: connections to one port are one instance's.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub instances: u16,
    /// Connect once, and end when the connection has.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with_all = ["listen", "instances"])]
    pub connect: Option<SocketAddr>,
    /// Listen with the kernel's TCP at LOCAL:PORT (PORT alone: on 127.0.0.1) and connect whoever comes
    /// to HOST:PORT by ours: an application as it is uses our TCP. May be repeated.
    #[arg(long, value_name = "LOCAL:PORT=HOST:PORT")]
    pub forward: Vec<Forward>,

    /// What to do with connections.
    #[command(flatten)]
    pub service: ServiceFlags,
    /// Bytes after which --source closes [default: goes on until the peer resets].
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "source")]
    pub bytes: Option<u64>,
    /// Compare what --sink receives with the bytes that --source sends: byte n is n modulo 251.
    #[arg(long, requires = "sink")]
    pub check: bool,

    /// Most payload of one segment, without options [default: the MTU less 40, IPv6 less 60].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(88..=65_495))]
    pub mss: Option<u16>,
    /// MTU to set on the interface: 1280 to 65535, of a TAP to 65521.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65_535))]
    pub mtu: Option<u32>,
    /// Congestion control: cubic, reno or fixed:SIZE.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub cc: Congestion,
    /// Send buffer, from 4KiB [default: 1MiB].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub send_buffer: Option<u32>,
    /// Receive buffer, from 4KiB; ends its tuning [default: 256KiB to 4MiB].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub receive_buffer: Option<u32>,
    /// Send partial segments at once (TCP_NODELAY).
    #[arg(long)]
    pub nodelay: bool,
    /// Use explicit congestion notification.
    #[arg(long)]
    pub ecn: bool,
    /// Offer no selective acknowledgements.
    #[arg(long)]
    pub no_sack: bool,
    /// Offer no timestamps.
    #[arg(long)]
    pub no_timestamps: bool,
    /// Probe a connection on which nothing was heard for so long, e.g. 60s (RFC 9293 §3.8.4)
    /// [default: none is probed].
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub keepalive: Option<Duration>,
    /// Time between probes.
    #[arg(long, value_name = "TIME", value_parser = wait, default_value = "75s", requires = "keepalive")]
    pub keepalive_interval: Duration,
    /// Probes without an answer after which the connection ends.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..), default_value_t = 9, requires = "keepalive")]
    pub keepalive_probes: u8,
    /// End a connection when what was sent stays unacknowledged for so long (RFC 9293 §3.8.3,
    /// RFC 5482) [default: after 15 timeouts in a row, about a quarter of an hour].
    #[arg(long, value_name = "TIME", value_parser = wait)]
    pub user_timeout: Option<Duration>,
    /// No segmentation and checksum offload, in either direction.
    #[arg(long)]
    pub no_offloads: bool,

    /// What is wrong with the wire.
    #[command(flatten)]
    pub wire: WireFlags,

    /// One JSON object a line; the first has the configuration.
    #[arg(long)]
    pub json: bool,
    /// Say each second of N connections, the busiest first, where they stand.
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: Option<u16>,
    /// Write what passes the interface to FILE, as pcapng.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Policies of its TCP.
    #[command(flatten)]
    pub policies: PolicyFlags,
}

/// `--serve`: a size, else a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serve {
    /// So many bytes whatever is asked for.
    Bytes(u64),
    /// Its files.
    Directory(PathBuf),
}

fn serve(text: &str) -> Result<Serve, String> {
    match units::bytes(text) {
        Ok(bytes) => Ok(Serve::Bytes(bytes)),
        Err(_) if Path::new(text).is_dir() => Ok(Serve::Directory(text.into())),
        Err(error) => Err(format!(
            "expected a directory that is there, or a size: {error}"
        )),
    }
}

/// What to do with connections of --listen or --connect: one of these.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub struct ServiceFlags {
    /// Receive and drop.
    #[arg(long)]
    pub sink: bool,
    /// Send back what comes.
    #[arg(long)]
    pub echo: bool,
    /// Send without end, or as many as --bytes says.
    #[arg(long)]
    pub source: bool,
    /// Serve the files under DIR over HTTP/1.1; or answer any HTTP request with SIZE bytes and close.
    #[arg(long, value_name = "DIR|SIZE", value_parser = serve, conflicts_with = "connect")]
    pub serve: Option<Serve>,
    /// Send what standard input brings and write what comes to standard output: one connection, and the
    /// end with it. What else there is to say goes to standard error.
    #[arg(long, conflicts_with_all = ["instances", "forward"])]
    pub stdio: bool,
    /// Be the server of iperf3 clients, of several at once: TCP, one way at a time (not --bidir).
    #[arg(long, conflicts_with = "connect")]
    pub iperf3: bool,
}

impl ServiceFlags {
    /// True if files of this host are served.
    pub fn serves_directory(&self) -> bool {
        matches!(self.serve, Some(Serve::Directory(_)))
    }

    fn is_any(&self) -> bool {
        self.sink || self.echo || self.source || self.serve.is_some() || self.iperf3 || self.stdio
    }
}

impl Flags {
    /// What no single flag can be blamed for.
    ///
    /// # Errors
    /// The first that cannot be.
    pub fn check(&self) -> anyhow::Result<()> {
        network::check("--address", &self.address, &[])?;
        network::check("--host-address", &self.host_address, &self.address)?;
        if let Some(remote) = self.connect {
            network::check_remote("--connect", remote, &self.address)?;
        }
        let serves = self.service.is_any();
        if (self.listen.is_some() || self.connect.is_some()) != serves {
            return Err(usage(if serves {
                "what is done with connections needs --listen or --connect"
            } else {
                "--listen and --connect need one of --sink, --echo, --source, --serve, --iperf3, --stdio"
            }));
        }
        self.wire.check()?;
        let hystart = self.settings(MTU_MIN).config.hystart;
        if hystart && matches!(self.cc.0, CongestionControl::Fixed(_)) {
            return Err(usage("--hystart has no effect on a window that is fixed"));
        }
        let ports_left = self.listen.map_or(0, |first| u16::MAX - first);
        if self.listen.is_some() && ports_left < self.instances - 1 {
            return Err(usage(format!(
                "--listen leaves {} ports for {} --instances",
                ports_left + 1,
                self.instances
            )));
        }
        if self.tap.is_some() && self.mtu.is_some_and(|mtu| mtu > TAP_MTU_MAX) {
            return Err(usage(format!(
                "--mtu of a TAP is {TAP_MTU_MAX} at most: its frames have a header of 14 bytes"
            )));
        }
        Ok(())
    }

    /// Whether `--mss` fits the interface.
    ///
    /// # Errors
    /// It does not: segments of that size would never be seen.
    pub fn check_mtu(&self, mtu: u32) -> anyhow::Result<()> {
        let most = mtu.saturating_sub(40);
        match self.mss {
            Some(mss) if u32::from(mss) > most => Err(usage(format!(
                "--mss {mss} does not fit an MTU of {mtu}: {most} at most, or a larger --mtu"
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

    /// What the interface is to do: nothing on an impaired wire, where what is lost is a packet and
    /// what is changed must show in a checksum.
    pub fn offloads(&self) -> Offloads {
        if self.no_offloads || !self.wire.is_whole() {
            Offloads::NONE
        } else {
            Offloads::ALL
        }
    }

    /// The choices of its TCP over an interface of this MTU.
    pub fn settings(&self, mtu: u32) -> UserSettings {
        let mut config = Config::default();
        let fits = u16::try_from(mtu.saturating_sub(40)).unwrap_or(u16::MAX);
        config.mss = self.mss.unwrap_or(fits);
        config.congestion = self.cc.0;
        config.send_buffer = self.send_buffer.unwrap_or(config.send_buffer);
        if let Some(bytes) = self.receive_buffer {
            (config.receive_buffer, config.receive_buffer_max) = (bytes, 0);
        }
        if self.nodelay {
            config.segmentation.nagle = Nagle::Off;
        }
        config.keepalive = self.keepalive.map(|idle| KeepAlive {
            idle,
            interval: self.keepalive_interval,
            probes: self.keepalive_probes,
        });
        config.user_timeout = self.user_timeout;
        config.ecn = self.ecn;
        config.sack = !self.no_sack;
        config.timestamps = !self.no_timestamps;
        UserSettings::new(&config, self.policies.choices())
    }
}

/// Shorter than a timer's floor; with none at all the timer would never rest.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Of IPv6.
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

    #[test]
    fn a_buffer_holds_a_few_segments() {
        assert_eq!(buffer("4KiB"), Ok(4096));
        for wrong in ["1B", "0B", "4095B", "1GiB", "x"] {
            assert!(buffer(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_fixed_window_has_a_size() {
        let fixed = Congestion(CongestionControl::Fixed(65536));
        assert_eq!("fixed:64KiB".parse(), Ok(fixed));
        for wrong in ["fixed", "fixed:", "bbr", "fixed:2GiB"] {
            assert!(wrong.parse::<Congestion>().is_err(), "{wrong}");
        }
    }
}
