//! Settings of a host's own device and their restoration: queues and their threads by ssh, also if
//! the connection is lost; settings that a device refuses; a port that is moved into a namespace
//! and back. A veth is the NIC. Needs root and openssh-server; else each test reports a skip.

mod common;
mod lab;

use common::{MEASURE, environment};
use lab::Lab;
use tcpcost_host::channels::Channels;
use tcpcost_host::{address, link};
use tcpcost_testbed::{thread_id, until};

const HOSTS: &str = "[hosts]\nclient = { reach = \"ssh:alpha\", device = \"eth0\" }\n\
                     server = { reach = \"ssh:beta\", device = \"eth0\" }\n";

fn receiving(lab: &Lab, host: usize) -> u32 {
    lab.at(host, || Channels::read("eth0").unwrap().receiving())
}

#[test]
fn queues_of_a_nic_and_their_threads_are_set_read_back_and_put_back() {
    let Some(lab) = Lab::new(2) else { return };
    assert_eq!(receiving(&lab, 0), 1, "a veth is made with one in use");
    let bed =
        "[bed]\nsteering = \"off\"\nchannels = 2\ngro = \"on\"\nclient.threaded_napi = \"on\"\n";
    let ran = lab.run(&format!("{HOSTS}{bed}{MEASURE}"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    for host in ["client", "server"] {
        let port = environment(&record, host);
        assert_eq!(port["nic"]["ethtool"]["channels"], 2, "{port}");
        assert_eq!(port["nic"]["rx_queues"], 2, "{port}");
        assert_eq!(port["threaded_napi"], host == "client", "{port}");
    }
    assert_eq!([receiving(&lab, 0), receiving(&lab, 1)], [1, 1]);
    let threaded = || std::fs::read_to_string("/sys/class/net/eth0/threaded").unwrap();
    assert_eq!(lab.at(0, threaded).trim(), "0");
}

#[test]
fn queues_of_a_host_whose_connection_is_lost_are_put_back_there() {
    let Some(lab) = Lab::new(2) else { return };
    let study = format!("{HOSTS}[bed]\nserver.channels = 2\n{MEASURE}")
        .replace("repetitions = 1", "repetitions = 100");
    let reach = lab.reach();
    let mut args: Vec<&str> = reach.iter().map(String::as_str).collect();
    args.extend(["--hosts", "silence_max=5s"]);
    let started = lab.start(&study, &args);
    until("two queues", || (receiving(&lab, 1) == 2).then_some(()));
    // No FIN and no RST is sent, so neither end learns of it.
    lab.at(1, || link::set_down("ctl0").unwrap());
    until("one queue", || (receiving(&lab, 1) == 1).then_some(()));
    assert_eq!(started.end().code, Some(1));
}

#[test]
fn what_a_device_has_not_is_refused_by_host_and_knob() {
    let Some(lab) = Lab::new(2) else { return };
    let knobs = [
        (
            "rss_queues",
            "2",
            "read the RSS table of eth0: Operation not supported",
        ),
        (
            "irq_cpus",
            "[0]",
            "find the interrupts of eth0, which has none of its own",
        ),
        (
            "rx_ring",
            "512",
            "read rx_ring of eth0: Operation not supported",
        ),
        (
            "rx_usecs",
            "10",
            "read rx_usecs of eth0: Operation not supported",
        ),
        (
            "channels",
            "4096",
            "give eth0 4096 rx, 4096 tx, 0 combined channels: Invalid argument",
        ),
    ];
    let cells: String = knobs
        .iter()
        .map(|(knob, value, _)| {
            format!("[[cells]]\nname = \"{knob}\"\n\"server.{knob}\" = {value}\n")
        })
        .collect();
    let ran = lab.run(&format!("{HOSTS}{cells}{MEASURE}"), &[]);
    let records = lab.place.records_of_work("out");
    assert_eq!(records.len(), knobs.len(), "{ran:?}");
    for (knob, _, expected) in knobs {
        let record = records
            .iter()
            .find(|record| record["cell"] == knob)
            .unwrap();
        assert_eq!(record["outcome"], "skipped", "{record}");
        let reason = record["reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("{knob}: server: ")), "{reason}");
        assert!(reason.contains(expected), "{reason}");
    }
    assert_eq!(receiving(&lab, 1), 1);
}

#[test]
fn a_user_without_the_privilege_is_told_by_the_hosts_name_and_the_others_are_as_they_were() {
    let Some(lab) = Lab::new(2) else { return };
    if !tcpcost_testbed::has_program("setpriv") {
        return;
    }
    let ssh = format!("ssh -F {}", lab.place.path("ssh_config").display());
    let without = "setpriv --bounding-set=-net_admin --inh-caps=-net_admin --";
    let hosts = HOSTS.replace("ssh:beta", &format!("exec:{ssh} beta {without}"));
    let study = format!("{hosts}[bed]\nclient.mtu = 1400\nserver.mtu = 1300\n{MEASURE}");
    let ran = lab.run(&study, &["--allow-exec"]);
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "skipped", "{ran:?}");
    let reason = record["reason"].as_str().unwrap();
    assert!(
        reason.contains("server") && reason.contains("needs more privileges"),
        "{reason}"
    );
    assert_eq!([lab.mtu(0), lab.mtu(1)], [1500, 1500]);
}

/// Makes two ports at the command's host, joined by a cable.
fn two_ports(lab: &Lab) {
    lab.here(|| {
        link::create_veth("p0", "p1", thread_id()).unwrap();
        for (device, host) in [("p0", 1), ("p1", 2)] {
            link::add_address(device, [10, 214, 0, host], 30).unwrap();
            link::set_up(device).unwrap();
        }
    });
}

const PORTS: &str = "[hosts]\nclient = { reach = \"local\", device = \"p0\" }\n\
                     server = { reach = \"netns\", device = \"p1\", mtu = 1400 }\n[workload]\nrate = \"20Mbit\"\n";

/// State of the second port at the command's host: up, MTU and addresses. `None` while it is in a
/// namespace.
fn second_port(lab: &Lab) -> Option<(bool, u32, Vec<String>)> {
    lab.here(|| {
        let link = link::read("p1").ok()?;
        let all = address::all(false).unwrap().into_iter();
        let own = all.filter(|one| one.device == "p1");
        let addresses = own.map(|one| format!("{}/{}", one.address, one.prefix));
        Some((link.up, link.mtu, addresses.collect()))
    })
}

/// Waits until the second port is restored.
fn is_back(lab: &Lab) {
    let expected = (true, 1500, vec!["10.214.0.2/30".to_string()]);
    until("the port", || {
        (second_port(lab).as_ref() == Some(&expected)).then_some(())
    });
}

#[test]
fn one_of_two_ports_is_moved_into_a_namespace_and_comes_back_as_it_was() {
    let Some(lab) = Lab::new(0) else { return };
    two_ports(&lab);
    let ran = lab.run(&format!("{PORTS}{MEASURE}"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    let link = &record["topology"]["links"][0];
    assert_eq!(link["b"]["device"], "p1");
    assert_eq!(
        link["b"]["address"], "10.214.0.2",
        "it has its address there"
    );
    assert_eq!(environment(&record, "server")["mtu"], 1400);
    let route = environment(&record, "client")["route"].as_str().unwrap();
    assert!(route.contains("dev p0"), "over the cable: {route}");
    is_back(&lab);
}

#[test]
fn a_moved_port_comes_back_when_the_command_is_killed() {
    let Some(lab) = Lab::new(0) else { return };
    two_ports(&lab);
    let study = format!("{PORTS}{MEASURE}").replace("repetitions = 1", "repetitions = 100");
    let started = lab.start(&study, &[]);
    until("a record", || {
        let text = std::fs::read_to_string(lab.place.path("out/records.jsonl")).ok()?;
        text.contains('\n').then_some(())
    });
    assert_eq!(second_port(&lab), None, "it is away");
    started.signal(libc::SIGKILL);
    is_back(&lab);
    drop(started);
}

#[test]
fn a_moved_port_comes_back_when_the_agent_that_has_it_is_killed() {
    let Some(lab) = Lab::new(0) else { return };
    two_ports(&lab);
    let study = format!("{PORTS}{MEASURE}").replace("repetitions = 1", "repetitions = 100");
    let started = lab.start(&study, &[]);
    let records =
        || std::fs::read_to_string(lab.place.path("out/records.jsonl")).unwrap_or_default();
    until("a record", || records().contains('\n').then_some(()));
    let measured = || records().matches("\"outcome\":\"measured\"").count();
    let mut before = None;
    until("the failed trial", || {
        if records().contains("server agent: ended") {
            return Some(());
        }
        // An agent that dies between two trials is replaced without a failed trial; then the next
        // is killed.
        if before.is_none_or(|before| measured() > before + 1) {
            before = Some(measured());
            let agent = started.agent_of("server");
            // SAFETY: no pointers; the agent belongs to the test.
            let killed = unsafe { libc::kill(agent, libc::SIGKILL) };
            assert_eq!(killed, 0);
        }
        None
    });
    // The port was taken from the dead agent's namespace, and is lent to the next agent.
    let after = records().lines().count();
    until("a trial after it", || {
        let records = lab.place.records("out");
        let later = records.get(after..)?;
        later
            .iter()
            .any(|record| record["outcome"] == "measured")
            .then_some(())
    });
    started.signal(libc::SIGINT);
    assert_eq!(started.end().code, Some(130));
    is_back(&lab);
}
