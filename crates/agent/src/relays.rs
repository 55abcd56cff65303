//! The relays of a host in the middle: one for each port of the host behind it, so that who connects to a port finds the same
//! port of the other host's.

use std::net::{IpAddr, SocketAddr};

use tcpcost_relay::{Address, Config, Mode, Relay, bind};
use tcpcost_study::{FlowGroup, RelayMode};

use crate::protocol::Prepare;
use crate::{PrepareError, failed};

/// Relays that run; they end with this.
pub struct Relays(Vec<(SocketAddr, Option<Relay>)>);

impl Relays {
    /// Starts a relay for each target, on ports of `address` that the kernel chooses, on the host's CPUs.
    pub fn start(
        prepare: &Prepare,
        groups: &[FlowGroup],
        address: IpAddr,
        targets: &[SocketAddr],
    ) -> Result<Relays, PrepareError> {
        let mode = prepare.knobs.word("relay_mode").unwrap_or_default();
        let mode = match RelayMode::from_word(&mode) {
            Some(RelayMode::Copy) => Mode::Copy,
            Some(RelayMode::Splice) => Mode::Splice,
            Some(RelayMode::IoUring) => Mode::IoUring,
            Some(RelayMode::Auto) => Mode::Auto,
            Some(RelayMode::Forward) | None => return Ok(Relays(Vec::new())),
        };
        let settings = &groups[0].settings;
        let flows: usize = groups.iter().map(|group| group.settings.flows).sum();
        let mut relays = Relays(Vec::new());
        for (&target, &cpu) in targets.iter().zip(prepare.cpus.iter().cycle()) {
            let config = Config {
                mode,
                cpus: vec![cpu],
                connections_max: flows.max(1),
                nodelay: settings.nodelay,
                congestion_control: Some(settings.congestion_control.clone()),
                send_buffer: settings.send_buffer_bytes,
                receive_buffer: settings.receive_buffer_bytes,
                keepalive: None,
                ..Config::new(Address::Tcp(target))
            };
            let any = Address::Tcp(SocketAddr::new(address, 0));
            let listeners = bind(&[any], 1, &config).map_err(|(_, error)| failed(error))?;
            let local = listeners.iter().flatten().find_map(|one| one.local_addr());
            let local = local.expect("a listener of TCP has an address");
            let relay = Relay::start(listeners, config).map_err(|error| match error {
                tcpcost_relay::StartError::Unavailable { .. } => PrepareError::Unsupported {
                    knob: "relay_mode".to_string(),
                    reason: error.to_string(),
                },
                other => failed(other),
            })?;
            relays.0.push((local, Some(relay)));
        }
        Ok(relays)
    }

    /// Where connections are taken, in the order of the targets.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(|(address, _)| *address).collect()
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        let relays: Vec<Relay> = self
            .0
            .iter_mut()
            .filter_map(|(_, one)| one.take())
            .collect();
        for relay in &relays {
            relay.stopper().end();
        }
        for relay in relays {
            // What a worker died of was told by its connections' ends.
            let _ = relay.wait();
        }
    }
}
