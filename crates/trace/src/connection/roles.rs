//! Which end is the server. A SYN shows it; without one it is inferred.

use serde::Serialize;

use super::Connection;
use crate::segment::{Endpoint, Segment, flag};

/// Evidence for which end is the server, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerBy {
    /// A SYN was captured.
    Syn,
    /// Inferred: other connections of the capture have the server's port, and another port at the client.
    Connections,
    /// Inferred: the server's port is below 1024 (RFC 6335 §6), or below the range from which systems take ports for clients.
    Port,
    /// Inferred: the other end sends first after each pause.
    Pauses,
    /// A guess: nothing but the lower port.
    LowerPort,
}

impl ServerBy {
    /// Description in a text.
    pub(crate) fn words(self) -> &'static str {
        match self {
            ServerBy::Syn => "shown by the SYN",
            ServerBy::Connections => "inferred: several connections have its port",
            ServerBy::Port => "inferred from the ports",
            ServerBy::Pauses => "inferred: after pauses the other end sends first",
            ServerBy::LowerPort => "guessed: the lower port",
        }
    }
}

/// Numbers of connections by port, of a capture. 128 KiB.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ports(Vec<u16>);

impl Ports {
    /// Counts a connection that begins with this segment.
    pub(crate) fn add(&mut self, first: &Segment) {
        self.0.resize(1 << 16, 0);
        let (from, to) = (first.source.port, first.destination.port);
        // A SYN shows the server, so that the next connection to it is sure.
        let server = match (first.any(flag::SYN), first.any(flag::ACK)) {
            (true, false) => Some(to),
            (true, true) => Some(from),
            _ => None,
        };
        for port in [from, to] {
            let of = &mut self.0[usize::from(port)];
            let weight = if server == Some(port) { MANY } else { 1 };
            *of = of.saturating_add(weight);
        }
    }

    /// The end, 0 or 1, whose port has far more connections. `None` if neither has, or if a text has no ports.
    pub(super) fn server(&self, ends: &[Endpoint; 2]) -> Option<usize> {
        let count = |end: usize| self.0.get(usize::from(ends[end].port)).copied();
        let [a, b] = [count(0)?, count(1)?];
        let is_far_more = |more: u16, less: u16| more >= MANY && more / MANY >= less;
        match () {
            () if is_far_more(a, b) => Some(0),
            () if is_far_more(b, a) => Some(1),
            () => None,
        }
    }
}

/// Connections from which a port is taken for a server's.
const MANY: u16 = 3;

/// Ports that only servers have (RFC 6335 §6).
const SYSTEM_PORTS: u16 = 1024;

/// First port that Linux gives a client (net.ipv4.ip_local_port_range); others begin at 49,152 (RFC 6335 §6).
const CLIENT_PORTS: u16 = 32_768;

/// Pause after which the end that sends begins an exchange, ns.
const PAUSE_NS: u64 = 1_000_000_000;

impl Connection {
    /// Infers the server of a connection whose SYN was not captured. Its packets must not be analysed before. `held`: the first of them.
    pub(super) fn infer_server(&mut self, held: &[Segment]) {
        if self.syn_numbers.iter().any(Option::is_some) {
            return;
        }
        let (server, by) = self.find_server(held);
        self.server_by = by;
        if server == 0 {
            self.ends.swap(0, 1);
            self.spoke.swap(0, 1);
        }
    }

    fn find_server(&self, held: &[Segment]) -> (usize, ServerBy) {
        if let Some(server) = self.server_by_ports {
            return (server, ServerBy::Connections);
        }
        let ports = self.ends.map(|end| end.port);
        let lower = usize::from(ports[1] <= ports[0]);
        for limit in [SYSTEM_PORTS, CLIENT_PORTS] {
            if ports[lower] < limit && ports[1 - lower] >= limit && ports[lower] > 0 {
                return (lower, ServerBy::Port);
            }
        }
        match self.begins_exchanges(held) {
            Some(client) => (1 - client, ServerBy::Pauses),
            None if ports[0] == ports[1] => (1, ServerBy::LowerPort),
            None => (lower, ServerBy::LowerPort),
        }
    }

    /// End that alone sends first after pauses. `None` without pauses, or if both ends do.
    fn begins_exchanges(&self, held: &[Segment]) -> Option<usize> {
        let mut begun = [0; 2];
        let mut data = held.iter().filter(|segment| segment.payload > 1);
        let mut before = data.next()?.at_ns?;
        for segment in data {
            let at_ns = segment.at_ns?;
            let is_after_pause = at_ns.saturating_sub(before) > PAUSE_NS;
            begun[self.end_of(&segment.source)] += u32::from(is_after_pause);
            before = at_ns;
        }
        match begun {
            [begun, 0] if begun > 0 => Some(0),
            [0, begun] if begun > 0 => Some(1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Analysis, Settings, read};

    #[test]
    fn the_server_is_found_without_its_syn() {
        let of = |text: &str| {
            let mut analysis = Analysis::new(Settings::default());
            read(text.as_bytes(), &mut analysis).1.unwrap();
            let (connections, ()) = analysis.finish();
            let last = connections.last().unwrap();
            (last.ends[1].port, last.server_by())
        };
        // The server's answer is captured first.
        let data = |from: &str, to: &str| format!("IP {from} > {to}: P 1:101(100) ack 1 win 9\n");
        let by_port = data("10.0.0.2.443", "10.0.0.1.50000");
        assert_eq!(of(&by_port), (443, ServerBy::Port));
        let registered = data("10.0.0.2.8080", "10.0.0.1.50000");
        assert_eq!(of(&registered), (8080, ServerBy::Port));
        let lower = data("10.0.0.2.41000", "10.0.0.1.50000");
        assert_eq!(of(&lower), (41_000, ServerBy::LowerPort));
        let several = [50_001, 50_002, 50_003, 50_004]
            .map(|port| data("10.0.0.2.51000", &format!("10.0.0.1.{port}")));
        assert_eq!(of(&several.concat()), (51_000, ServerBy::Connections));
        let syn = "IP 10.0.0.1.50 > 10.0.0.2.50000: S 1:1(0) win 9\n";
        assert_eq!(of(syn), (50_000, ServerBy::Syn));
    }
}
