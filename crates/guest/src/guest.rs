//! A kernel and a program that can be booted, saved and restored any number of times.

use std::path::Path;
use std::process::Command;

use crate::architecture::Architecture;
use crate::boot::Boot;
use crate::error::GuestError;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::qemu::Machine;
use crate::running::{Limit, Running};
use crate::task::{Order, Task};
use crate::temporary::temporary;

/// A kernel and a program that can be booted any number of times, each time with a task and a
/// machine.
#[derive(Debug)]
pub struct Guest {
    pub(crate) kernel: Kernel,
    pub(crate) image: Image,
    /// First line of QEMU's `--version`.
    pub(crate) emulator: String,
}

impl Guest {
    /// Makes a guest of a kernel and a packed program.
    ///
    /// # Errors
    /// QEMU is not installed, or too old: the text says what to install.
    pub fn new(kernel: Kernel, image: Image) -> Result<Guest, GuestError> {
        let emulator = emulator(kernel.architecture)?;
        Ok(Guest {
            kernel,
            image,
            emulator,
        })
    }

    /// Checks that this host can run guests of its own architecture.
    ///
    /// # Errors
    /// What is missing, and what to install.
    pub fn check_host() -> Result<(), GuestError> {
        emulator(Architecture::HOST).map(|_| ())
    }

    /// Kernel that the guest boots.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Boots, and waits until the guest ends, at most for `limit`, or until `stop` returns true.
    ///
    /// # Errors
    /// QEMU cannot be started. If a guest fails, the [`Boot`] describes the failure.
    pub fn boot(
        &self,
        machine: &Machine,
        task: &Task,
        limit: Limit,
        stop: &dyn Fn() -> bool,
    ) -> Result<Boot, GuestError> {
        let order = Order::Go {
            seed: machine.seed.into(),
            task,
        };
        self.run(machine, &order, (Boot::new(None), None), limit, stop)
    }

    /// Runs QEMU with an order, from a guest's saved state if there is one. `boot` is what is known of the result.
    pub(crate) fn run(
        &self,
        machine: &Machine,
        order: &Order,
        (boot, state): (Boot, Option<&Path>),
        limit: Limit,
        stop: &dyn Fn() -> bool,
    ) -> Result<Boot, GuestError> {
        let (console, order) = (temporary(&[])?, temporary(&order.packed())?);
        let mut command = self.command(machine, order.path(), console.path());
        if let Some(state) = state {
            // By a variable: the path may have any character.
            command.env(STATE_VARIABLE, state);
            command.args(["-incoming", &format!("exec:cat \"${STATE_VARIABLE}\"")]);
        }
        let running = Running::start(command, self.kernel.architecture, limit)?;
        Ok(boot.follow(running, console.path(), stop))
    }

    /// Command that runs QEMU with this guest.
    pub(crate) fn command(&self, machine: &Machine, order: &Path, console: &Path) -> Command {
        machine.command(&self.kernel, self.image.path(), order, console)
    }
}

/// Environment variable with the path of a saved state, for the `cat` that QEMU starts.
pub(crate) const STATE_VARIABLE: &str = "TCPCOST_SNAPSHOT";

/// Oldest QEMU whose options [`Machine`] uses, with `-seed` for all random numbers.
const OLDEST_EMULATOR: u32 = 6;

/// Version of the emulator, as it tells it.
fn emulator(architecture: Architecture) -> Result<String, GuestError> {
    let program = architecture.emulator();
    let [debian, fedora] = architecture.packages();
    let install =
        format!("install it (Debian: apt-get install {debian}; Fedora: dnf install {fedora})");
    let asked = Command::new(program).arg("--version").output();
    let told = match asked {
        Ok(told) if told.status.success() => String::from_utf8_lossy(&told.stdout).into_owned(),
        Ok(told) => {
            return Err(GuestError::Program {
                program,
                said: String::from_utf8_lossy(&told.stderr).trim().to_string(),
            });
        }
        Err(_) => {
            return Err(GuestError::Missing(format!(
                "{program} is not here: {install}"
            )));
        }
    };
    let version = told.lines().next().unwrap_or_default().to_string();
    match major(&version) {
        Some(found) if found < OLDEST_EMULATOR => Err(GuestError::Missing(format!(
            "{program} is of version {found}, too old: {OLDEST_EMULATOR} or newer is needed"
        ))),
        _ => Ok(version),
    }
}

/// First number of `QEMU emulator version 7.2.22 (Debian …)`. `None` if the line has another form.
fn major(version: &str) -> Option<u32> {
    let (_, number) = version.split_once("version ")?;
    number.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulators_version_is_the_first_number_after_the_word() {
        assert_eq!(
            major("QEMU emulator version 7.2.22 (Debian 1:7.2)"),
            Some(7)
        );
        assert_eq!(major("QEMU emulator version 10.0.2"), Some(10));
        assert_eq!(major("something else"), None);
    }
}
