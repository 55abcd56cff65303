//! MSG_ZEROCOPY with little or no room for notifications in the kernel (ENOBUFS), in a network
//! namespace of the test, because the room is a sysctl.

mod common;

use std::fs;

use common::{exchange, settings};
use tcpcost_counts::Quantity as Q;
use tcpcost_testbed::{in_namespace, skip};

/// Sends by reference, with `room` bytes for notifications, until this count of the sender is
/// `least`. Returns the sender's counts; `None` if the namespace or the sysctl is not available.
fn send_with_room(room: &'static str, count: Q, least: u64) -> Option<tcpcost_counts::Counts> {
    in_namespace(|| {
        if let Err(error) = fs::write("/proc/sys/net/core/optmem_max", room) {
            skip(&format!(
                "a namespace with its own net.core.optmem_max: {error}"
            ));
            return None;
        }
        let settings = settings(&[("send_with", "zerocopy"), ("check", "on"), ("flows", "2")]);
        let ends = exchange(&settings, 1, count, least);
        Some(ends.client.totals())
    })
    .flatten()
}

#[test]
fn without_room_for_a_notification_the_bytes_go_by_copy() {
    if let Some(totals) = send_with_room("100", Q::PayloadBytesSent, 3_000_000) {
        assert_eq!(totals[&Q::ZerocopyCompletions], 0, "{totals:?}");
    }
}

#[test]
fn with_room_for_few_the_sender_waits_for_completions() {
    // 700 bytes have room for one or a few notifications, whatever the size of an skb. Twenty
    // completions need more room than that, so the sender waited for some before it sent others.
    if let Some(totals) = send_with_room("700", Q::ZerocopyCompletions, 20) {
        assert!(totals[&Q::PayloadBytesSent] > 0, "{totals:?}");
    }
}
