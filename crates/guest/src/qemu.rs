//! QEMU's command line, and why each option is there.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::init::COUNTS;
use crate::kernel::Kernel;

/// Instructions that a nanosecond of a guest's time is: `shift=0`, 2⁰ ns for each.
pub const INSTRUCTIONS_PER_NS: u64 = 1;

/// The emulator.
pub(crate) const QEMU: &str = "qemu-system-x86_64";

/// What differs from boot to boot.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Seed of all that a guest takes for chance: its address-space layout, hash functions, sequence numbers. Two boots of one
    /// seed are the same but for a race or two with the host's clock; the honest error is that between seeds.
    pub seed: u32,
    /// Whether its clock counts instructions. One that tells time has as many CPUs as are asked for, and no order in which what
    /// runs there runs.
    pub counts_instructions: bool,
    /// CPUs. One under a clock that counts: both ends take turns, and Linux 6.1 does not bring up a second one there.
    pub cpus: u32,
    /// Memory, MiB. Default 2048, of which a boot touches about a quarter. Below 1 GiB a zone lets a CPU keep fewer pages to itself
    /// (`zone_batchsize` of mm/page_alloc.c: 31 in place of the 63 of all larger machines); Linux 6.12 then gives the 32 KiB pieces of
    /// a stream back to the zone in one boot and not in another (`free_high`), 2 % of its instructions.
    pub memory_mib: u32,
    /// Options of QEMU more, e.g. a plugin.
    pub options: Vec<String>,
    /// Options of the kernel's command line more.
    pub kernel_options: Vec<String>,
}

impl Machine {
    /// The machine of a boot with this seed.
    pub fn new(seed: u32) -> Machine {
        Machine {
            seed,
            counts_instructions: true,
            cpus: 1,
            memory_mib: 2048,
            options: Vec::new(),
            kernel_options: Vec::new(),
        }
    }

    /// The machine of a boot whose clock tells time, with so many CPUs: emulated all the same.
    pub fn with_time(cpus: u32) -> Machine {
        Machine {
            counts_instructions: false,
            cpus,
            ..Machine::new(0)
        }
    }

    /// The command that runs it: the kernel's console into a file, the guest's lines to standard output.
    pub(crate) fn command(&self, kernel: &Kernel, initramfs: &Path, console: &Path) -> Command {
        let mut command = Command::new(QEMU);
        command
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &format!("{}M", self.memory_mib)])
            .args(self.emulation())
            .args(["-nodefaults", "-nic", "none", "-display", "none"])
            .arg("-no-reboot")
            .arg("-chardev")
            .arg(format!("file,id=console,path={}", console.display()))
            .args(["-serial", "chardev:console"])
            .args(["-chardev", "stdio,id=lines,signal=off"])
            .args(["-serial", "chardev:lines"])
            .args(&self.options)
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", &self.kernel_command_line()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// What its CPUs are and how they are emulated, whoever starts QEMU.
    pub(crate) fn emulation(&self) -> Vec<String> {
        let seed = self.seed.to_string();
        // One thread emulates, and the clock counts what it executed. `sleep=off`: a guest that waits for a timer is taken to it
        // at once.
        let counts = [
            ["-accel", "tcg,thread=single"],
            ["-icount", "shift=0,sleep=off"],
            ["-rtc", "clock=vm,base=2026-01-01T00:00:00"],
        ];
        let of_time: &[[&str; 2]] = match self.counts_instructions {
            true => &counts,
            false => &[["-accel", "tcg,thread=multi"]],
        };
        // Copies and clears by `rep movsq` in place of `rep movsb`: a byte is an eighth of an instruction, not one, which would
        // hide everything else. The sign of a difference between kernels was seen to depend on it.
        let of_all = [["-cpu", "max,erms=off,fsrm=off"], ["-seed", &seed]];
        let options = [of_time, &of_all].concat();
        options.concat().into_iter().map(String::from).collect()
    }

    /// Options of the kernel's command line, but for the console.
    pub(crate) fn for_the_kernel(&self) -> Vec<String> {
        let counts = self.counts_instructions.then_some(COUNTS);
        let fixed = FOR_THE_KERNEL.iter().copied().chain(counts);
        let fixed = fixed.map(|option| option.to_string());
        fixed.chain(self.kernel_options.iter().cloned()).collect()
    }

    fn kernel_command_line(&self) -> String {
        format!("console=ttyS0 {}", self.for_the_kernel().join(" "))
    }
}

/// Documentation/admin-guide/kernel-parameters.txt. A panic ends the guest at once; crypto's self-tests would run in a kernel thread for
/// seconds and double what is measured meanwhile; watchdogs and the clock's watchdog would interrupt it.
const FOR_THE_KERNEL: &[&str] = &[
    "quiet",
    "panic=-1",
    "cryptomgr.notests",
    "nowatchdog",
    "tsc=reliable",
    "mitigations=off",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nanosecond_is_an_instruction_and_a_byte_of_a_copy_is_not() {
        let kernel = Kernel::find(Some(Path::new("/proc/self/exe"))).unwrap();
        let (initramfs, console) = (Path::new("/i"), Path::new("/c"));
        let command = Machine::new(7).command(&kernel, initramfs, console);
        let arguments: Vec<_> = command.get_args().filter_map(|a| a.to_str()).collect();
        let value = |option: &str| {
            let at = arguments.iter().position(|a| *a == option).unwrap();
            arguments[at + 1]
        };
        assert!(value("-icount").contains("shift=0"));
        assert_eq!(INSTRUCTIONS_PER_NS, 1);
        assert!(value("-cpu").contains("erms=off,fsrm=off"));
        assert_eq!(value("-seed"), "7");
        assert!(value("-append").contains("cryptomgr.notests"));
    }
}
