//! Hosts that are pods. `tcpcost run` uses the objects that `tcpcost study show --format manifest`
//! prints, by a stand-in for kubectl that knows only these objects, and a stand-in for a node's
//! kubelet that runs a Job's containers as its objects say. Needs root; else skipped.

mod common;
mod lab;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::MEASURE;
use lab::Lab;
use serde_json::Value;
use tcpcost_testbed::{has_program, until};

/// Stand-in for `kubectl exec -i svc/NAME -- PROGRAM ARGUMENT…` and `kubectl attach -i -q
/// svc/NAME`. The file of a service holds the thread of its pod. While the container runs, a second
/// file holds the port on which the pod's kubelet accepts an attach.
const KUBECTL: &str = r#"#!/bin/bash
service() {
    name=${1#svc/}
    [ -f "$0.services/$name" ] || { echo "Error from server (NotFound): services \"$name\" not found" >&2; exit 1; }
}
if [ "$1 $2 $4" = "exec -i --" ]; then
    service "$3"
    thread=$(cat "$0.services/$name")
    shift 4
    exec nsenter --net="/proc/$thread/ns/net" --mount="/proc/$thread/ns/mnt" -- env PATH="$(dirname "$TCPCOST")" "$@"
elif [ "$1 $2 $3 $#" = "attach -i -q 4" ]; then
    service "$4"
    { port=$(cat "$0.services/$name.port") && exec 3<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null ||
        { echo "error: unable to upgrade connection: container tcpcost not found in pod" >&2; exit 1; }
    exec 4<&0
    cat <&3 3>&- 4<&- & out=$!
    cat <&4 >&3 4<&- & in=$!
    exec 3>&- 4<&-
    wait -n
    kill $in $out 2>/dev/null
    exit 0
fi
echo "error: unknown command: $*" >&2
exit 1
"#;

/// Part of the study before `[measure]`.
const WORKLOAD: &str = "[workload]\nrate = \"20Mbit\"\n";

/// Objects of a manifest, kubectl's stand-in, and the `[hosts]` table in the manifest's comment.
struct Printed {
    kubectl: String,
    job: Value,
    services: Vec<String>,
    hosts: String,
}

/// Prints a manifest, and registers its services: each selects the pod of its index.
fn print(lab: &Lab, more: &[&str]) -> Printed {
    let kubectl = lab.place.write("kubectl", KUBECTL);
    std::fs::set_permissions(&kubectl, PermissionsExt::from_mode(0o755)).unwrap();
    let study = lab
        .place
        .write("pods.toml", &format!("{WORKLOAD}{MEASURE}"));
    let mut args = vec![
        "study",
        "show",
        &study,
        "--format=manifest",
        "--pod",
        "image=registry.example/tcpcost:1",
    ];
    args.extend(more);
    let printed = lab.place.run(&args);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let documents = printed.stdout.split("---\n").skip(1);
    let mut objects = documents.map(|document| serde_json::from_str::<Value>(document).unwrap());
    let job = objects.next().unwrap();
    assert_eq!(job["kind"], "Job");
    let services: Vec<String> = objects
        .map(|service| {
            assert_eq!(service["kind"], "Service");
            service["metadata"]["name"].as_str().unwrap().to_string()
        })
        .collect();
    assert_eq!(services.len(), 2);
    std::fs::create_dir_all(lab.place.path("kubectl.services")).unwrap();
    for (index, service) in services.iter().enumerate() {
        let thread = lab.thread_of(index).to_string();
        lab.place
            .write(&format!("kubectl.services/{service}"), &thread);
    }
    let hosts: String = printed
        .stdout
        .lines()
        .skip_while(|line| *line != "# [hosts]")
        .take_while(|line| line.starts_with('#'))
        .map(|line| format!("{}\n", line.trim_start_matches("# ")))
        .collect();
    Printed {
        hosts: hosts.replace(":kubectl ", &format!(":{kubectl} ")),
        kubectl,
        job,
        services,
    }
}

/// Study file with these hosts.
fn with(hosts: &str, knobs: &str, study: &str) -> String {
    format!("{hosts}[bed]\nclient.device = \"eth0\"\nserver.device = \"eth0\"\n{knobs}{study}")
}

#[test]
fn the_hosts_of_a_manifest_are_reached_by_kubectl_exec() {
    let Some(lab) = Lab::new(2) else { return };
    if !has_program("nsenter") {
        return;
    }
    let printed = print(&lab, &[]);
    let hosts = &printed.hosts;
    let ran = lab.start_in(&with(hosts, WORKLOAD, MEASURE));
    assert_eq!(ran.code, Some(0), "{hosts}{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    let received = common::count(&record, "server", "workload", "payload_bytes_received");
    assert!(received > 50_000, "{received}");

    // The pod is gone.
    let service = format!("{}.services/{}", printed.kubectl, printed.services[1]);
    std::fs::remove_file(service).unwrap();
    std::fs::remove_dir_all(lab.place.path("out")).unwrap();
    let ran = lab.start_in(&format!("{hosts}{WORKLOAD}{MEASURE}"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("server agent: ") && ran.stderr.contains("NotFound"),
        "{ran:?}"
    );
}

/// Stand-in for a node's kubelet, for the pod of an index: it runs the container, connects the
/// first client that attaches, closes the input when that client leaves (stdinOnce), and starts the
/// container again in the same pod if it fails.
struct Kubelet<'a> {
    lab: &'a Lab,
    printed: &'a Printed,
    index: usize,
    listener: TcpListener,
    /// True if no more containers are to start.
    is_over: AtomicBool,
    restarts: AtomicU64,
}

impl<'a> Kubelet<'a> {
    fn new(lab: &'a Lab, printed: &'a Printed, index: usize) -> Kubelet<'a> {
        Kubelet {
            lab,
            printed,
            index,
            listener: lab.here(|| TcpListener::bind("127.0.0.1:0").unwrap()),
            is_over: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
        }
    }

    fn run(&self) {
        let spec = &self.printed.job["spec"]["template"]["spec"];
        loop {
            let code = self.run_container(&spec["containers"][0]);
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let restarts = self.restarts.fetch_add(1, Ordering::SeqCst) + 1;
            let limit = self.printed.job["spec"]["backoffLimit"].as_u64().unwrap();
            let is_again = spec["restartPolicy"] == "OnFailure" && code != Some(0);
            assert!(is_again && restarts <= limit, "{code:?}: the host is gone");
        }
    }

    /// Runs a container to its end. Returns its exit code.
    fn run_container(&self, container: &Value) -> Option<i32> {
        let words = container["command"].as_array().unwrap().iter();
        let index = self.index.to_string();
        let mut words =
            words.map(|word| (word.as_str().unwrap()).replace("$(JOB_COMPLETION_INDEX)", &index));
        assert_eq!(words.next().as_deref(), Some("tcpcost"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tcpcost"));
        let state = &container["volumeMounts"][0]["mountPath"];
        assert_eq!(state, "/run/tcpcost", "what outlives a container");
        command
            .args(words)
            .env(
                "TCPCOST_STATE_DIR",
                self.lab.place.path(&format!("state-{index}")),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = self
            .lab
            .at(self.index, move || command.spawn())
            .expect("the container starts");
        let file = format!(
            "kubectl.services/{}.port",
            self.printed.services[self.index]
        );
        let port = self.listener.local_addr().unwrap().port();
        self.lab.place.write(&file, &port.to_string());
        let (stream, _) = self.listener.accept().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let is_once = container["stdinOnce"] == true;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pump(&stream, &mut stdin);
                match is_once {
                    true => drop(stdin),
                    false => std::mem::forget(stdin),
                }
            });
            pump(&mut stdout, &stream);
            // A container that does not run accepts no attach.
            std::fs::remove_file(self.lab.place.path(&file)).unwrap();
            let _ = stream.shutdown(Shutdown::Both);
        });
        child.wait().unwrap().code()
    }

    /// Stops restarts, as when the Job is deleted.
    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        let address = self.listener.local_addr().unwrap();
        self.lab.here(move || drop(TcpStream::connect(address)));
    }
}

/// Copies bytes at once. `io::copy` would splice, and the kernel holds back the last segment of a
/// splice to wait for more.
fn pump(mut from: impl Read, mut to: impl Write) {
    let mut bytes = [0; 8192];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

const LONG: &str = r#"
[workload]
rate = "10Mbit"
[measure]
warm_up = "20ms"
duration = "1s"
repetitions = 100
others_max = "100%"
retries = 0
"#;

#[test]
fn agents_that_are_the_job_itself_are_attached_to_and_started_anew() {
    let Some(lab) = Lab::new(2) else { return };
    if !has_program("bash") {
        return;
    }
    let printed = print(&lab, &["--pod", "attach"]);
    let hosts = &printed.hosts;
    assert!(hosts.contains("server = \"attach:"), "{hosts}");
    let kubelets = [0, 1].map(|index| Kubelet::new(&lab, &printed, index));
    std::thread::scope(|scope| {
        for kubelet in &kubelets {
            scope.spawn(|| kubelet.run());
        }
        // No thread waits for an attach after a failure.
        let _ends = Ends(&kubelets);
        let ran = lab
            .start(&with(hosts, WORKLOAD, MEASURE), &["--allow-exec"])
            .end();
        assert_eq!(ran.code, Some(0), "{hosts}{ran:?}");
        let record = lab.place.records("out").remove(0);
        assert_eq!(record["outcome"], "measured", "{record}");
        let received = common::count(&record, "server", "workload", "payload_bytes_received");
        assert!(received > 50_000, "{received}");
        std::fs::remove_dir_all(lab.place.path("out")).unwrap();

        // The agent of the next command dies: another agent starts in its pod and restores its
        // changes, and the run continues.
        let knobs = "client.mtu = 1400\nserver.mtu = 1300\n";
        let started = lab.start(&with(hosts, knobs, LONG), &["--allow-exec"]);
        lab.until_mtu(1, 1300);
        let before = kubelets[1].restarts.load(Ordering::SeqCst);
        let agent = lab.agent_of(1, "server");
        // SAFETY: no pointers; the agent belongs to the test.
        assert_eq!(unsafe { libc::kill(agent, libc::SIGKILL) }, 0);
        until("a failed trial and one that is measured", || {
            let text = std::fs::read_to_string(lab.place.path("out/records.jsonl")).ok()?;
            let failed = text.lines().position(|line| line.contains("\"failed\""))?;
            let later = text.lines().skip(failed);
            later
                .into_iter()
                .find(|line| line.contains("\"measured\""))
                .map(drop)
        });
        started.signal(libc::SIGINT);
        let ran = started.end();
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(
            ran.stderr
                .contains("server restored what a dead agent had changed: mtu 1500 of eth0"),
            "{ran:?}"
        );
        lab.until_mtu(0, 1500);
        lab.until_mtu(1, 1500);
        assert!(kubelets[1].restarts.load(Ordering::SeqCst) > before);
    });
}

struct Ends<'a, 'b>(&'a [Kubelet<'b>]);

impl Drop for Ends<'_, '_> {
    fn drop(&mut self) {
        for kubelet in self.0 {
            kubelet.end();
        }
    }
}
