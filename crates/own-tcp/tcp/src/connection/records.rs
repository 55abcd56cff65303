//! Record boundaries, which no segment crosses (MSG_EOR).

use std::collections::VecDeque;

use crate::SeqNum;

/// Ends of records, in order. A segment holds bytes of one record only.
#[derive(Debug, Default)]
pub(super) struct Records {
    ends: VecDeque<RecordEnd>,
}

#[derive(Clone, Copy, Debug)]
struct RecordEnd {
    at: SeqNum,
    /// True if the segment that ends here has PSH.
    pushed: bool,
}

impl Records {
    /// Ends a record at `at`.
    pub(super) fn end(&mut self, at: SeqNum, pushed: bool) {
        match self.ends.back_mut() {
            Some(last) if last.at == at => last.pushed |= pushed,
            _ => self.ends.push_back(RecordEnd { at, pushed }),
        }
    }

    /// Number of the `bytes` from `seq` on that belong to one record.
    pub(super) fn share(&self, seq: SeqNum, bytes: u32) -> u32 {
        let next = self
            .ends
            .partition_point(|record| record.at.at_or_before(seq));
        (self.ends.get(next)).map_or(bytes, |record| bytes.min(record.at.since(seq)))
    }

    /// True if a record with PSH ends at `seq`.
    pub(super) fn is_pushed(&self, seq: SeqNum) -> bool {
        let index = self.ends.partition_point(|record| record.at.before(seq));
        (self.ends.get(index)).is_some_and(|record| record.at == seq && record.pushed)
    }

    pub(super) fn acknowledge(&mut self, una: SeqNum) {
        while (self.ends.front()).is_some_and(|record| record.at.at_or_before(una)) {
            self.ends.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_ends_where_its_record_does() {
        let mut records = Records::default();
        records.end(SeqNum::new(100), false);
        records.end(SeqNum::new(150), true);
        assert_eq!(records.share(SeqNum::new(0), 1000), 100);
        assert_eq!(records.share(SeqNum::new(0), 60), 60);
        assert_eq!(records.share(SeqNum::new(100), 1000), 50);
        assert_eq!(records.share(SeqNum::new(150), 1000), 1000);
        assert!(!records.is_pushed(SeqNum::new(100)));
        assert!(records.is_pushed(SeqNum::new(150)));
        assert!(!records.is_pushed(SeqNum::new(149)));
    }

    #[test]
    fn what_is_acknowledged_is_forgotten() {
        let mut records = Records::default();
        records.end(SeqNum::new(u32::MAX - 5), false);
        records.end(SeqNum::new(4), false);
        records.acknowledge(SeqNum::new(3));
        assert_eq!(records.share(SeqNum::new(3), 10), 1);
        records.acknowledge(SeqNum::new(4));
        assert!(records.is_empty());
    }
}
