//! Commands that a guest runs once, before it is saved: for what no option of the kernel sets, such as rules of nftables.
//!
//! The host packs the program of each command, its libraries, and the files that its arguments name. So the command is the same as on
//! the host, with absolute paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::GuestError;

/// Commands for a guest, and what they need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Modules that `modprobe` names.
    pub(crate) modules: Vec<String>,
    /// Words of the other commands; the first is the path of a program.
    pub(crate) commands: Vec<Vec<String>>,
    /// Their programs and the files that arguments name: path in the guest, path here.
    pub(crate) files: BTreeMap<PathBuf, PathBuf>,
}

impl Setup {
    /// Parses commands of words between spaces; there is no shell. `modprobe NAME…` loads modules of the guest's kernel. A program without
    /// a slash is looked for in `PATH` and the directories of the system's programs.
    ///
    /// # Errors
    /// A program is not on this host.
    pub fn parse(commands: &[String]) -> Result<Setup, GuestError> {
        let mut setup = Setup::default();
        for command in commands {
            let mut words = command.split_whitespace();
            let Some(first) = words.next() else { continue };
            if first == "modprobe" {
                setup.modules.extend(words.map(String::from));
                continue;
            }
            let program = program(first).ok_or_else(|| {
                GuestError::Missing(format!(
                    "the guest cannot run `{command}`: {first} is not on this host"
                ))
            })?;
            let mut all = vec![setup.pack(program)];
            all.extend(words.map(|word| setup.argument(word)));
            setup.commands.push(all);
        }
        Ok(setup)
    }

    /// An argument; if it names a file, that file is packed, and the argument is its path in the guest.
    fn argument(&mut self, word: &str) -> String {
        let path = Path::new(word).canonicalize().ok();
        // The kernel's files are the guest's own.
        let is_kernels = |path: &Path| {
            ["/proc", "/sys", "/dev"]
                .iter()
                .any(|root| path.starts_with(root))
        };
        match path.filter(|path| path.is_file() && !is_kernels(path)) {
            Some(path) => self.pack(path),
            None => word.to_string(),
        }
    }

    /// Packs a file; its path in the guest, which is the same unless the guest mounts something above it.
    fn pack(&mut self, path: PathBuf) -> String {
        let is_hidden = ["/tmp", "/run"].iter().any(|root| path.starts_with(root));
        let inside = match path.strip_prefix("/") {
            Ok(below) if is_hidden => Path::new("/host").join(below),
            _ => path.clone(),
        };
        let word = inside.to_string_lossy().into_owned();
        self.files.insert(inside, path);
        word
    }
}

/// Path of a program, as a shell finds it.
fn program(name: &str) -> Option<PathBuf> {
    let mut found = match name.contains('/') {
        true => vec![PathBuf::from(name)],
        false => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
            let folders = std::env::split_paths(&path).chain(system);
            folders.map(|folder| folder.join(name)).collect()
        }
    };
    found.retain(|path| path.is_file());
    found.first()?.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_brings_its_program_and_files_and_modprobe_only_names() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        // In /tmp, which a guest has a file system of its own for.
        let rules = folder.path().canonicalize().unwrap().join("rules");
        std::fs::write(&rules, "").unwrap();
        let commands = [
            "modprobe nf_tables  nft_ct".to_string(),
            format!("sh {} /proc/sys/kernel/ostype none", rules.display()),
            " ".to_string(),
        ];
        let setup = Setup::parse(&commands).unwrap();
        assert_eq!(setup.modules, ["nf_tables", "nft_ct"]);
        assert_eq!(setup.commands.len(), 1);
        let inside = Path::new("/host").join(rules.strip_prefix("/").unwrap());
        let expected = [&inside.to_string_lossy(), "/proc/sys/kernel/ostype", "none"];
        assert_eq!(setup.commands[0][1..], expected);
        assert_eq!(setup.files[&inside], rules);
        let program = Path::new(&setup.commands[0][0]);
        assert!(setup.files[program].is_file());
        let error = Setup::parse(&["no-such-program -f x".to_string()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the guest cannot run `no-such-program -f x`: no-such-program is not on this host"
        );
    }
}
