//! A worker's own counts.

use tcpcost_counts::{Counts, Quantity};

use crate::plan::Plan;

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_checked: u64,
    pub(crate) send_calls: u64,
    pub(crate) receive_calls: u64,
    pub(crate) would_block_calls: u64,
    pub(crate) poll_calls: u64,
    pub(crate) transactions: u64,
    pub(crate) connections_opened: u64,
}

impl Tally {
    /// Counts by quantity. Quantities that do not apply to this end are absent.
    pub(crate) fn counts(&self, plan: &Plan) -> Counts {
        use Quantity as Q;
        let rows = [
            (plan.sends, Q::PayloadBytesSent, self.bytes_sent),
            (plan.sends, Q::SendCalls, self.send_calls),
            (plan.receives, Q::PayloadBytesReceived, self.bytes_received),
            (plan.receives, Q::ReceiveCalls, self.receive_calls),
            (plan.checks, Q::PayloadBytesChecked, self.bytes_checked),
            (true, Q::WouldBlockCalls, self.would_block_calls),
            (true, Q::PollCalls, self.poll_calls),
            (plan.counts_transactions, Q::Transactions, self.transactions),
            (plan.opens, Q::ConnectionsOpened, self.connections_opened),
        ];
        rows.into_iter()
            .filter(|(applies, ..)| *applies)
            .map(|(_, quantity, count)| (quantity, count))
            .collect()
    }
}
