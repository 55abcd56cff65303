//! Resources of the machine that a host's groups of connections use.

use tcpcost_study::{FlowGroup, WaitsBy};

use crate::protocol::Prepare;

/// Number of open files. A connection with a thread of its own has two.
pub(super) fn files(groups: &[FlowGroup]) -> usize {
    match groups[0].settings.io {
        WaitsBy::BlockingThreads => 2 * connections(groups),
        WaitsBy::Epoll | WaitsBy::IoUring | WaitsBy::Visits => connections(groups),
    }
}

/// Connections of a host, in all groups.
pub(super) fn connections(groups: &[FlowGroup]) -> usize {
    groups
        .iter()
        .map(|group| group.settings.connections())
        .sum()
}

/// Flows of a host, in all groups.
pub(super) fn flows(groups: &[FlowGroup]) -> usize {
    groups.iter().map(|group| group.settings.flows).sum()
}

/// Number of workers: one for each CPU unless the study sets a number, never more than connections.
pub(super) fn threads(groups: &[FlowGroup], prepare: &Prepare) -> usize {
    if groups[0].settings.io == WaitsBy::BlockingThreads {
        return 1; // This worker starts the connections' threads.
    }
    groups[0]
        .settings
        .threads
        .unwrap_or(prepare.cpus.len())
        .min(flows(groups))
}
