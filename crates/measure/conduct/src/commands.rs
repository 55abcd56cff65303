//! Commands that a study names, and the user's consent to run them.
//!
//! A study or a run's directory may come from another person, so its commands run only if this command line allows them.
//! Programs that tcpcost starts by itself (ssh, srun, QEMU) and hosts that are reached by ssh need no consent.

use std::collections::BTreeSet;

use tcpcost_console::exit::usage;
use tcpcost_study::{Reach, Sides, Study};

use super::overrides::Overrides;
use super::shell::command_line;

/// The user's consent to commands that a study names.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    /// `--allow-exec`.
    all: bool,
    /// Commands that were typed on the command line.
    typed: BTreeSet<String>,
}

impl Consent {
    /// Allows all commands if `all` is set, else none.
    pub fn new(all: bool) -> Consent {
        Consent {
            all,
            typed: BTreeSet::new(),
        }
    }

    /// Also allows the commands in the overrides of this command line. Do not pass the overrides of a stored run.
    #[must_use]
    pub fn with_typed(mut self, overrides: &Overrides) -> Consent {
        let mut set: Vec<&(String, String)> = overrides.set.iter().collect();
        if let Some(Sides::Set { a, b, program, .. }) = &overrides.compare {
            set.extend(a.iter().chain(b));
            self.typed
                .extend(program.iter().map(|program| program.display().to_string()));
        }
        let reaches = set
            .iter()
            .filter_map(|(_, value)| value.parse::<Reach>().ok());
        self.typed
            .extend(reaches.filter_map(|reach| reach_command(&reach)));
        self.typed
            .extend(guest_commands(overrides).map(|(command, _)| command));
        self
    }

    /// Checks that all commands of a study are allowed.
    ///
    /// # Errors
    /// A command is not allowed: the first such command, exit code 2.
    pub fn check(&self, study: &Study, overrides: &Overrides) -> anyhow::Result<()> {
        let mut named = named(study, overrides).into_iter();
        match named.find(|command| !self.all && !self.typed.contains(command)) {
            None => Ok(()),
            Some(command) => Err(usage(format!(
                "the study would run a command of its own: {}: read it (run --dry-run prints each command), then allow it with --allow-exec",
                command_line(command.split(' '))
            ))),
        }
    }
}

/// Commands that a study or a stored run names, without the arguments that start the agent.
pub fn named(study: &Study, overrides: &Overrides) -> Vec<String> {
    let of_cells = study.cells.iter().flat_map(|cell| {
        let hosts = cell.knobs.host_names().into_iter();
        let reaches = hosts.filter_map(|host| reach_command(&cell.knobs.reach(host)?));
        let program = cell.program.as_ref();
        reaches.chain(program.map(|program| program.display().to_string()))
    });
    of_cells
        .chain(guest_commands(overrides).map(|(command, _)| command))
        .collect()
}

fn reach_command(reach: &Reach) -> Option<String> {
    match reach {
        Reach::Exec(words) | Reach::Attach(words) => Some(words.join(" ")),
        Reach::Local | Reach::Netns | Reach::Memory | Reach::Ssh(_) | Reach::Slurm(_) => None,
    }
}

/// Command that boots guests of another kernel than the running one, if one is asked for, and those that guests run before they are
/// saved, which get files of this host; each with the words for what guests do with it.
pub fn guest_commands(overrides: &Overrides) -> impl Iterator<Item = (String, &'static str)> {
    let asked = overrides.exact_instructions.as_ref();
    let kernel = asked.and_then(|asked| asked.kernel()?);
    let boots = kernel.map(|kernel| format!("qemu-system-x86_64 -kernel {}", kernel.display()));
    let boots = boots.into_iter().map(|command| (command, "are booted by"));
    let init = overrides.init.iter().cloned();
    boots.chain(init.map(|command| (command, "run first")))
}

#[cfg(test)]
mod tests {
    use super::super::exact_instructions::ExactInstructions;
    use super::*;

    fn study(hosts: &str) -> Study {
        Study::parse("s", &format!("[hosts]\n{hosts}\n"), "s.toml").unwrap()
    }

    #[test]
    fn a_command_of_a_study_needs_consent_and_one_that_is_typed_does_not() {
        let hosts = "client = \"local\"\nserver = \"exec:nc a b\"";
        let none = Overrides::default();
        let error = Consent::new(false).check(&study(hosts), &none);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("of its own: nc a b: "), "{error}");
        Consent::new(true).check(&study(hosts), &none).unwrap();
        let typed = Overrides {
            set: vec![("server.reach".to_string(), "exec:nc  a b".to_string())],
            ..Overrides::default()
        };
        let consent = Consent::new(false).with_typed(&typed);
        consent.check(&study(hosts), &none).unwrap();
        assert!(Consent::new(false).check(&study(hosts), &typed).is_err());
        let ssh = study("client = \"ssh:a\"\nserver = \"ssh:b\"");
        Consent::new(false).check(&ssh, &none).unwrap();
        let attached = hosts.replace("exec:", "attach:");
        assert!(Consent::new(false).check(&study(&attached), &none).is_err());
    }

    #[test]
    fn a_kernel_of_a_stored_run_needs_consent() {
        let with = |asked| Overrides {
            exact_instructions: Some(asked),
            ..Overrides::default()
        };
        let study = Study::parse("s", "", "s.toml").unwrap();
        let check = |asked| Consent::new(false).check(&study, &with(asked));
        check(ExactInstructions::InGuests(None)).unwrap();
        check(ExactInstructions::Here).unwrap();
        let kernel = ExactInstructions::InGuests(Some("/tmp/bzImage".into()));
        assert!(check(kernel.clone()).is_err());
        let consent = Consent::new(false).with_typed(&with(kernel.clone()));
        consent.check(&study, &with(kernel)).unwrap();
    }
}
