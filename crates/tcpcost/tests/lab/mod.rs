//! A laboratory: hosts that are network namespaces with an sshd each, and one from which the command runs.
//!
//! Each host has `eth0`, its NIC, in a network of its own, and `ctl0`, by which it is reached; the command's host routes
//! between them.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tcpcost_host::{link, namespace, route, sysctl};
use tcpcost_testbed::{can_make_namespaces, has_cpus, has_program, thread_id, until};

use crate::common::{Place, Ran, Started};

/// A thread in namespaces of its own, network and mounts, that does what it is given.
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

/// A host with its sshd.
pub struct Host {
    inside: Inside,
    sshd: Child,
}

/// The hosts, and where the command runs.
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
    /// So many hosts, called alpha, beta, gamma, and by their numbers host0, host1, …; `None` where they cannot be had: the test is skipped.
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
        // sshd separates privileges in it.
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
        // Closed: nobody listens on that port of the last one.
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

    /// What the command line says of ssh, and where the hosts have tcpcost.
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

    /// Starts tcpcost with these arguments where the command runs.
    pub fn start_with(&self, args: Vec<String>) -> Started {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let command = self.place.command(&args);
        self.command.run(move || Started::new(command))
    }

    /// Runs a study to the end whose hosts are reached by other programs than ssh; these find tcpcost in `$TCPCOST`.
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

    /// Does something where the command runs.
    pub fn here<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.command.run(work)
    }

    /// A thread in a host's namespaces.
    pub fn thread_of(&self, host: usize) -> u32 {
        self.hosts[host].inside.id
    }

    /// Does something at a host.
    pub fn at<T: Send + 'static>(
        &self,
        host: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.hosts[host].inside.run(work)
    }

    /// The MTU of a host's NIC.
    pub fn mtu(&self, host: usize) -> u32 {
        self.at(host, || link::read("eth0").unwrap().mtu)
    }

    /// Waits until a host's NIC has this MTU.
    pub fn until_mtu(&self, host: usize, mtu: u32) {
        until("the MTU", || (self.mtu(host) == mtu).then_some(()));
    }

    /// The agent of a host by its name in the study: not a child of the command, but of the sshd.
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

/// The address of a host's `eth0`.
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
    /// The daemon ends, and the processes that it has for connections: of one that was cut none hears that the other end has gone.
    fn drop(&mut self) {
        let pid = self.sshd.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
        for child in children.unwrap_or_default().split_whitespace() {
            // SAFETY: no pointers; it is the daemon's, which nobody waits for any more.
            unsafe { libc::kill(child.parse().unwrap(), libc::SIGTERM) };
        }
    }
}
