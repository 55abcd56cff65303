//! Hosts that are network namespaces with an sshd each, and one more for the command.
//!
//! Each host has `eth0`, its NIC, in a network of its own, and `ctl0`, by which ssh reaches it. The
//! command's host routes between the networks.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tcpcost_host::{link, namespace, route, sysctl};
use tcpcost_testbed::{can_make_namespaces, has_cpus, has_program, thread_id, until};

use crate::common::{Place, Ran, Started};

/// Thread in its own network and mount namespaces that runs closures.
struct Inside {
    work: Option<Sender<Box<dyn FnOnce() + Send>>>,
    thread: Option<JoinHandle<()>>,
    id: u32,
}

impl Inside {
    fn new() -> Inside {
        let (work, todo) = channel::<Box<dyn FnOnce() + Send>>();
        let (sender, id) = channel();
        let thread = std::thread::spawn(move || {
            namespace::enter_new().unwrap();
            sender.send(thread_id()).unwrap();
            for work in todo {
                work();
            }
        });
        Inside {
            work: Some(work),
            thread: Some(thread),
            id: id.recv().expect("the namespace was made"),
        }
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = channel();
        let work = Box::new(move || drop(sender.send(work())));
        self.work.as_ref().unwrap().send(work).unwrap();
        result.recv().expect("what it was given to do panicked")
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.work = None;
        let _ = self.thread.take().unwrap().join();
    }
}

/// Host with its sshd.
pub struct Host {
    inside: Inside,
    sshd: Child,
}

/// Hosts, and the place where the command runs.
pub struct Lab {
    pub place: Place,
    pub hosts: Vec<Host>,
    command: Inside,
}

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

fn name(index: usize) -> String {
    NAMES
        .get(index)
        .map_or_else(|| format!("host{index}"), |name| name.to_string())
}

const SSHD: &str = "/usr/sbin/sshd";

impl Lab {
    /// Makes hosts called alpha, beta, gamma, and by number host0, host1, … `None`, and a skip, if
    /// the machine cannot.
    #[track_caller]
    pub fn new(hosts: usize) -> Option<Lab> {
        if !(can_make_namespaces() && has_cpus(2) && has_program(SSHD) && has_program("ssh")) {
            return None;
        }
        let place = Place::new();
        let key = place.path("key");
        for path in [&key, &place.path("host_key")] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path)
                .status();
            assert!(made.unwrap().success());
        }
        fs::copy(place.path("key.pub"), place.path("authorized_keys")).unwrap();
        // sshd needs the folder for its privilege separation.
        fs::create_dir_all("/run/sshd").unwrap();
        let command = Inside::new();
        command.run(|| {
            link::set_up("lo").unwrap();
            sysctl::set(sysctl::root(), "net.ipv4.ip_forward", "1").unwrap();
        });
        let mut config = String::new();
        let hosts = (0..hosts).map(|index| {
            config += &format!(
                "Host {} host{index}\n  HostName {}\n",
                name(index),
                control(index, 2)
            );
            Host::new(&place, index, &command)
        });
        let hosts = hosts.collect();
        // A closed port: nothing listens on that port of 127.0.0.1.
        config += "Host nowhere\n  HostName 127.0.0.1\n";
        config += &format!(
            "Host *\n  Port 2222\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  BatchMode yes\n  \
             UserKnownHostsFile {}\n  StrictHostKeyChecking accept-new\n  LogLevel ERROR\n  ConnectTimeout 5\n",
            key.display(),
            place.path("known_hosts").display(),
        );
        place.write("ssh_config", &config);
        Some(Lab {
            place,
            hosts,
            command,
        })
    }

    /// Arguments with the ssh command, and the path of tcpcost at the hosts.
    pub fn reach(&self) -> Vec<String> {
        let ssh = format!("ssh=ssh -F {}", self.place.path("ssh_config").display());
        let program = env!("CARGO_BIN_EXE_tcpcost");
        let program = format!("program={program}");
        ["--hosts", &ssh, "--hosts", &program]
            .map(String::from)
            .to_vec()
    }

    /// Starts `tcpcost run` of a study with these arguments.
    pub fn start(&self, study: &str, args: &[&str]) -> Started {
        let path = self.place.write("study.toml", study);
        let mut all = vec![
            "run".to_string(),
            path,
            "--out".to_string(),
            "out".to_string(),
        ];
        all.extend(args.iter().map(ToString::to_string));
        self.start_with(all)
    }

    /// Starts tcpcost with these arguments at the command's host.
    pub fn start_with(&self, args: Vec<String>) -> Started {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let command = self.place.command(&args);
        self.command.run(move || Started::new(command))
    }

    /// Runs a study whose hosts are reached by other programs than ssh; these find tcpcost in
    /// `$TCPCOST`.
    pub fn start_in(&self, study: &str) -> Ran {
        let path = self.place.write("study.toml", study);
        self.place.in_time(|| {
            let mut command = self
                .place
                .command(&["run", &path, "--out", "out", "--allow-exec"]);
            command.env("TCPCOST", env!("CARGO_BIN_EXE_tcpcost"));
            let started = self.command.run(move || Started::new(command));
            started.end()
        })
    }

    /// Runs a study by ssh to the end.
    pub fn run(&self, study: &str, more: &[&str]) -> Ran {
        let reach = self.reach();
        let mut args: Vec<&str> = reach.iter().map(String::as_str).collect();
        args.extend(more);
        self.place.in_time(|| self.start(study, &args).end())
    }

    /// Runs a closure at the command's host.
    pub fn here<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.command.run(work)
    }

    /// Id of the thread in a host's namespaces.
    pub fn thread_of(&self, host: usize) -> u32 {
        self.hosts[host].inside.id
    }

    /// Runs a closure at a host.
    pub fn at<T: Send + 'static>(
        &self,
        host: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.hosts[host].inside.run(work)
    }

    /// MTU of a host's NIC.
    pub fn mtu(&self, host: usize) -> u32 {
        self.at(host, || link::read("eth0").unwrap().mtu)
    }

    /// Waits until a host's NIC has this MTU.
    pub fn until_mtu(&self, host: usize, mtu: u32) {
        until("the MTU", || (self.mtu(host) == mtu).then_some(()));
    }

    /// Process id of a host's agent by its name in the study. The agent is a child of sshd, not of
    /// the command.
    pub fn agent_of(&self, host: usize, name: &str) -> i32 {
        let netns = self.at(host, || namespace::inode().unwrap());
        let is_agent = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let link = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default();
            words.get(1) == Some(&&b"agent"[..])
                && words.contains(&name.as_bytes())
                && link.to_string_lossy() == format!("net:[{netns}]")
        };
        until("the agent", || {
            let listed = fs::read_dir("/proc").unwrap().flatten();
            let mut pids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            pids.find(is_agent)
        })
    }
}

/// Address of a host's `eth0`.
pub fn nic(host: usize) -> String {
    format!("10.213.{host}.2")
}

fn control(host: usize, side: u8) -> String {
    format!("10.212.{host}.{side}")
}

impl Host {
    fn new(place: &Place, index: usize, command: &Inside) -> Host {
        let inside = Inside::new();
        let (eth, ctl) = (format!("e{index}"), format!("c{index}"));
        let id = inside.id;
        command.run(move || {
            for (here, there, net) in [(&eth, "eth0", 213), (&ctl, "ctl0", 212)] {
                link::create_veth(here, there, id).unwrap();
                let address: std::net::Ipv4Addr = [10, net, index as u8, 1].into();
                link::add_address(here, address, 30).unwrap();
                link::set_up(here).unwrap();
            }
        });
        inside.run(move || {
            link::set_up("lo").unwrap();
            for (device, net) in [("eth0", 213), ("ctl0", 212)] {
                let address: std::net::Ipv4Addr = [10, net, index as u8, 2].into();
                link::add_address(device, address, 30).unwrap();
                link::set_up(device).unwrap();
            }
            route::add([10, 213, 0, 0].into(), 16, [10, 213, index as u8, 1].into()).unwrap();
        });
        let name = name(index);
        let own = |what: &str| place.path(&format!("{what}-{name}"));
        let config = format!(
            "Port 2222\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 100\n\
             SetEnv XDG_CACHE_HOME={} TCPCOST_STATE_DIR={}\n",
            control(index, 2),
            place.path("host_key").display(),
            place.path("authorized_keys").display(),
            own("cache").display(),
            own("state").display(),
        );
        let config = place.write(&format!("sshd-{name}"), &config);
        let log = fs::File::create(own("log")).unwrap();
        let sshd = inside.run(move || {
            Command::new(SSHD)
                .args(["-D", "-e", "-f", &config])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap()
        });
        until("sshd", || {
            let said = fs::read_to_string(own("log")).unwrap();
            said.contains("Server listening").then_some(())
        });
        Host { inside, sshd }
    }
}

impl Drop for Host {
    /// Ends the daemon and its processes for connections, which would not notice that a connection
    /// was cut.
    fn drop(&mut self) {
        let pid = self.sshd.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        for child in children.unwrap_or_default().split_whitespace() {
            // SAFETY: no pointers; the process is a child of the daemon, so no other process waits
            // for it.
            unsafe { libc::kill(child.parse().unwrap(), libc::SIGTERM) };
        }
    }
}
