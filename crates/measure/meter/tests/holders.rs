//! CPU time of each process with sockets, on this kernel. Needs root, else it is skipped.
//!
//! The processes run this same program with [`CHILD`] in their environment.
#![cfg(feature = "bpf")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::{fs, thread};

use tcpcost_counts::{CountOwner, Counts, Quantity as Q};
use tcpcost_meter::bpf;
use tcpcost_meter::holder::{ByHolder, Holder, Port};
use tcpcost_meter::{Meter, Owners, Scope};
use tcpcost_testbed::until;

const CHILD: &str = "TCPCOST_TEST_CHILD";
const ROUNDS: usize = 2000;
static ALONE: Mutex<()> = Mutex::new(());

/// Body of the process: serves one connection at a time, or connects to an address and sends requests.
#[test]
fn the_process() {
    match std::env::var(CHILD).as_deref() {
        Err(_) => {}
        Ok(what @ ("serve" | "serve beside vfork")) => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            println!("\nport {}", listener.local_addr().unwrap().port());
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if what != "serve" {
                    stay_before_exec();
                }
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            }
        }
        Ok(address) => {
            // Connections from different own ports, which all count for the port of the server.
            for _ in 0..100 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            for _ in 0..ROUNDS {
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
            println!("\ndone");
            // Waits, so that its totals can be read before it ends.
            let _ = std::io::stdin().read(&mut [0]);
        }
    }
}

/// Starts a process with the memory of this one and copies of its files, as vfork does. It waits until this one ends.
fn stay_before_exec() {
    extern "C" fn wait(_: *mut libc::c_void) -> libc::c_int {
        // SAFETY: neither call takes memory.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::pause();
            }
        }
    }
    let stack = Vec::leak(vec![0_u128; 4096]);
    let top = stack.as_mut_ptr_range().end.cast();
    // SAFETY: the stack is the new process' alone, and stays.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        libc::clone(wait, top, flags, std::ptr::null_mut())
    };
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
}

struct Process(Child);

impl Process {
    fn start(what: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "the_process", "--nocapture"])
            .env(CHILD, what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Process(command.spawn().unwrap())
    }

    /// Waits for an output line that starts with `begin`.
    fn says(&mut self, begin: &str) -> String {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let line = lines.find(|line| line.starts_with(begin));
        line.expect("it says so")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(without_cgroups: bool) -> Option<Box<dyn Meter + Send>> {
    let scope = Scope {
        cpus: (0..thread::available_parallelism().unwrap().get()).collect(),
        owners: Owners::Holders,
        without_cgroups,
        ..Scope::default()
    };
    match bpf::load(tcpcost_counts::MeterName::Exact, &scope) {
        Ok(meter) => Some(meter),
        Err(error) => {
            tcpcost_testbed::skip(&error.to_string());
            None
        }
    }
}

fn of(all: &ByHolder, pid: u32, port: Option<Port>) -> Option<(&Holder, &Counts)> {
    all.iter()
        .find(|(holder, _)| holder.pid == pid && holder.port == port)
}

fn exact(meter: &mut Box<dyn Meter + Send>) -> Counts {
    let totals = meter.snapshot().unwrap().totals.into_iter();
    let mut all = totals.filter(|totals| matches!(totals.whose, CountOwner::Cpus(_)));
    all.next().unwrap().counts
}

#[test]
fn each_process_has_its_tasks_and_its_softirqs_by_port() {
    check_tasks_and_ports(false, 0.9);
}

/// Connections that open and close are no process': a hundred of them beside two thousand transactions.
#[test]
fn without_programs_of_cgroups_processes_have_what_tcp_probe_sees() {
    check_tasks_and_ports(true, 0.5);
}

fn check_tasks_and_ports(without_cgroups: bool, resolved: f64) {
    let _alone = ALONE.lock().unwrap_or_else(|error| error.into_inner());
    // The server starts before the meter, the client after it.
    let mut server = Process::start("serve");
    let port: u16 = server.says("port ")[5..].parse().unwrap();
    let Some(mut meter) = load(without_cgroups) else {
        return;
    };
    let before = exact(&mut meter);
    let slept_before = voluntary_switches(server.0.id());
    let mut client = Process::start(&format!("127.0.0.1:{port}"));
    client.says("done");
    let slept = voluntary_switches(server.0.id()) - slept_before;
    let all = meter.by_holder().unwrap();
    let after = exact(&mut meter);
    check_events(&all, server.0.id(), slept, &after);

    let netns = fs::metadata("/proc/self/ns/net").unwrap().st_ino() as u32;
    let mut softirqs = 0;
    for (process, port) in [(&server, Port::Served(port)), (&client, Port::Asked(port))] {
        let pid = process.0.id();
        let (holder, counts) = of(&all, pid, Some(port)).expect("its port");
        assert_eq!(holder.netns, netns, "{holder:?}");
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(holder.name.to_string(), comm.trim_end());
        assert!(holder.cgroup > 0);
        assert!(counts[&Q::HolderSoftirqNs] > 0, "{counts:?}");
        assert_eq!(counts[&Q::HolderTaskNs], 0, "tasks have no port");
        softirqs += counts[&Q::HolderSoftirqNs];
        let (_, tasks) = of(&all, pid, None).expect("its tasks");
        let of_port = counts[&Q::HolderSoftirqNs];
        assert!(
            tasks[&Q::HolderSoftirqNs] < of_port / 10,
            "{tasks:?} {counts:?}"
        );
        let told = tasks[&Q::HolderTaskNs] as f64;
        // Two thousand reads and writes take more than a millisecond. /proc counts in ticks.
        assert!(told > 1e6, "{tasks:?}");
    }
    // The sum over all processes must not exceed the total, and must have nearly all time with a packet in
    // hand.
    let net_rx = after[&Q::ExactSoftirqNetRxNs] - before[&Q::ExactSoftirqNetRxNs];
    let sum: u64 = all.values().map(|counts| counts[&Q::HolderSoftirqNs]).sum();
    let total: u64 = Q::EXACT_SOFTIRQS.iter().map(|of| after[of]).sum();
    assert!(sum <= total, "{sum} of {total}");
    assert!(sum as f64 > resolved * net_rx as f64, "{sum} of {net_rx}");
    assert!(sum >= softirqs, "{sum} {softirqs}");
}

/// Voluntary switches of a process' threads.
fn voluntary_switches(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let statuses =
        tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let counts = statuses.map(|status| {
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    });
    counts.sum()
}

/// A server that slept so often has at least these sleeps: it was known from the start. Its runs are those of its port.
fn check_events(all: &ByHolder, server: u32, slept: u64, exact: &Counts) {
    let (_, tasks) = of(all, server, None).expect("its tasks");
    let sleeps = tasks[&Q::HolderSleeps];
    // Each of its two threads may be between the kernel's count and the meter's.
    assert!(
        sleeps + 2 >= slept && sleeps <= slept + 10,
        "{sleeps} of {slept}"
    );
    let runs = |counts: &Counts| counts[&Q::HolderNetRxRuns];
    let sum: u64 = all.values().map(runs).sum();
    assert!(sum <= exact[&Q::ExactNetRxRuns], "{sum} {exact:?}");
    let of_server = all.iter().filter(|(holder, _)| holder.pid == server);
    let of_server: u64 = of_server.map(|(_, counts)| runs(counts)).sum();
    assert!(of_server > ROUNDS as u64 / 2, "{of_server}");
}

#[test]
fn between_vfork_and_exec_sockets_stay_the_parents() {
    let _alone = ALONE.lock().unwrap_or_else(|error| error.into_inner());
    let mut server = Process::start("serve beside vfork");
    let port: u16 = server.says("port ")[5..].parse().unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut transact = || {
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    };
    // After the first one the server has its child.
    transact();
    let Some(mut meter) = load(false) else { return };
    (0..ROUNDS).for_each(|_| transact());
    let all = meter.by_holder().unwrap();
    let served = Port::Served(port);
    let pids = all.iter().filter(|(holder, _)| holder.port == Some(served));
    let pids: Vec<u32> = pids.map(|(holder, _)| holder.pid).collect();
    assert_eq!(pids, [server.0.id()]);
    let (_, counts) = of(&all, server.0.id(), Some(served)).unwrap();
    assert!(
        counts[&Q::HolderNetRxRuns] > ROUNDS as u64 / 2,
        "{counts:?}"
    );
}

#[test]
fn a_place_is_free_again_once_its_process_has_ended_and_was_read() {
    let _alone = ALONE.lock().unwrap_or_else(|error| error.into_inner());
    let Some(mut meter) = load(false) else { return };
    let mut server = Process::start("serve");
    let port: u16 = server.says("port ")[5..].parse().unwrap();
    let pid = server.0.id();
    let read = |meter: &mut Box<dyn Meter + Send>| meter.by_holder().unwrap();
    let all = read(&mut meter);
    assert!(of(&all, pid, Some(Port::Served(port))).is_some());
    drop(server);
    // The next read still has all its totals, later ones do not.
    until("its places", || {
        of(&read(&mut meter), pid, None).is_none().then_some(())
    });
    assert!(of(&read(&mut meter), pid, Some(Port::Served(port))).is_none());
    assert_eq!(meter.overflow(), None);
}
