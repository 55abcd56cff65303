//! How much of the machine a host's groups of connections take.

use tcpcost_study::{FlowGroup, WaitsBy};

use crate::protocol::Prepare;

/// Open files that they take: a connection with a thread of its own has two.
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

/// One for each CPU unless the study says; never more than there are connections.
pub(super) fn threads(groups: &[FlowGroup], prepare: &Prepare) -> usize {
    if groups[0].settings.io == WaitsBy::BlockingThreads {
        return 1; // Which has the others.
    }
    groups[0]
        .settings
        .threads
        .unwrap_or(prepare.cpus.len())
        .min(flows(groups))
}
