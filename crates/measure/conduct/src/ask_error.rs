//! Why a question to an agent got no usable answer.

use std::net::SocketAddr;

use tcpcost_agent::protocol::Answer;
use tcpcost_study::{HostName, KnobError};

/// Why a question got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A knob is not available here.
    #[error(transparent)]
    Unsupported(#[from] KnobError),
    /// The host says that it failed.
    #[error("{0}: {1}")]
    Failed(HostName, String),
    /// A host could not connect to another.
    #[error(
        "{on}: no data connection to {to} at {target}: {reason}; {}",
        likely_cause(reason)
    )]
    Unreached {
        /// The host that connects.
        on: HostName,
        /// The host that listens.
        to: HostName,
        /// Where it listens.
        target: SocketAddr,
        /// Error of connect.
        reason: String,
    },
    /// The host's agent is dead or broke the protocol: the bed can no longer be used.
    #[error("{0} agent: {1}")]
    Gone(HostName, String),
    /// The host's agent cannot be started or has another version: every other trial would fail, too.
    #[error("{0} agent: {1}")]
    Unfit(HostName, String),
}

/// Likely cause of a failed connection to a host whose agent listens, and what to do about it.
fn likely_cause(reason: &str) -> &'static str {
    if reason.contains("Network is unreachable") {
        "there is no route: check `device` and `address` of both hosts"
    } else if reason.contains("no answer") {
        "most likely a firewall drops it: open the ports that the knob data_ports names (docs/hosts.md)"
    } else {
        "most likely a firewall refuses it: open the ports that the knob data_ports names (docs/hosts.md)"
    }
}

/// Error of hosts that failed at the same question, in the order of `failures`. `None` if no host failed.
pub(super) fn all_failed(failures: Vec<(HostName, String)>) -> Option<AskError> {
    let more = failures.len().saturating_sub(FAILURES_SHOWN);
    let mut failures = failures.into_iter().take(FAILURES_SHOWN);
    let (host, mut reason) = failures.next()?;
    for (host, then) in failures {
        reason += &format!("; then {host}: {then}");
    }
    if more > 0 {
        reason += &format!("; then {more} more hosts");
    }
    Some(AskError::Failed(host, reason))
}

/// Failures in an error. The first is most likely the cause; the others usually lost their connections because of it.
const FAILURES_SHOWN: usize = 2;

/// Error of a host that answered another question than it was asked.
pub(super) fn out_of_turn(host: HostName, answer: &Answer) -> AskError {
    AskError::Gone(host, format!("answered out of turn: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_that_failed_first_is_named_first_and_few_are_named() {
        let error = |count: usize| {
            let hosts = ["server", "client", "h3", "h4"].into_iter().take(count);
            let failures = hosts.map(|host| (host.parse().unwrap(), format!("why {host}")));
            all_failed(failures.collect()).map(|error| error.to_string())
        };
        assert_eq!(error(0), None);
        assert_eq!(error(1).unwrap(), "server: why server");
        let two = "server: why server; then client: why client";
        assert_eq!(error(2).unwrap(), two);
        assert_eq!(error(4).unwrap(), format!("{two}; then 2 more hosts"));
    }
}
