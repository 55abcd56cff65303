//! Tests with real devices, in namespaces: they need root.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use tcpcost_counts::Environment;
use tcpcost_knobs::{DeviceName, DeviceOwner, DeviceSettings, HostName, Knobs, Value};

use tcpcost_host::apply::{ApplyError, apply, steer};
use tcpcost_host::device_knobs::{DeviceSetting, State};
use tcpcost_host::journal::{Journal, restore};
use tcpcost_host::setting::Setting;
use tcpcost_host::{environment, ethtool, link, namespace, sysctl};
use tcpcost_testbed::{CLIENT, SERVER, in_namespace, with_bed};

/// Settings of the client's device by these knobs.
fn settings(pairs: &[(&str, &str)]) -> DeviceSettings {
    let mut knobs = Knobs::default();
    for (name, text) in pairs {
        knobs.set(name, text).unwrap();
    }
    DeviceSettings::from_knobs(&knobs, HostName::CLIENT)
}

fn device(name: &str) -> DeviceName {
    name.parse().unwrap()
}

#[test]
fn every_knob_is_set_read_back_and_taken_back() {
    let client = || {
        let peer = IpAddr::V4(SERVER);
        let read = || {
            let also = BTreeSet::from(["net.ipv4.tcp_keepalive_intvl".to_string()]);
            environment::of_port(&device("c"), peer, &also).unwrap()
        };
        let created = read();
        assert_eq!(created.segmentation, "tso");
        let mut journal = Journal::in_memory();
        let mut check = |pairs: &[(&str, &str)], seen: &dyn Fn(&Environment) -> bool| {
            let settings = settings(pairs);
            let mut apply = || {
                let device = device("c");
                apply(&settings, &device, peer, DeviceOwner::Bed, &mut journal).unwrap();
            };
            apply();
            let now = read();
            assert!(seen(&now), "{settings:?}\n{now:?}");
            // Applied once more: nothing to do, and nothing is noted twice.
            apply();
            journal.put_back().unwrap();
            assert_eq!(read(), created, "after {settings:?}");
        };
        check(&[("mtu", "9000B")], &|e| e.mtu == 9000);
        check(&[("segmentation", "per-mss")], &|e| {
            e.segmentation == "per-mss" && e.gso_max_segs == 1
        });
        check(&[("segmentation", "software-gso")], &|e| {
            e.segmentation == "software-gso" && !e.offloads["tso"] && e.offloads["gso"]
        });
        check(&[("segmentation", "tso")], &|e| e.segmentation == "tso");
        for name in ["tx_checksum", "sg", "tso", "gso"] {
            check(&[(name, "off")], &|e| !e.offloads[name]);
        }
        check(&[("gro", "on")], &|e| e.offloads["gro"]);
        check(&[("gso_max_segs", "2")], &|e| e.gso_max_segs == 2);
        check(&[("gso_max_size", "16KiB")], &|e| e.gso_max_size == 16384);
        check(&[("gso_max_size", "128KiB")], &|e| {
            e.gso_max_size == 131_072
        });
        check(&[("quickack", "on")], &|e| e.route.ends_with("quickack 1"));
        check(&[("bottleneck", "941Mbit")], &|e| {
            // The kernel rounds the burst to its ticks of 64 ns, 7.5 bytes here.
            e.qdisc.starts_with("tbf rate 941000000bit burst 1310")
                && e.qdisc.ends_with("b limit 1048576b")
        });
        check(&[("sysctl.net.ipv4.tcp_keepalive_intvl", "33")], &|e| {
            e.sysctls["net.ipv4.tcp_keepalive_intvl"] == "33"
        });
        let many = [
            ("mtu", "4000B"),
            ("segmentation", "software-gso"),
            ("gro", "on"),
            ("gso_max_size", "32KiB"),
            ("bottleneck", "40Gbit"),
            ("quickack", "on"),
            ("sysctl.net.ipv4.tcp_rmem", "4096 65536 1000000"),
        ];
        check(&many, &|e| {
            e.mtu == 4000 && e.sysctls["net.ipv4.tcp_rmem"] == "4096 65536 1000000"
        });
        steer(&[0], &device("c"), DeviceOwner::Bed, &mut journal).unwrap();
        assert_eq!(read().rps_cpus.as_deref(), Some("1"));
        journal.put_back().unwrap();
        assert_eq!(read(), created);
    };
    with_bed(client, || ());
}

#[test]
fn what_the_kernel_does_not_take_is_unsupported_and_says_so() {
    let client = || {
        let mut journal = Journal::in_memory();
        let mut refused = |settings: DeviceSettings| {
            let peer = IpAddr::V4(SERVER);
            let error = apply(
                &settings,
                &device("c"),
                peer,
                DeviceOwner::Bed,
                &mut journal,
            )
            .unwrap_err();
            journal.put_back().unwrap();
            match error {
                ApplyError::Unsupported { knob, reason } => {
                    assert!(!reason.is_empty());
                    knob
                }
                other => panic!("{settings:?}: {other:?}"),
            }
        };
        assert_eq!(
            refused(settings(&[("sg", "off"), ("tso", "on")])),
            "tso",
            "the kernel takes the order and does not follow it"
        );
        assert_eq!(
            refused(settings(&[("segmentation", "software-gso"), ("sg", "off")])),
            "gso",
            "which the kernel takes away with sg"
        );
        for (sysctl, value) in [
            ("sysctl.net.ipv4.nonesuch", "1"),
            ("sysctl.net.ipv4.tcp_sack", "many"),
        ] {
            assert_eq!(refused(settings(&[(sysctl, value)])), sysctl);
        }
        let mut too_large = DeviceSettings::default();
        too_large.values.insert("mtu", Value::Bytes(70_000));
        assert_eq!(refused(too_large), "mtu");
    };
    with_bed(client, || ());
}

#[test]
fn the_two_ends_pass_data() {
    let (listening_sender, listening) = mpsc::channel();
    let server = move || {
        let listener = TcpListener::bind((SERVER, 7000)).unwrap();
        listening_sender.send(()).unwrap();
        let (mut stream, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), IpAddr::V4(CLIENT));
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let client = move || {
        listening.recv().unwrap();
        let mut stream = TcpStream::connect((SERVER, 7000)).unwrap();
        stream.write_all(b"over the veth").unwrap();
    };
    if let Some((_, received)) = with_bed(client, server) {
        assert_eq!(received, "over the veth");
    }
}

#[test]
fn a_user_namespace_makes_root_enough_for_a_bed() {
    use std::os::unix::process::CommandExt;
    if let Err(why) = namespace::can_make_namespaces() {
        tcpcost_testbed::skip(&why.to_string());
        return;
    }
    let mut command = Command::new("cat");
    command.arg("/proc/self/uid_map");
    let enter = || {
        namespace::enter_user_namespace()
            .and_then(|()| namespace::enter_new())
            .and_then(|()| link::create_veth("c", "s", std::process::id()))
            .and_then(|()| link::set_gso_max_segs("c", 1))
            .and_then(|()| ethtool::set("c", "tso", false))
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        // Kernels so far refuse it. That is reported as an unsupported knob, not as a failure.
        match steer(
            &[0],
            &device("c"),
            DeviceOwner::Bed,
            &mut Journal::in_memory(),
        ) {
            Err(ApplyError::System(error)) => Err(std::io::Error::other(error.to_string())),
            _ => Ok(()),
        }
    };
    // SAFETY: the child has one thread, and malloc of glibc and musl works after fork.
    unsafe { command.pre_exec(enter) };
    let output = command.output().unwrap();
    let map = String::from_utf8(output.stdout).unwrap();
    assert_eq!(map.split_whitespace().next(), Some("0"), "{map}");
    assert!(map.trim_end().ends_with(" 1"), "one id alone: {map}");
}

#[test]
fn a_namespace_and_its_devices_end_with_its_threads() {
    let before = namespace::inode().unwrap();
    let Some(inside) = in_namespace(|| {
        assert_eq!(link::read("lo").unwrap().mtu, 65536);
        assert!(link::read("lo").unwrap().up);
        namespace::inode().unwrap()
    }) else {
        return;
    };
    assert_ne!(inside, before);
    assert_eq!(namespace::inode().unwrap(), before);
}

/// Tests that the changes of a killed run are restored. The child is this test again, recognised by
/// an environment variable; it starts in the namespace of the thread that starts it.
#[test]
fn what_a_killed_process_changed_is_put_back() {
    const FOLDER: &str = "TCPCOST_TEST_JOURNAL";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let mut journal = Journal::open(folder.as_ref()).unwrap();
        let settings = settings(&[
            ("segmentation", "per-mss"),
            ("tso", "off"),
            ("sysctl.net.ipv4.tcp_sack", "0"),
        ]);
        let peer = IpAddr::from([127, 0, 0, 1]);
        apply(
            &settings,
            &device("lo"),
            peer,
            DeviceOwner::Loopback,
            &mut journal,
        )
        .unwrap();
        println!("\nchanged");
        // Waits until it is killed. If its parent dies, the pipe ends.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    in_namespace(|| {
        let state = || {
            let sack = sysctl::read(sysctl::root(), "net.ipv4.tcp_sack").unwrap();
            (
                link::read("lo").unwrap(),
                ethtool::read("lo", "tso").unwrap(),
                sack,
            )
        };
        let before = state();
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["what_a_killed_process_changed_is_put_back", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap() == "changed"));
        assert_ne!(state(), before);

        let restored = restore(folder.path()).unwrap();
        assert_eq!(restored.kept.len(), 1, "its owner lives: {restored}");
        assert_ne!(state(), before);

        child.kill().unwrap();
        child.wait().unwrap();
        let restored = restore(folder.path()).unwrap();
        assert_eq!(restored.put_back.len(), 3, "{restored}");
        assert_eq!(state(), before);
        assert_eq!(restore(folder.path()).unwrap(), Default::default());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_journal_that_goes_out_of_scope_puts_back() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let before = link::read("lo").unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        journal
            .note(Setting::Device(DeviceSetting {
                knob: "mtu".to_string(),
                device: device("lo"),
                state: State::Number(before.mtu),
            }))
            .unwrap();
        link::set_mtu("lo", 9000).unwrap();
        drop(journal);
        assert_eq!(link::read("lo").unwrap(), before);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    });
}
