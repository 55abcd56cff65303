//! The sampler on this kernel. Needs root, else it is skipped.
#![cfg(feature = "bpf")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tcpcost_counts::{CallChains, TaskClass};
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::profile::Profile;

#[test]
fn samples_of_an_interval_have_names_and_layers() {
    let scope = Scope {
        cpus: vec![0],
        own_pids: vec![std::process::id()],
        ..Scope::default()
    };
    let mut profile = match Profile::load(&scope, 999) {
        Ok(profile) => profile,
        Err(error) => {
            let line = error.to_string();
            assert!(line.contains("needs "), "{line}");
            return tcpcost_testbed::skip(&line);
        }
    };
    let samples = |profile: &Profile| profile.chains().unwrap().samples();
    assert_eq!(samples(&profile), 0, "it does not run yet");
    profile.start().unwrap();
    pin();
    let mut pair = pair();
    // Runs until there is a sample in TCP, however slow the machine is.
    loop {
        for _ in 0..2000 {
            pair.0.write_all(&[7; 16_384]).unwrap();
            pair.1.read_exact(&mut [0; 16_384]).unwrap();
        }
        if sends(&profile.chains().unwrap()) > 0 {
            break;
        }
    }
    profile.stop().unwrap();
    let chains = profile.chains().unwrap();
    assert!(sends(&chains) > 0);
    assert!(chains.duration_ns > 0 && chains.period > 0);
    assert_eq!(chains.cpus, [0]);
    assert_eq!(samples(&profile), chains.samples(), "stopped is stopped");
    profile.start().unwrap();
    profile.stop().unwrap();
    assert!(samples(&profile) < chains.samples(), "a new interval");
}

/// Number of samples of this process with TCP's send function on the kernel's chain.
fn sends(chains: &CallChains) -> u64 {
    let is_ours = |chain: &&tcpcost_counts::CallChain| {
        let mut kernel = chain.kernel.iter().map(|&place| chains.name(place));
        chain.whose == TaskClass::Own && kernel.any(|name| name.starts_with("tcp_sendmsg"))
    };
    let sends = chains.chains.iter().filter(is_ours);
    sends.map(|chain| chain.samples).sum()
}

fn pin() {
    // SAFETY: an all-zero set is a valid one, CPU 0 is within it, the kernel only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// A few thousand samples have so many distinct stacks that dozens of them would collide in a plain hash
/// table.
#[test]
fn no_stack_takes_anothers_place() {
    let scope = Scope {
        cpus: vec![0],
        own_pids: vec![std::process::id()],
        ..Scope::default()
    };
    let mut profile = match Profile::load(&scope, 9999) {
        Ok(profile) => profile,
        Err(error) => return tcpcost_testbed::skip(&error.to_string()),
    };
    pin();
    let mut pair = pair();
    profile.start().unwrap();
    let chains = loop {
        for _ in 0..10_000 {
            pair.0.write_all(&[7; 4000]).unwrap();
            pair.1.read_exact(&mut [0; 4000]).unwrap();
        }
        let chains = profile.chains().unwrap();
        if chains.samples() > 5000 {
            break chains;
        }
    };
    profile.stop().unwrap();
    let is_lost = |chain: &&tcpcost_counts::CallChain| {
        let functions: Vec<_> = chain.kernel.iter().map(|&at| chains.name(at)).collect();
        functions == [tcpcost_counts::UNKNOWN]
    };
    let lost = chains.chains.iter().filter(is_lost);
    assert_eq!(lost.map(|chain| chain.samples).sum::<u64>(), 0);
}
