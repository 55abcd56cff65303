//! Test of every policy over every kind of wire at four MTUs, at either end of an echo: each byte
//! comes back unchanged, and no pause is longer than loss explains.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Host, Wire, ms, pattern};
use tcpcost_link::{Impaired, Impairment, memory};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{AckPolicy, Config, ConnId, Connection, Endpoint, Pool, ReadError, Segmentation};

type End = Host<Impaired<memory::Memory<Wire>, Wire>>;

const BYTES: u64 = 200_000;
const DELAY: Duration = Duration::from_millis(40);

fn policies() -> [AckPolicy; 10] {
    let delay_max = DELAY;
    let exactly = |segments| AckPolicy::Exactly {
        segments,
        delay_max,
    };
    [
        AckPolicy::Delayed { delay_max },
        AckPolicy::LinuxLike { delay_max },
        AckPolicy::Every {
            segments: 8,
            delay_max,
        },
        exactly(1),
        exactly(2),
        exactly(7),
        AckPolicy::Avoidance {
            limit_initial: 1,
            limit_max: 22,
            delay_max,
        },
        AckPolicy::OnRead {
            segments: 16,
            delay_max,
        },
        AckPolicy::OnPush { delay_max },
        AckPolicy::Requested {
            segments: 4,
            delay_max,
        },
    ]
}

fn wires() -> [(&'static str, Impairment); 9] {
    let clean = Impairment {
        delay: Duration::from_millis(5),
        ..Impairment::default()
    };
    let late = |reorder| Impairment {
        reorder,
        reorder_delay: Duration::from_millis(4),
        ..clean
    };
    [
        ("without delay", Impairment::default()),
        ("5 ms", clean),
        (
            "1 % lost",
            Impairment {
                loss: 0.01,
                ..clean
            },
        ),
        ("10 % lost", Impairment { loss: 0.1, ..clean }),
        (
            "lost in bursts",
            Impairment {
                burst: 0.01,
                burst_goes_on: 0.7,
                ..clean
            },
        ),
        ("10 % late", late(0.1)),
        (
            "10 % twice",
            Impairment {
                duplicate: 0.1,
                ..clean
            },
        ),
        (
            "3 % damaged",
            Impairment {
                corrupt: 0.03,
                ..clean
            },
        ),
        (
            "narrow",
            Impairment {
                rate_bits_per_s: Some(20_000_000),
                queue_bytes: Some(150_000),
                jitter: Duration::from_millis(2),
                ..late(0.02)
            },
        ),
    ]
}

struct Echo {
    ends: [End; 2],
    ids: [Option<ConnId>; 2],
    now: Instant,
    written: u64,
    echoed: u64,
    read: u64,
    /// Bytes that the echo has read and not yet written.
    held: Vec<u8>,
    /// Time at which a byte was last read at either end, and the packets lost until then.
    progress: (Instant, u64),
    /// Longer of the two retransmission timeouts at that time.
    rto: Duration,
}

impl Echo {
    fn new(configs: [Config; 2], wire: Impairment, seed: u64) -> Self {
        let (a, b) = memory::pair(1 << 20);
        let host = |device, config: &Config, seed: u64| {
            let secret = [seed as u8; 16];
            let (pool, none) = (Pool::default(), Impairment::default());
            let endpoint = Endpoint::new(config.clone(), pool, secret, Checksum::Complete, ms(0));
            Host::new(endpoint, Impaired::new(device, wire, none, seed))
        };
        let mut client: End = host(a, &configs[0], 2 * seed + 1);
        let mut server: End = host(b, &configs[1], 2 * seed + 2);
        server.endpoint.listen(7, 1, configs[1].clone()).unwrap();
        let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
        let id = client
            .endpoint
            .connect(local, "10.0.0.2:7".parse().unwrap(), ms(0))
            .unwrap();
        Self {
            ends: [client, server],
            ids: [Some(id), None],
            now: ms(0),
            written: 0,
            echoed: 0,
            read: 0,
            held: Vec::new(),
            progress: (ms(0), 0),
            rto: Duration::from_secs(1),
        }
    }

    fn run(mut self) -> Result<(), String> {
        while self.read < BYTES {
            let before = (self.echoed, self.read);
            self.client()?;
            self.server()?;
            self.ends.iter_mut().for_each(|end| end.transmit(self.now));
            self.check_pause(before != (self.echoed, self.read))?;
            let next = self.ends.iter().filter_map(Host::next_event).min();
            let next =
                next.ok_or_else(|| format!("nothing will ever happen again: {}", self.at()))?;
            self.now = self.now.max(next);
            // Frames that are due leave the wire first.
            self.ends.iter_mut().for_each(|end| end.transmit(self.now));
            for end in &mut self.ends {
                end.receive(self.now);
            }
        }
        Ok(())
    }

    fn at(&self) -> String {
        let written = self.written;
        format!(
            "{written} written, {} echoed, {} read",
            self.echoed, self.read
        )
    }

    /// Allows a pause of three timeouts, doubled for each packet lost in the pause.
    fn check_pause(&mut self, progress: bool) -> Result<(), String> {
        let lost = self.ends.iter().map(|end| {
            let sent = end.device.counters().sent;
            sent.lost + sent.overflowed + sent.corrupted
        });
        let lost: u64 = lost.sum();
        let (since, lost_before) = self.progress;
        let doublings = (lost - lost_before).min(12) as u32;
        let most = 3 * self.rto * (1 << doublings);
        let pause = self.now - since;
        if pause > most {
            return Err(format!(
                "a pause of {pause:?}, at most {most:?}: {}",
                self.at()
            ));
        }
        if progress {
            self.progress = (self.now, lost);
            let rto = |end: usize| {
                let connection = self.ends[end].endpoint.connection(self.ids[end]?);
                connection.map(Connection::rto)
            };
            self.rto = rto(0).max(rto(1)).unwrap_or(self.rto);
        }
        Ok(())
    }

    fn client(&mut self) -> Result<(), String> {
        let Some(id) = self.ids[0] else { return Ok(()) };
        let (now, mut written, mut read) = (self.now, self.written, self.read);
        let result = self.ends[0].endpoint.apply(id, |connection| {
            let (mut buffer, mut expected) = ([0; 1 << 14], [0; 1 << 14]);
            while written < BYTES {
                let len = buffer.len().min((BYTES - written) as usize);
                pattern(written, &mut buffer[..len]);
                match connection.write(&buffer[..len]) {
                    Ok(0) => break,
                    Ok(n) => written += n as u64,
                    Err(error) => return Err(format!("write: {error}")),
                }
            }
            loop {
                match connection.read(&mut buffer, now) {
                    Ok(n) => {
                        pattern(read, &mut expected[..n]);
                        if buffer[..n] != expected[..n] {
                            return Err(format!("other bytes from {read} on"));
                        }
                        read += n as u64;
                    }
                    Err(ReadError::Empty) => return Ok(()),
                    Err(error) => return Err(format!("read: {error}")),
                }
            }
        });
        (self.written, self.read) = (written, read);
        result.ok_or("the client is gone")?
    }

    fn server(&mut self) -> Result<(), String> {
        self.ids[1] = self.ids[1].or_else(|| self.ends[1].endpoint.accept(7));
        let Some(id) = self.ids[1] else { return Ok(()) };
        let (now, held) = (self.now, &mut self.held);
        let written = self.ends[1].endpoint.apply(id, |connection| {
            let mut total = 0;
            loop {
                if held.is_empty() {
                    held.resize(8192, 0);
                    let read = connection.read(held, now).unwrap_or(0);
                    held.truncate(read);
                }
                match connection.write(held) {
                    Ok(0) | Err(_) => return total,
                    Ok(n) => {
                        held.drain(..n);
                        total += n as u64;
                    }
                }
            }
        });
        self.echoed += written.ok_or("the server is gone")?;
        Ok(())
    }
}

#[test]
fn every_policy_echoes_over_every_wire_at_every_mtu_at_either_end() {
    let mut failures = Vec::new();
    let mut seed = 0;
    for policy in policies() {
        for (name, wire) in wires() {
            for mtu in [576, 1500, 9000, 65_535] {
                for role in [0, 1] {
                    let plain = Config {
                        mss: mtu - 40,
                        // Small, so that the receive buffer is the limit; announced in steps of 128
                        // bytes.
                        receive_buffer: 50_001.max(2 * u32::from(mtu)),
                        send_buffer: 200_000,
                        segmentation: Segmentation {
                            super_segment_bytes_max: 0,
                            ..Segmentation::default()
                        },
                        ..Config::default()
                    };
                    let mut configs = [plain.clone(), plain];
                    configs[role].ack = policy;
                    seed += 1;
                    if let Err(message) = Echo::new(configs, wire, seed).run() {
                        let role = ["client", "server"][role];
                        failures.push(format!("{policy:?}, {name}, MTU {mtu}, {role}: {message}"));
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {seed}:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
