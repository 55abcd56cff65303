//! A Slurm of namespaces: a controller and nodes, each in a separate network, with routes from the
//! controller's to the nodes'.
//!
//! The networks are not joined by a bridge, because all namespaces of a machine share one neighbour
//! table (`gc_thresh3`, 1024 entries). If any node could talk with any other, two hundred nodes
//! would fill it, so that connections to nodes time out. With a router a node has one neighbour.
//!
//! Uses Debian's slurmctld, slurmd and munge of this machine, with the configuration that is
//! written here. The cluster is ready within a few seconds and leaves nothing behind: processes in
//! a node's namespace end with [`Slurm`].

use std::fs::{self, File, Permissions};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tcpcost_host::{link, namespace};
use tempfile::TempDir;

use crate::namespace::{on_a_thread, thread_id};
use crate::{can_make_namespaces, has_program, is_root, skip, until};

/// A running cluster.
pub struct Slurm {
    directory: TempDir,
    /// Network namespace of the controller, in which commands run.
    network: File,
    daemons: Vec<Child>,
    nodes: Vec<Node>,
}

struct Node {
    daemon: Child,
    /// Inode of its network namespace.
    network: u64,
}

/// Mounts for slurmd, which looks for cgroups (and uses none) where the new /sys has none.
const CGROUPS: [&str; 3] = [
    "-t tmpfs tmpfs /sys/fs/cgroup",
    "-t cgroup -o none,name=systemd,X-mount.mkdir cgroup /sys/fs/cgroup/systemd",
    "-t cgroup -o freezer,X-mount.mkdir cgroup /sys/fs/cgroup/freezer",
];

/// Programs that are needed.
const PROGRAMS: [&str; 6] = ["slurmctld", "slurmd", "srun", "sbatch", "munged", "ip"];
const CONTROLLER: Ipv4Addr = Ipv4Addr::new(10, 67, 255, 254);
/// Number of nodes with the same third byte of their address.
const BLOCK: u16 = 250;

impl Slurm {
    /// Starts nodes `n1` to `nN` and waits until they are idle; at most 1000. `None` if the machine
    /// lacks something: the test is skipped.
    ///
    /// # Panics
    /// If the cluster is not ready within a minute. The daemons' logs are printed.
    #[track_caller]
    pub fn start(nodes: u16) -> Option<Slurm> {
        if !is_root() {
            skip("needs root for slurmctld");
            return None;
        }
        let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if !["name=systemd", "freezer"]
            .iter()
            .all(|name| cgroups.contains(name))
        {
            skip("needs the cgroups name=systemd and freezer of version 1, for slurmd");
            return None;
        }
        if !can_make_namespaces() || !PROGRAMS.iter().all(|name| has_program(name)) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // munged refuses a socket that other users could not reach.
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(path.join("state")).unwrap();
        fs::write(path.join("slurm.conf"), configuration(path, nodes)).unwrap();
        let key = path.join("munge.key");
        fs::write(&key, [7; 128]).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o400)).unwrap();
        let munged = daemon(path, "munged", |command| {
            command.args(["--foreground", "--force"]);
            for (option, file) in [
                ("key-file", "munge.key"),
                ("socket", "munge.sock"),
                ("pid-file", "munged.pid"),
                ("log-file", "munged.log"),
                ("seed-file", "munged.seed"),
            ] {
                command.arg(format!("--{option}={}", path.join(file).display()));
            }
        });
        // slurmctld looks for it only once.
        until("munged's socket", || {
            path.join("munge.sock").exists().then_some(())
        });
        let (network, controller, nodes) = on_a_thread(|| {
            namespace::enter_new().unwrap();
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            link::add_address("lo", CONTROLLER, 32).unwrap();
            link::set_up("lo").unwrap();
            let controller = daemon(path, "slurmctld", |command| {
                command.args(["-D", "-f"]).arg(path.join("slurm.conf"));
            });
            let nodes = (1..=nodes).map(|number| node(path, number)).collect();
            (
                File::open("/proc/thread-self/ns/net").unwrap(),
                controller,
                nodes,
            )
        });
        let slurm = Slurm {
            directory,
            network,
            daemons: vec![controller, munged],
            nodes,
        };
        until("all nodes idle", || {
            let idle = slurm.output("sinfo", &["-h", "-t", "idle", "-o", "%D"]);
            (idle.trim().parse() == Ok(slurm.nodes.len())).then_some(())
        });
        Some(slurm)
    }

    /// Runs a closure on a separate thread in the controller's network; processes that it starts
    /// run there, too.
    ///
    /// # Panics
    /// If the closure does.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(self.network.as_fd(), network).unwrap();
            work()
        })
    }

    /// Path for `SLURM_CONF`, which Slurm's commands need.
    pub fn configuration(&self) -> PathBuf {
        self.directory.path().join("slurm.conf")
    }

    /// Directory that all nodes see.
    pub fn shared(&self) -> &Path {
        self.directory.path()
    }

    /// Standard output of one of Slurm's commands, whatever its exit code.
    ///
    /// # Panics
    /// If the command cannot be started.
    pub fn output(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.within(|| {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .env("SLURM_CONF", self.configuration());
            command.output().unwrap()
        });
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Command lines of processes with this program name on node `n<number>`.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn running(&self, number: usize, program: &str) -> Vec<String> {
        let pids = processes_in(self.nodes[number - 1].network);
        let line = |pid: &Pid| {
            let bytes = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
            let words: Vec<_> = bytes
                .split(|byte| *byte == 0)
                .map(String::from_utf8_lossy)
                .collect();
            let name = Path::new(words[0].as_ref()).file_name()?.to_str()?;
            (name == program).then(|| words.join(" "))
        };
        pids.iter().filter_map(line).collect()
    }

    /// Simulates a power failure of node `n<number>`: its link goes down, then all its processes
    /// end.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn kill_node(&mut self, number: usize) {
        self.within(|| link::set_down(&format!("p{number}")).unwrap());
        self.nodes[number - 1].end();
    }

    /// Impairs packets to node `n<number>`, with tc's words for a qdisc: `tbf rate 10mbit burst
    /// 16kb latency 20ms`.
    ///
    /// # Panics
    /// If there is no such node, or no such qdisc.
    pub fn impair(&self, number: usize, qdisc: &str) {
        self.within(|| run("tc", &format!("qdisc add dev p{number} root {qdisc}")));
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if thread::panicking() {
            for entry in fs::read_dir(self.directory.path())
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = entry.path();
                if path.extension().is_some_and(|extension| extension == "log") {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    let lines: Vec<&str> = text.lines().collect();
                    let last = lines[lines.len().saturating_sub(LOGGED)..].join("\n");
                    eprintln!("{}:\n{last}", path.display());
                }
            }
        }
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for node in &mut self.nodes {
            node.end();
        }
    }
}

/// Lines of each log that a failed test prints.
const LOGGED: usize = 15;

impl Node {
    /// Ends all processes in the node's network: slurmd, and the steps, which would outlive it.
    fn end(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        until("the end of a node's processes", || {
            let left = processes_in(self.network);
            for &pid in &left {
                let _ = kill_process(pid, Signal::KILL);
            }
            left.is_empty().then_some(())
        });
    }
}

/// Processes of a network namespace, without those that have ended.
fn processes_in(network: u64) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_in = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|found| found.ino() == network)
    };
    pids.filter(is_in).filter_map(Pid::from_raw).collect()
}

/// Starts a daemon that stays in the foreground.
fn daemon(path: &Path, name: &str, arguments: impl FnOnce(&mut Command)) -> Child {
    let mut command = Command::new(name);
    arguments(&mut command);
    let log = File::create(path.join(format!("{name}.out.log"))).unwrap();
    command
        .env("SLURM_CONF", path.join("slurm.conf"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    command.spawn().unwrap()
}

/// Makes a node; called in the controller's network.
fn node(path: &Path, number: u16) -> Node {
    let (id_sender, id) = mpsc::channel();
    let (made_sender, made) = mpsc::channel();
    thread::scope(|scope| {
        let node = scope.spawn(move || {
            namespace::enter_new().unwrap();
            id_sender.send(thread_id()).unwrap();
            made.recv().unwrap();
            link::add_address("eth0", address(number), 32).unwrap();
            link::set_up("eth0").unwrap();
            ip(&format!("route add {CONTROLLER} dev eth0"));
            ip(&format!("route add 10.67.0.0/16 via {CONTROLLER}"));
            for arguments in CGROUPS {
                run("mount", arguments);
            }
            let name = format!("n{number}");
            fs::create_dir_all(path.join("spool").join(&name)).unwrap();
            let daemon = daemon(path, "slurmd", |command| {
                command
                    .args(["-D", "-N", &name, "-f"])
                    .arg(path.join("slurm.conf"));
            });
            let network = namespace::inode().unwrap();
            Node { daemon, network }
        });
        let port = format!("p{number}");
        link::create_veth(&port, "eth0", id.recv().unwrap()).unwrap();
        link::set_up(&port).unwrap();
        let node_address = address(number);
        ip(&format!(
            "route add {node_address} dev {port} src {CONTROLLER}"
        ));
        made_sender.send(()).unwrap();
        node.join().unwrap()
    })
}

/// Address of node `n<number>`.
fn address(number: u16) -> Ipv4Addr {
    let [block, of_block] = [(number - 1) / BLOCK, (number - 1) % BLOCK + 1];
    let byte = |number| u8::try_from(number).expect("a thousand nodes at most");
    Ipv4Addr::new(10, 67, byte(block), byte(of_block))
}

/// Addresses of nodes `n1` to `nN`, in Slurm's notation.
fn addresses(nodes: u16) -> String {
    let blocks = (0..nodes.div_ceil(BLOCK)).map(|block| {
        let in_block = (nodes - block * BLOCK).min(BLOCK);
        format!("10.67.{block}.[1-{in_block}]")
    });
    blocks.collect::<Vec<_>>().join(",")
}

fn ip(arguments: &str) {
    run("ip", arguments);
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {said}");
}

/// Slurm's configuration: no accounting, no cgroups, one job a node. A lost node is noticed within
/// seconds, or later if hundreds of nodes share this machine's CPUs: the defaults suit nodes that
/// answer at once.
fn configuration(path: &Path, nodes: u16) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let (host, path) = (host.trim(), path.display());
    let short = host.split('.').next().unwrap_or(host);
    let addresses = addresses(nodes);
    let (gone, connect, answer) = (6 + nodes / 5, 2 + nodes / 20, 10 + nodes / 5);
    format!(
        "\
ClusterName=testbed
SlurmctldHost={short}({CONTROLLER})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={path}/munge.sock
StateSaveLocation={path}/state
SlurmdSpoolDir={path}/spool/%n
SlurmctldPidFile={path}/slurmctld.pid
SlurmdPidFile={path}/slurmd.%n.pid
SlurmctldLogFile={path}/slurmctld.log
SlurmdLogFile={path}/slurmd.%n.log
SlurmctldPort=6817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout={gone}
TCPTimeout={connect}
MessageTimeout={answer}
KillWait=5
MinJobAge=300
NodeName=n[1-{nodes}] NodeHostname={short} NodeAddr={addresses} Port=6818 CPUs=1 RealMemory=512 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_addresses_of_their_own_in_slurms_order() {
        assert_eq!(addresses(16), "10.67.0.[1-16]");
        assert_eq!(addresses(250), "10.67.0.[1-250]");
        assert_eq!(
            addresses(501),
            "10.67.0.[1-250],10.67.1.[1-250],10.67.2.[1-1]"
        );
        let of = |number| address(number).to_string();
        assert_eq!(
            [of(1), of(250), of(251)],
            ["10.67.0.1", "10.67.0.250", "10.67.1.1"]
        );
    }
}
