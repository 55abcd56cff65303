//! First transactions of the first connection of a capture, ACK by ACK and burst by burst.

use tcpcost_counts::{Opening, Sequences};

use crate::watch::{AckEvent, BurstEvent, PacketEvent, Watch};

/// Watch that keeps the coverage of the pure ACKs and the lengths of the bursts of the first
/// connection with data.
///
/// A transaction begins with data of the client after data of the server. A burst is a run of data
/// with no packet of the other end in between, however long it took (with
/// [`crate::Settings::burst_gap_ns`] at its maximum): at the sender, the data that an ACK released.
/// A pause is no boundary where the round trip is shorter than the sender's scheduling delays.
#[derive(Debug, Clone)]
pub struct OpeningWatch {
    transactions: usize,
    connection: Option<usize>,
    /// Pure ACKs and bursts of each end, a list for each transaction.
    sequences: [Sequences; 2],
    begun: usize,
    /// True if the server sent data in the current transaction.
    answered: bool,
}

/// Limit of ACKs and bursts kept for each transaction.
const KEPT: usize = 64;

impl OpeningWatch {
    /// Creates a watch of the first `transactions` transactions.
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

    /// Returns the transactions except the first `without`, which are not requests of the workload.
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

    /// Lists of this end, if the event belongs to the connection and transactions that are kept.
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
