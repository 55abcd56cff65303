//! A socket's error queue: copies that are no longer needed (MSG_ZEROCOPY), and times at which the
//! last byte of a write was sent and acknowledged (SO_TIMESTAMPING).

use std::collections::VecDeque;

use tcpcost_tcp::SeqNum;

/// A socket's error queue, and pending writes that will add to it.
#[derive(Debug, Default)]
pub struct Reports {
    /// SO_ZEROCOPY.
    pub zerocopy: bool,
    /// SO_TIMESTAMPING.
    stamping: u32,
    /// Sequence number from which SOF_TIMESTAMPING_OPT_ID counts.
    key_base: SeqNum,
    copies: u32,
    pending: VecDeque<Pending>,
    queue: VecDeque<Report>,
}

#[derive(Debug)]
struct Pending {
    /// Sequence number after the last byte of the write.
    end: SeqNum,
    copy: Option<u32>,
    key: Option<u32>,
    left: bool,
}

/// A message of the error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Writes, by number, whose memory may be overwritten.
    Copied { first: u32, last: u32 },
    /// Event of the byte `key`.
    Stamp { what: u32, key: u32, at_us: u64 },
}

impl Reports {
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sets SO_TIMESTAMPING while SND.UNA is `una`.
    pub fn stamp(&mut self, flags: u32, una: SeqNum) {
        if flags & OPT_ID != 0 && self.stamping & OPT_ID == 0 {
            self.key_base = una;
        }
        self.stamping = flags;
    }

    /// Notes a write that ends before `end`.
    pub fn on_written(&mut self, end: SeqNum, zerocopy: bool) {
        let copy = (zerocopy && self.zerocopy).then(|| {
            self.copies += 1;
            self.copies - 1
        });
        let stamps = self.stamping & (TX_SCHED | TX_SOFTWARE | TX_ACK) != 0;
        let key = stamps.then(|| (end - 1).since(self.key_base));
        if copy.is_some() || key.is_some() {
            self.pending.push_back(Pending {
                end,
                copy,
                key,
                left: false,
            });
        }
    }

    /// Notes that bytes before `nxt` were sent and bytes before `una` acknowledged. True if
    /// messages were added.
    pub fn advance(&mut self, una: SeqNum, nxt: SeqNum, now_us: u64) -> bool {
        let (flags, mut news) = (self.stamping, Vec::new());
        let stamp = |what, key: Option<u32>, bit: u32| {
            let key = key.filter(|_| flags & bit != 0)?;
            let at_us = now_us;
            Some(Report::Stamp { what, key, at_us })
        };
        for write in &mut self.pending {
            if !write.left && nxt.at_or_after(write.end) {
                write.left = true;
                news.extend(stamp(SCHED, write.key, TX_SCHED));
                news.extend(stamp(SND, write.key, TX_SOFTWARE));
            }
        }
        while let Some(write) = self.pending.front()
            && una.at_or_after(write.end)
        {
            news.extend(stamp(ACK, write.key, TX_ACK));
            news.extend(write.copy.map(|copy| Report::Copied {
                first: copy,
                last: copy,
            }));
            self.pending.pop_front();
        }
        let is_news = !news.is_empty();
        news.into_iter().for_each(|report| self.add(report));
        is_news
    }

    /// Adds a message; consecutive copies become one message.
    fn add(&mut self, report: Report) {
        if let (Some(Report::Copied { last, .. }), Report::Copied { first, last: new }) =
            (self.queue.back_mut(), report)
            && *last + 1 == first
        {
            *last = new;
            return;
        }
        self.queue.push_back(report);
    }

    pub fn next(&mut self) -> Option<Report> {
        self.queue.pop_front()
    }
}

/// SOF_TIMESTAMPING_*.
const TX_SOFTWARE: u32 = 1 << 1;
const OPT_ID: u32 = 1 << 7;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
/// SCM_TSTAMP_*.
const SND: u32 = 0;
const SCHED: u32 = 1;
const ACK: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_message() {
        let mut reports = Reports {
            zerocopy: true,
            ..Reports::default()
        };
        let at = SeqNum::new;
        reports.on_written(at(101), true);
        reports.on_written(at(151), false);
        reports.on_written(at(201), true);
        assert!(!reports.advance(at(1), at(201), 0));
        assert!(reports.advance(at(201), at(201), 0));
        assert_eq!(reports.next(), Some(Report::Copied { first: 0, last: 1 }));
        assert_eq!(reports.next(), None);
    }

    #[test]
    fn the_last_byte_leaves_and_arrives() {
        let mut reports = Reports::default();
        let at = SeqNum::new;
        reports.stamp(OPT_ID | TX_SCHED | TX_ACK, at(1));
        reports.on_written(at(11), false);
        assert!(!reports.advance(at(1), at(10), 5));
        assert!(reports.advance(at(1), at(11), 6));
        assert!(reports.advance(at(11), at(11), 7));
        let stamp = |what, at_us| {
            Some(Report::Stamp {
                what,
                key: 9,
                at_us,
            })
        };
        assert_eq!(
            [reports.next(), reports.next()],
            [stamp(SCHED, 6), stamp(ACK, 7)]
        );
    }
}
