//! Events that `exact` counts, compared with the kernel's own counts of the same events. Needs root, else it is skipped.
//!
//! Both are read one after the other, so each is between the other's growth over a shorter and over a longer time.
#![cfg(feature = "bpf")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity as Q};
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::{self, Pausable};

/// One test at a time: the programs of two meters delay each other's events.
static ALONE: Mutex<()> = Mutex::new(());

struct Exact {
    meter: Box<dyn Pausable + Send>,
    cpus: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Exact {
    #[track_caller]
    fn load() -> Option<Exact> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus = thread::available_parallelism().unwrap().get();
        let scope = Scope {
            cpus: (0..cpus).collect(),
            own_pids: vec![std::process::id()],
            ..Scope::default()
        };
        match bpf::load(MeterName::Exact, &scope) {
            Ok(meter) => Some(Exact {
                meter,
                cpus,
                _alone: alone,
            }),
            Err(error) => {
                tcpcost_testbed::skip(&error.to_string());
                None
            }
        }
    }

    fn counts(&mut self) -> Counts {
        let totals = self.meter.snapshot().unwrap().totals.into_iter();
        let mut all = totals.filter(|totals| matches!(totals.whose, CountOwner::Cpus(_)));
        all.next().unwrap().counts
    }

    /// Growth of an event during `work`, with the growth of the kernel's count in a shorter and in a longer time. `None` if the
    /// kernel does not show the event.
    fn grown(
        &mut self,
        event: Q,
        kernel: impl Fn() -> u64,
        work: impl FnOnce(),
    ) -> Option<(u64, [u64; 2])> {
        let begin = kernel();
        let before = self.counts();
        let after_begin = kernel();
        work();
        let before_end = kernel();
        let after = self.counts();
        let end = kernel();
        let growth = after.get(&event)? - before[&event];
        Some((growth, [before_end - after_begin, end - begin]))
    }

    /// Checks that both numbers are equal, but for one event on each CPU between the kernel's count and ours.
    fn check_equal(&mut self, event: Q, kernel: impl Fn() -> u64, work: impl FnOnce()) {
        let (ours, [least, most]) = self.grown(event, kernel, work).unwrap();
        let cpus = self.cpus as u64;
        println!("{event}: {ours}, the kernel's {least} to {most}");
        assert!(least > 100, "{least}: too few to compare");
        assert!(
            ours + cpus >= least && ours <= most + cpus,
            "{event}: {ours}, the kernel's {least} to {most}"
        );
    }
}

/// Transactions of one byte between two threads, each of which waits for the other.
fn transactions(rounds: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
        });
        for _ in 0..rounds {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        drop(client);
    });
}

/// Sum over CPUs of a row of /proc/softirqs or /proc/interrupts.
fn row(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let mut rows = text.lines().map(str::trim_start);
    let row = rows.find_map(|row| row.strip_prefix(name)).unwrap();
    let words = row.split_ascii_whitespace();
    words.map_while(|word| word.parse::<u64>().ok()).sum()
}

/// Voluntary switches of this process, threads that have ended included.
fn sleeps() -> u64 {
    // SAFETY: an all-zero structure is a valid one, and the kernel only writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &raw mut usage), 0);
        usage
    };
    u64::try_from(usage.ru_nvcsw).unwrap()
}

#[test]
fn runs_of_net_rx_are_those_of_proc_softirqs() {
    let Some(mut exact) = Exact::load() else {
        return;
    };
    let kernel = || row("/proc/softirqs", "NET_RX:");
    exact.check_equal(Q::ExactNetRxRuns, kernel, || transactions(2000));
}

#[test]
fn sleeps_are_the_voluntary_switches_of_getrusage() {
    let Some(mut exact) = Exact::load() else {
        return;
    };
    exact.check_equal(Q::ExactTaskOwnSleeps, sleeps, || transactions(2000));
}

/// Puts this thread on a CPU, at a policy of the scheduler.
fn run_on(cpu: usize, policy: i32) {
    // SAFETY: all-zero structures are valid ones, `cpu` is below the set's size, and the kernel only reads them.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        let size = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_setaffinity(0, size, &set), 0);
        let priority: libc::sched_param = std::mem::zeroed();
        assert_eq!(libc::sched_setscheduler(0, policy, &priority), 0);
    }
}

/// CPU 0 interrupts CPU 1, where a task of idle priority spins: by waking another task there, and by a barrier for all threads of
/// this process.
fn interrupt_each_other(rounds: usize) {
    let is_done = AtomicBool::new(false);
    let (mut client, mut server) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            run_on(1, libc::SCHED_IDLE);
            while !is_done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        scope.spawn(move || {
            run_on(1, libc::SCHED_OTHER);
            let mut byte = [0];
            while server.read_exact(&mut byte).is_ok() && server.write_all(&byte).is_ok() {}
        });
        let waker = scope.spawn(move || {
            run_on(0, libc::SCHED_OTHER);
            for _ in 0..rounds {
                client.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
                // SAFETY: the call has no pointers.
                let status = unsafe { libc::syscall(libc::SYS_membarrier, EXPEDITED, 0, 0) };
                assert_eq!(status, 0);
            }
        });
        waker.join().unwrap();
        is_done.store(true, Ordering::Relaxed);
    });
}

/// MEMBARRIER_CMD_PRIVATE_EXPEDITED of uapi/linux/membarrier.h, and that which registers for it.
const EXPEDITED: i32 = 1 << 3;
const REGISTER_EXPEDITED: i32 = 1 << 4;

/// Interrupts to compare: the kernel's count and ours differ by one for each CPU.
const ENOUGH: u64 = 200;

/// Interrupts that hit one of our programs are not counted, so there may be fewer than the kernel's.
#[test]
fn ipis_are_those_of_proc_interrupts() {
    let Some(mut exact) = Exact::load() else {
        return;
    };
    if !tcpcost_testbed::has_cpus(2) {
        return;
    }
    // SAFETY: the call has no pointers.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_EXPEDITED, 0, 0) };
    assert_eq!(status, 0);
    for (event, name) in [(Q::ExactRescheduleIpis, "RES:"), (Q::ExactCallIpis, "CAL:")] {
        let kernel = || row("/proc/interrupts", name);
        // On a busy machine the other CPU seldom runs a thread of ours, so it is seldom interrupted.
        let work = || {
            let (begin, until) = (kernel(), Instant::now() + Duration::from_secs(20));
            while kernel() - begin <= ENOUGH && Instant::now() < until {
                interrupt_each_other(1000);
            }
        };
        let Some((ours, [least, most])) = exact.grown(event, kernel, work) else {
            tcpcost_testbed::skip(&exact.meter.misses().unwrap());
            continue;
        };
        println!("{event}: {ours}, the kernel's {least} to {most}");
        if least < ENOUGH {
            let few = format!("{event}: the kernel counts {least}, of {ENOUGH} that are needed");
            tcpcost_testbed::skip(&few);
            continue;
        }
        let cpus = exact.cpus as u64;
        assert!(ours <= most + cpus, "{event}: {ours} of {most}");
        assert!(ours + cpus >= least * 9 / 10, "{event}: {ours} of {least}");
    }
}

/// Each nap ends with a timer of its own. Some end in an interrupt of the tick or of another nap.
#[test]
fn timers_of_naps_are_beyond_the_tick() {
    const NAPS: u64 = 400;
    let Some(mut exact) = Exact::load() else {
        return;
    };
    let kernel = || row("/proc/interrupts", "LOC:");
    let nap = || (0..NAPS).for_each(|_| thread::sleep(Duration::from_micros(100)));
    let Some((ours, [_, most])) = exact.grown(Q::ExactExtraTimerInterrupts, kernel, nap) else {
        return tcpcost_testbed::skip(&exact.meter.misses().unwrap());
    };
    println!("{ours} beyond the tick of {most} for {NAPS} naps");
    assert!(ours >= NAPS / 2, "{ours} of {NAPS}");
    assert!(ours <= most + exact.cpus as u64, "{ours} of {most}");
}
