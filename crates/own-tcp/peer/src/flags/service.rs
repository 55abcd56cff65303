//! `--service WHAT`: the service for a peer's connections.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::bail;
use tcpcost_knobs::units;

use super::super::service::Service;

/// Service for the connections of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// A service without a protocol.
    Simple(Service),
    /// Serves the files below this directory over HTTP/1.1.
    Files(PathBuf),
    /// Answers clients of iperf3.
    Iperf3,
    /// Joins one connection to standard input and output.
    Stdio,
}

impl Task {
    /// Returns the task's name in the configuration that a peer prints.
    pub fn name(&self) -> &'static str {
        match self {
            Task::Simple(Service::Sink { .. }) => "sink",
            Task::Simple(Service::Echo) => "echo",
            Task::Simple(Service::Source(_)) => "source",
            Task::Simple(Service::Serve(_)) => "serve-bytes",
            Task::Files(_) => "serve-files",
            Task::Iperf3 => "iperf3",
            Task::Stdio => "stdio",
        }
    }
}

impl FromStr for Task {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Task> {
        let parts = text.split_once(':');
        let (name, what) = parts.map_or((text, None), |(name, what)| (name, Some(what)));
        Ok(match (name, what) {
            ("sink", None) => Task::Simple(Service::Sink { check: false }),
            ("sink", Some("check")) => Task::Simple(Service::Sink { check: true }),
            ("echo", None) => Task::Simple(Service::Echo),
            ("source", None) => Task::Simple(Service::Source(None)),
            ("source", Some(size)) => Task::Simple(Service::Source(Some(units::bytes(size)?))),
            ("serve", Some(what)) => match units::bytes(what) {
                Ok(bytes) => Task::Simple(Service::Serve(bytes)),
                Err(_) if Path::new(what).is_dir() => Task::Files(what.into()),
                Err(_) => bail!("expected a directory that exists, or a size such as 64KiB"),
            },
            ("iperf3", None) => Task::Iperf3,
            ("stdio", None) => Task::Stdio,
            _ => bail!(
                "expected sink, sink:check, echo, source, source:SIZE, serve:DIR, serve:SIZE, iperf3 or stdio"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_a_name_and_some_have_a_value() {
        for (text, name) in [
            ("sink", "sink"),
            ("sink:check", "sink"),
            ("source:1KiB", "source"),
            ("serve:1GiB", "serve-bytes"),
            ("serve:.", "serve-files"),
            ("stdio", "stdio"),
        ] {
            assert_eq!(text.parse::<Task>().unwrap().name(), name, "{text}");
        }
        for wrong in [
            "",
            "sync",
            "sink:1KiB",
            "source:x",
            "serve",
            "serve:nowhere",
            "echo:1",
        ] {
            assert!(wrong.parse::<Task>().is_err(), "{wrong}");
        }
    }
}
