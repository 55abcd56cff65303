//! Relays of a host in the middle of a chain: one relay for each listening port of the next host, so that a
//! connection to a relay reaches the port that belongs to it.

use std::net::{IpAddr, SocketAddr};

use tcpcost_meter::{Meter, MeterError};
use tcpcost_relay::{Address, Config, Counters, Relay, StartError, bind};
use tcpcost_study::{
    CountOwner, Counts, FlowGroup, KnobError, MeterName, Quantity, Snapshot, Totals,
};

use crate::backend::{self, Backend};
use crate::protocol::{Prepare, clock_ns};
use crate::{PrepareError, failed, policy};

/// Running relays, which end when this is dropped.
#[derive(Default)]
pub struct Relays {
    /// Each relay with the address where it accepts connections.
    all: Vec<(SocketAddr, Option<Relay>)>,
    /// Counters of the relays by our own TCP.
    counters: Vec<Counters>,
}

impl Relays {
    /// Starts a relay for each target, on ports of `address` that the stack chooses, on the host's CPUs.
    pub fn start(
        prepare: &Prepare,
        groups: &[FlowGroup],
        backend: &Backend,
        address: IpAddr,
        targets: &[SocketAddr],
    ) -> Result<Relays, PrepareError> {
        let Some(mode) = prepare.knobs.relay_mode() else {
            return Ok(Relays::default());
        };
        let settings = &groups[0].settings;
        let flows: usize = groups
            .iter()
            .map(|group| group.settings.connections())
            .sum();
        let mut relays = Relays::default();
        for (index, &target) in targets.iter().enumerate() {
            let config = Config {
                mode,
                cpus: vec![prepare.cpus[index % prepare.cpus.len()]],
                connections_max: flows.max(1),
                nodelay: settings.nodelay,
                congestion_control: Some(settings.congestion_control.clone()),
                send_buffer: settings.send_buffer_bytes,
                receive_buffer: settings.receive_buffer_bytes,
                keepalive: None,
                ..Config::new(Address::Tcp(target))
            };
            let any = SocketAddr::new(address, 0);
            let (relay, local) = match backend {
                Backend::Tap(_) => over_ours(prepare, groups, backend, index, any, config)?,
                _ => over_the_kernels(any, config)?,
            };
            if mode.is_user() {
                relays.counters.push(relay.counters());
            }
            relays.all.push((local, Some(relay)));
        }
        Ok(relays)
    }

    /// Addresses of the relays, in the order of the targets.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.all.iter().map(|(address, _)| *address).collect()
    }

    /// Meter of our own TCP's counts. `None` if our TCP does not relay.
    pub fn meter(&self) -> Option<Box<dyn Meter + Send>> {
        (!self.counters.is_empty()).then(|| Box::new(UserTcpMeter(self.counters.clone())) as _)
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        let all = self.all.iter_mut();
        let relays: Vec<Relay> = all.filter_map(|(_, one)| one.take()).collect();
        for relay in &relays {
            relay.stopper().end();
        }
        for relay in relays {
            // A worker that failed has closed its connections, which the trial notices.
            let _ = relay.wait();
        }
    }
}

fn over_the_kernels(any: SocketAddr, config: Config) -> Result<(Relay, SocketAddr), PrepareError> {
    let any = Address::Tcp(any);
    let listeners = bind(&[any], 1, &config).map_err(|(_, error)| failed(error))?;
    let local = listeners.iter().flatten().find_map(|one| one.local_addr());
    let local = local.expect("a listener of TCP has an address");
    let relay = Relay::start(listeners, config).map_err(not_started)?;
    Ok((relay, local))
}

/// Starts a relay by instance `index` of our TCP, over a queue of each TAP.
fn over_ours(
    prepare: &Prepare,
    groups: &[FlowGroup],
    backend: &Backend,
    index: usize,
    any: SocketAddr,
    config: Config,
) -> Result<(Relay, SocketAddr), PrepareError> {
    let Backend::Tap(links) = backend else {
        return Err(PrepareError::because("our TCP without a TAP"));
    };
    let stack = backend::routed(links, index, prepare).and_then(|device| {
        backend::stack(device, index, prepare, &policy::options(prepare, groups))
    });
    let stack = stack.map_err(PrepareError::because)?;
    let started = Relay::start_user(vec![(stack, vec![any])], config);
    let (relay, local) = started.map_err(not_started)?;
    Ok((relay, local[0][0]))
}

fn not_started(error: StartError) -> PrepareError {
    match error {
        StartError::Unavailable { .. } => KnobError::new("relay_mode", error.to_string()).into(),
        other => failed(other),
    }
}

/// Counts of our own TCP, as a meter.
struct UserTcpMeter(Vec<Counters>);

impl Meter for UserTcpMeter {
    fn name(&self) -> MeterName {
        MeterName::Tcp
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut counts = Counts::new();
        for tcp in self.0.iter().map(Counters::tcp) {
            let (moved, only) = (
                tcp.window_advancing_acks_sent,
                tcp.only_acknowledging_acks_sent,
            );
            for (quantity, count) in [
                (Quantity::IpPacketsSent, tcp.packets_sent),
                (Quantity::IpOctetsSent, tcp.octets_sent),
                (Quantity::PureAcksSent, moved + only),
                (Quantity::WindowAdvancingAcksSent, moved),
                (Quantity::OnlyAcknowledgingAcksSent, only),
            ] {
                *counts.entry(quantity).or_insert(0) += count;
            }
        }
        Ok(Snapshot {
            meter: MeterName::Tcp,
            at_ns: clock_ns(),
            totals: vec![Totals {
                whose: CountOwner::Namespace,
                counts,
            }],
        })
    }
}
