//! The meter `exact` on this kernel. Needs root, else it is skipped.
#![cfg(feature = "bpf")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tcpcost_counts::{CountOwner, MeterName, Quantity, Reading};
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::{self, Idle};
use tcpcost_meter::{Meter, MeterError};
use tcpcost_testbed::until;

/// Loads the meter on the CPUs of this process. `None` if it is unavailable.
fn load(own_pids: Vec<u32>) -> Option<Box<dyn Meter + Send>> {
    let cpus = cpus();
    let scope = Scope {
        cpus,
        own_pids,
        ..Scope::default()
    };
    match bpf::load(MeterName::Exact, &scope) {
        Ok(meter) => Some(meter),
        Err(error) => {
            let line = error.to_string();
            assert!(line.contains("needs "), "{line}");
            tcpcost_testbed::skip(&line);
            None
        }
    }
}

/// CPUs that this process may run on.
fn cpus() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    list.trim()
        .split(',')
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().unwrap()..=last.parse().unwrap()
        })
        .collect()
}

/// Loopback traffic of `rounds` small and large messages, in both directions.
fn traffic(rounds: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..length]).unwrap();
        }
    });
    let mut stream = TcpStream::connect(address).unwrap();
    let mut buffer = vec![0; 65_536];
    for round in 0..rounds {
        let length = if round % 2 == 0 { 1 } else { 65_536 };
        stream.write_all(&buffer[..length]).unwrap();
        stream.read_exact(&mut buffer[..length]).unwrap();
    }
    drop(stream);
    echo.join().unwrap();
}

fn of(readings: &[Reading], whose: &CountOwner) -> Reading {
    readings
        .iter()
        .find(|reading| reading.whose == *whose)
        .unwrap()
        .clone()
}

#[test]
fn the_contexts_of_each_cpu_add_up_to_wall_time() {
    let Some(mut meter) = load(vec![std::process::id()]) else {
        return;
    };
    // Loads a second copy, because it must not disturb the first.
    let _second = load(vec![]);
    let before = meter.snapshot().unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(300) {
        traffic(200);
    }
    let after = meter.snapshot().unwrap();
    let readings = after.since(&before).unwrap();
    for reading in &readings {
        let closure = reading.closure().unwrap();
        println!("{:?} {closure:.6}", reading.whose);
        assert!((closure - 1.0).abs() < 0.001, "{closure} {reading:?}");
    }
    let all = of(&readings, &CountOwner::Cpus(cpus())).counts;
    for busy in [Quantity::ExactTaskOwnNs, Quantity::ExactSoftirqNetRxNs] {
        assert!(all[&busy] > 0, "{busy} {all:?}");
    }
}

#[test]
fn own_work_is_told_from_that_of_others() {
    let Some(mut own) = load(vec![std::process::id()]) else {
        return;
    };
    let Some(mut others) = load(vec![]) else {
        return;
    };
    // Ids above pid_max belong to no process. There are more of them than the programs compare one by one.
    let nobody = (1 << 23)..(1 << 23) + 200;
    let Some(mut many) = load(nobody.chain([std::process::id()]).collect()) else {
        return;
    };
    let before = (own.snapshot().unwrap(), others.snapshot().unwrap());
    let before_many = many.snapshot().unwrap();
    traffic(500);
    let growth = |readings: Vec<Reading>| of(&readings, &CountOwner::Cpus(cpus())).counts;
    let of_many = growth(many.snapshot().unwrap().since(&before_many).unwrap());
    let theirs = growth(others.snapshot().unwrap().since(&before.1).unwrap());
    let ours = growth(own.snapshot().unwrap().since(&before.0).unwrap());
    assert!(ours[&Quantity::ExactTaskOwnNs] > 0);
    assert!(of_many[&Quantity::ExactTaskOwnNs] > 0, "{of_many:?}");
    assert_eq!(theirs[&Quantity::ExactTaskOwnNs], 0);
    assert!(theirs[&Quantity::ExactTaskOthersNs] > 0);
}

/// The end of a network namespace causes work for a kworker.
#[test]
fn kworkers_are_a_class_of_their_own() {
    let Some(mut meter) = load(vec![]) else {
        return;
    };
    let before = meter.snapshot().unwrap();
    let grown = (0..1000).any(|_| {
        tcpcost_testbed::in_namespace(|| ()).unwrap(); // The namespace ends here.
        let readings = meter.snapshot().unwrap().since(&before).unwrap();
        of(&readings, &CountOwner::Cpus(cpus())).counts[&Quantity::ExactKworkerNs] > 0
    });
    assert!(grown);
}

#[test]
fn what_cannot_be_had_is_one_line() {
    let scope = Scope {
        cpus: vec![5000],
        ..Scope::default()
    };
    let error = bpf::load(MeterName::Exact, &scope).err().unwrap();
    assert!(matches!(error, MeterError::Unavailable { .. }), "{error:?}");
    let line = error.to_string();
    assert_eq!(
        line,
        "meter exact: CPU 5000: only CPUs below 1024 are known"
    );
    assert!(bpf::load(MeterName::Proc, &Scope::default()).is_err());
}

#[test]
fn totals_stand_still_in_a_pause_and_go_on_after_it() {
    let scope = Scope {
        cpus: cpus(),
        own_pids: vec![std::process::id()],
        ..Scope::default()
    };
    if load(vec![]).is_none() {
        return;
    }
    let mut meter = bpf::load(MeterName::Exact, &scope).unwrap();
    let all = |readings: Vec<Reading>| of(&readings, &CountOwner::Cpus(cpus())).counts;
    for idle in [Idle::Detached, Idle::Attached, Idle::Detached] {
        meter.pause(idle);
        let mut stands_still = || {
            let paused = meter.snapshot().unwrap();
            traffic(10);
            let grown = all(meter.snapshot().unwrap().since(&paused).unwrap());
            grown.values().all(|&ns| ns == 0)
        };
        match idle {
            Idle::Attached => assert!(stands_still()),
            // The kernel may detach the programs a moment later.
            Idle::Detached => until("detached programs stand still", || {
                stands_still().then_some(())
            }),
        }

        meter.resume().unwrap();
        let resumed = meter.snapshot().unwrap();
        traffic(50);
        let readings = meter.snapshot().unwrap().since(&resumed).unwrap();
        for reading in &readings {
            // The task at the start is known from the first event, at most a tick of 10 ms later; a CPU
            // without an event is idle. All time is charged to some context.
            let closure = reading.closure().unwrap();
            assert!((closure - 1.0).abs() < 0.01, "{closure} {reading:?}");
        }
        let grown = all(readings);
        for busy in [Quantity::ExactTaskOwnNs, Quantity::ExactSoftirqNetRxNs] {
            assert!(grown[&busy] > 0, "{busy} {grown:?}");
        }
    }
}

#[test]
fn two_readers_share_a_copy_that_ends_with_the_one_that_loaded_it() {
    let scope = |cpu, loaded| Scope {
        cpus: vec![cpu],
        own_pids: vec![std::process::id()],
        loaded,
        ..Scope::default()
    };
    if load(vec![]).is_none() {
        return;
    }
    let (first, last) = (cpus()[0], *cpus().last().unwrap());
    let mut owner = bpf::load(MeterName::Exact, &scope(first, [].into())).unwrap();
    let handle = owner.handle().unwrap();
    let lent = [(MeterName::Exact, handle.clone())].into();
    let mut reader = bpf::load(MeterName::Exact, &scope(last, lent)).unwrap();
    assert_eq!(reader.handle(), None, "it has nothing to lend");
    let before = (owner.snapshot().unwrap(), reader.snapshot().unwrap());
    // Runs long enough that the microseconds between reading the clock and the counts are below a thousandth.
    traffic(4000);
    let ours = owner.snapshot().unwrap().since(&before.0).unwrap();
    let theirs = reader.snapshot().unwrap().since(&before.1).unwrap();
    for (readings, cpu) in [(ours, first), (theirs, last)] {
        let closure = of(&readings, &CountOwner::Cpu(cpu)).closure().unwrap();
        assert!((closure - 1.0).abs() < 0.001, "{closure} {readings:?}");
    }

    drop(owner);
    // The kernel may detach the programs a moment later; a child of another test holds them until its exec.
    // The context that ran at that moment keeps the time since then. Without programs no other context grows.
    until("no program runs any more", || {
        let before = reader.snapshot().unwrap();
        traffic(50);
        let after = reader.snapshot().unwrap().since(&before).unwrap();
        let grown = &of(&after, &CountOwner::Cpu(last)).counts;
        (grown.values().filter(|&&ns| ns > 0).count() <= 1).then_some(())
    });
    drop(reader);
    // A handle of ended programs or of another host is not usable, so programs are loaded.
    for handle in [handle, "another-host 1".to_string(), String::new()] {
        let lent = [(MeterName::Exact, handle)].into();
        let alone = bpf::load(MeterName::Exact, &scope(first, lent)).unwrap();
        assert!(alone.handle().is_some());
    }
}

/// A process that was started after `follow`, and its children, are own. A process that existed before is
/// not.
#[test]
fn what_a_followed_process_starts_is_own() {
    let scope = Scope {
        cpus: cpus(),
        ..Scope::default()
    };
    let (mut meter, follower) = match bpf::load_following(&scope) {
        Ok(loaded) => loaded,
        Err(error) => return tcpcost_testbed::skip(&error.to_string()),
    };
    let own_ns = |meter: &mut dyn Meter, program: &str| {
        let before = meter.snapshot().unwrap();
        let status = Command::new("sh").args(["-c", program]).status().unwrap();
        assert!(status.success());
        let after = meter.snapshot().unwrap();
        of(&after.since(&before).unwrap(), &CountOwner::Cpus(cpus())).counts
            [&Quantity::ExactTaskOwnNs]
    };
    // A shell in a shell, both of which count. The `:` prevents that the shell is replaced by its last
    // command.
    let counts = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; :'; :";
    assert_eq!(own_ns(&mut *meter, counts), 0);
    follower.follow(std::process::id(), true).unwrap();
    let followed = own_ns(&mut *meter, counts);
    assert!(followed > 1_000_000, "{followed} ns");
    follower.follow(std::process::id(), false).unwrap();
    // New children are no longer own. The process itself was own until its next switch.
    let left = own_ns(&mut *meter, counts);
    assert!(left < followed / 2, "{left} ns of {followed}");
    assert!(
        follower.follow(std::process::id(), false).is_ok(),
        "twice is no error"
    );
}

#[test]
fn processes_that_find_no_room_are_told_with_their_count() {
    let scope = Scope {
        cpus: cpus(),
        follows: Some(2),
        ..Scope::default()
    };
    let (mut meter, follower) = match bpf::load_following(&scope) {
        Ok(loaded) => loaded,
        Err(error) => return tcpcost_testbed::skip(&error.to_string()),
    };
    follower.follow(std::process::id(), true).unwrap();
    assert_eq!(meter.overflow(), None);
    // Each child waits for its input. With this process, the first child fills the table.
    let children: Vec<_> = (0..4)
        .map(|_| Command::new("cat").stdin(Stdio::piped()).spawn().unwrap())
        .collect();
    let told = meter.overflow().unwrap();
    assert!(told.starts_with("exact: 3 processes"), "{told}");
    assert_eq!(meter.overflow(), None, "each is told once");
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
