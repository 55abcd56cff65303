//! How the first connection of a capture began: its first transactions, ACK by ACK and burst by burst.

use tcpcost_counts::{Opening, Sequences};

use crate::watch::{AckEvent, BurstEvent, PacketEvent, Watch};

/// Keeps what the pure ACKs of the first connection with data covered, and how long its bursts were.
///
/// A transaction begins with data of the client behind data of the server. A burst is what was sent
/// with no packet of the other end between, however long that took
/// ([`crate::Settings::burst_gap_ns`] at its most): seen where the sender is, what an ACK released. A
/// pause tells nothing where the round trip is shorter than the sender's scheduling.
#[derive(Debug, Clone)]
pub struct OpeningWatch {
    transactions: usize,
    connection: Option<usize>,
    /// By end: pure ACKs and bursts, a list for each transaction.
    sequences: [Sequences; 2],
    begun: usize,
    /// Whether the server sent data in the transaction that goes on.
    answered: bool,
}

/// ACKs and bursts that are kept of a transaction.
const KEPT: usize = 64;

impl OpeningWatch {
    /// Of so many transactions.
    pub fn of(transactions: usize) -> OpeningWatch {
        let mut opening = OpeningWatch {
            transactions,
            connection: None,
            sequences: Default::default(),
            begun: 0,
            answered: false,
        };
        opening.begin();
        opening
    }

    /// Without the first so many transactions: what is no request of the workload's.
    pub fn opening(&self, without: usize) -> Opening {
        let of = |end: usize| {
            let rest = |lists: &[Vec<u64>]| lists.get(without..).unwrap_or_default().to_vec();
            let Sequences {
                pure_acks,
                data_bursts,
            } = &self.sequences[end];
            Sequences {
                pure_acks: rest(pure_acks),
                data_bursts: rest(data_bursts),
            }
        };
        Opening {
            client: of(0),
            server: of(1),
        }
    }

    fn begin(&mut self) {
        self.answered = false;
        self.begun += 1;
        if self.begun <= self.transactions {
            for Sequences {
                pure_acks,
                data_bursts,
            } in &mut self.sequences
            {
                pure_acks.push(Vec::new());
                data_bursts.push(Vec::new());
            }
        }
    }

    /// Where something of this end belongs, if it is kept.
    fn kept(&mut self, connection: usize, end: usize) -> Option<&mut Sequences> {
        let is_first = self.connection == Some(connection);
        (is_first && self.begun <= self.transactions).then(|| &mut self.sequences[end])
    }
}

fn add(list: &mut [Vec<u64>], wire_segments: u64) {
    if let Some(list) = list.last_mut().filter(|list| list.len() < KEPT) {
        list.push(wire_segments);
    }
}

impl Watch for OpeningWatch {
    fn on_packet(&mut self, connection: usize, packet: &PacketEvent) {
        if packet.payload_bytes > 0 && *self.connection.get_or_insert(connection) == connection {
            if packet.from == 1 {
                self.answered = true;
            } else if self.answered {
                self.begin();
            }
        }
    }

    fn on_ack(&mut self, connection: usize, ack: &AckEvent) {
        if ack.pure
            && let Some(kept) = self.kept(connection, ack.from)
        {
            add(&mut kept.pure_acks, ack.wire_segments);
        }
    }

    fn on_burst(&mut self, connection: usize, burst: &BurstEvent) {
        if burst.data
            && let Some(kept) = self.kept(connection, burst.from)
        {
            add(&mut kept.data_bursts, burst.wire_segments);
        }
    }
}
