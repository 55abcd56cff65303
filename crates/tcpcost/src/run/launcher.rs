//! How a host's agent is started: this very program, behind the arguments of another that puts it where it
//! is to run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tcpcost_study::HostName;

use crate::exit::usage;

/// The programs, with their arguments, that start the agents of hosts; of most hosts none.
#[derive(Debug, Clone, Default)]
pub struct Launchers(BTreeMap<HostName, Vec<String>>);

impl Launchers {
    /// From `HOST=PROGRAM ARGUMENT…`, each.
    ///
    /// # Errors
    /// No name of a host, no program.
    pub fn parse(texts: &[String]) -> anyhow::Result<Launchers> {
        let mut launchers = BTreeMap::new();
        for text in texts {
            let wrong = |what: String| usage(format!("--launch {text}: {what}"));
            let (host, prefix) = text.split_once('=').unwrap_or((text, ""));
            let host = host
                .parse::<HostName>()
                .map_err(|error| wrong(error.to_string()))?;
            let prefix: Vec<String> = prefix.split_whitespace().map(String::from).collect();
            if prefix.is_empty() {
                return Err(wrong("expected HOST=PROGRAM ARGUMENT…".to_string()));
            }
            launchers.insert(host, prefix);
        }
        Ok(Launchers(launchers))
    }

    /// The command that starts a host's agent, without the agent's own arguments: `program`, else the running binary
    /// itself, even if the file was replaced since it was started.
    pub fn command(&self, host: HostName, program: Option<&Path>) -> Command {
        let own = |of: &str| PathBuf::from(format!("/proc/{of}/exe"));
        let agent = |of: &str| program.map_or_else(|| own(of), Path::to_path_buf);
        match self.0.get(&host).map(Vec::as_slice) {
            None | Some([]) => Command::new(agent("self")),
            Some([launcher, arguments @ ..]) => {
                let mut command = Command::new(launcher);
                command.args(arguments);
                command.arg(agent(&std::process::id().to_string()));
                command
            }
        }
    }
}
