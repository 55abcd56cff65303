//! QEMU's command line, and the reason for each option.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::_rdtsc;
use std::path::Path;
use std::process::{Command, Stdio};
#[cfg(target_arch = "x86_64")]
use std::time::{Duration, Instant};

use crate::agreed::COUNTS;
use crate::architecture::Architecture;
use crate::kernel::Kernel;
use crate::task::FILE;

/// Instructions per nanosecond of a guest's time: `shift=0`, 2⁰ ns for each.
pub const INSTRUCTIONS_PER_NS: u64 = 1;

/// Machine of a boot: settings that differ between boots.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Seed of everything random in a guest: address-space layout, hash functions, sequence
    /// numbers. Two boots with one seed differ only by a race or two with the host's clock, so the
    /// error of a result is the spread between seeds.
    pub seed: u32,
    /// True if its clock counts instructions. Otherwise the clock tells time, the guest has `cpus`
    /// CPUs, and the order in which threads run is not fixed.
    pub counts_instructions: bool,
    /// Number of CPUs. Must be 1 if the clock counts instructions: both ends alternate, and Linux
    /// 6.1 does not bring up a second CPU there.
    pub cpus: u32,
    /// Memory, MiB. Default 2048, of which a boot touches about a quarter. Below 1 GiB a zone lets
    /// a CPU keep fewer pages (`zone_batchsize` of mm/page_alloc.c: 31 in place of the 63 of all
    /// larger machines). Linux 6.12 then returns the 32 KiB pieces of a stream to the zone in one
    /// boot and not in another (`free_high`), 2 % of its instructions.
    pub memory_mib: u32,
    /// Additional options of QEMU, e.g. a plugin.
    pub options: Vec<String>,
    /// Additional options of the kernel's command line.
    pub kernel_options: Vec<String>,
}

impl Machine {
    /// Machine with this seed, whose clock counts instructions.
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

    /// Machine with `cpus` CPUs, whose clock tells time. It is emulated, too.
    ///
    /// Its time-stamp counter is the host's. A kernel that measures the counter's rate while the host is busy
    /// was seen to be wrong by a factor of six, so it is told the rate (Linux 5.11 and later listen).
    pub fn with_time(cpus: u32) -> Machine {
        let rate = tsc_khz().map(|khz| format!("tsc_early_khz={khz}"));
        Machine {
            counts_instructions: false,
            cpus,
            kernel_options: rate.into_iter().collect(),
            ..Machine::new(0)
        }
    }

    /// Command that runs QEMU: the kernel's console goes to a file, the guest's lines to standard
    /// output. `order` is the file that tells the guest what to do.
    pub(crate) fn command(
        &self,
        kernel: &Kernel,
        initramfs: &Path,
        order: &Path,
        console: &Path,
    ) -> Command {
        let architecture = kernel.architecture;
        let mut command = Command::new(architecture.emulator());
        command
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &format!("{}M", self.memory_mib)])
            .args(self.emulation(architecture))
            .args(["-nodefaults", "-nic", "none", "-display", "none"])
            .arg("-no-reboot")
            .arg("-chardev")
            .arg(format!("file,id=console,path={}", console.display()))
            .args(["-serial", "chardev:console"])
            .args(["-chardev", "stdio,id=lines,signal=off"])
            .args(architecture.port())
            .arg("-fw_cfg")
            .arg(format!("name={FILE},file={}", order.display()))
            .args(&self.options)
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initramfs)
            .args(["-append", &self.kernel_command_line(architecture)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Options for the CPU and its emulation.
    pub(crate) fn emulation(&self, architecture: Architecture) -> Vec<String> {
        let seed = self.seed.to_string();
        // One thread emulates, and the clock counts the instructions that it executed. `sleep=off`:
        // a guest that waits for a timer skips to its time at once.
        let counts = [
            ["-accel", "tcg,thread=single"],
            ["-icount", "shift=0,sleep=off"],
            ["-rtc", "clock=vm,base=2026-01-01T00:00:00"],
        ];
        let of_time: &[[&str; 2]] = match self.counts_instructions {
            true => &counts,
            false => &[["-accel", "tcg,thread=multi"]],
        };
        let options = [&of_time.concat(), architecture.machine(), &["-seed", &seed]];
        options.concat().into_iter().map(String::from).collect()
    }

    /// Options of the kernel's command line, without the console.
    pub(crate) fn for_the_kernel(&self) -> Vec<String> {
        let counts = self.counts_instructions.then_some(COUNTS);
        let fixed = FOR_THE_KERNEL.iter().copied().chain(counts);
        let fixed = fixed.map(|option| option.to_string());
        fixed.chain(self.kernel_options.iter().cloned()).collect()
    }

    fn kernel_command_line(&self, architecture: Architecture) -> String {
        let console = architecture.console();
        format!("console={console} {}", self.for_the_kernel().join(" "))
    }
}

/// Rate of this host's time-stamp counter, kHz. `None` if it has none, or is too busy to tell.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "an instruction of the CPU")]
fn tsc_khz() -> Option<u64> {
    const SPAN: Duration = Duration::from_millis(20);
    // A time between two readings of the counter, which must not be distant.
    let reading = || {
        (0..100).find_map(|_| {
            // SAFETY: the instruction reads a register; each x86_64 has it.
            let (before, at, after) = unsafe { (_rdtsc(), Instant::now(), _rdtsc()) };
            (after - before < 10_000).then_some((at, before))
        })
    };
    let (began, first) = reading()?;
    std::thread::sleep(SPAN);
    let (ended, last) = reading()?;
    let span_ns = u64::try_from((ended - began).as_nanos()).ok()?;
    (last - first).checked_mul(1_000_000)?.checked_div(span_ns)
}

/// Other architectures have a counter whose rate the kernel reads.
#[cfg(not(target_arch = "x86_64"))]
fn tsc_khz() -> Option<u64> {
    None
}

/// Options of the kernel's command line (Documentation/admin-guide/kernel-parameters.txt). A panic
/// ends the guest at once. Crypto's self-tests would run in a kernel thread for seconds and double
/// what is measured meanwhile; watchdogs and the clock's watchdog would interrupt it.
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
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, crate::kernel::BARE_IMAGE).unwrap();
        let kernel = Kernel::find(Some(&image)).unwrap();
        let [initramfs, order, console] = ["/i", "/o", "/c"].map(Path::new);
        let command = Machine::new(7).command(&kernel, initramfs, order, console);
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
