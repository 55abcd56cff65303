//! CPU time of named threads on this kernel. Needs root, else it is skipped.
#![cfg(feature = "bpf")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use tcpcost_counts::{CountOwner, Quantity as Q, Snapshot};
use tcpcost_meter::bpf::{self, Thread, Threads};
use tcpcost_meter::{Owners, Scope};

const ROUNDS: usize = 4000;

/// Only one test runs at a time, because the traffic of others counts as neighbours'.
static ALONE: Mutex<()> = Mutex::new(());

fn cpus() -> Vec<usize> {
    (0..thread::available_parallelism().unwrap().get()).collect()
}

fn load() -> Option<Threads> {
    match Threads::load(&cpus()) {
        Ok(threads) => Some(threads),
        Err(error) => {
            tcpcost_testbed::skip(&error.to_string());
            None
        }
    }
}

/// A thread that sleeps until it may begin its work, and after the work until it may end.
struct Worker {
    tid: u32,
    begin: Sender<()>,
    done: Receiver<()>,
    end: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    fn new(work: impl FnOnce() + Send + 'static) -> Worker {
        let (tell_tid, tid) = channel();
        let (begin, begins) = channel();
        let (is_done, done) = channel();
        let (end, ends) = channel();
        let thread = thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_pid().cast_unsigned();
            tell_tid.send(tid).unwrap();
            begins.recv().unwrap();
            work();
            is_done.send(()).unwrap();
            let _ = ends.recv();
        });
        let worker = Worker {
            tid: tid.recv().unwrap(),
            begin,
            done,
            end,
            thread,
        };
        worker.wait_for_sleep();
        worker
    }

    fn wait_for_sleep(&self) {
        tcpcost_testbed::until("the thread sleeps", || {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.tid));
            let stat = stat.unwrap();
            let (_, state) = stat.rsplit_once(") ").unwrap();
            state.starts_with('S').then_some(())
        });
    }

    /// The thread's time after its work.
    fn ns(&self, threads: &Threads, thread: &Thread) -> u64 {
        self.done.recv().unwrap();
        self.wait_for_sleep();
        threads.ns(thread)
    }

    fn end(self) {
        drop(self.end);
        self.thread.join().unwrap();
    }
}

/// Body of a thread that makes a listener, so that it owns it, and answers one connection.
fn server(address: Sender<SocketAddr>) -> impl FnOnce() + Send {
    move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        address.send(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        while stream.read(&mut [0; 8]).unwrap() > 0 {
            stream.write_all(b"x").unwrap();
        }
    }
}

fn client(address: Receiver<SocketAddr>) -> impl FnOnce() + Send {
    move || {
        let mut stream = TcpStream::connect(address.recv().unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        for _ in 0..ROUNDS {
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
    }
}

/// Threads of both ends of a connection.
fn pair() -> [Worker; 2] {
    let (tell, address) = channel();
    [Worker::new(server(tell)), Worker::new(client(address))]
}

/// Time of this process: its tasks, and softirqs and interrupts for all its sockets.
fn command_ns(before: &Snapshot, after: &Snapshot) -> u64 {
    let readings = after.since(before).unwrap();
    let mut readings = readings.into_iter();
    let all = readings.find(|reading| matches!(reading.whose, CountOwner::Cpus(_)));
    let counts = all.unwrap().counts;
    let [softirq, hardirq] = Q::EXACT_OWNED[0];
    counts[&Q::ExactTaskOwnNs] + counts[&softirq] + counts[&hardirq]
}

#[test]
fn threads_of_one_process_add_up_to_the_process_and_an_idle_one_has_nothing() {
    let _alone = ALONE.lock().unwrap();
    let Some(mut threads) = load() else { return };
    let scope = Scope {
        cpus: cpus(),
        owners: Owners::Command,
        ..Scope::default()
    };
    let (mut process, follower) = bpf::load_following(&scope).unwrap();
    let idle = Worker::new(|| {});
    let workers: Vec<Worker> = pair().into_iter().chain(pair()).collect();
    let idle_thread = threads.name(idle.tid).unwrap();
    let named: Vec<Thread> = workers
        .iter()
        .map(|worker| threads.name(worker.tid).unwrap())
        .collect();
    follower.follow(std::process::id(), true).unwrap();
    let before = process.snapshot().unwrap();
    for worker in &workers {
        worker.begin.send(()).unwrap();
    }
    let each: Vec<u64> = workers
        .iter()
        .zip(&named)
        .map(|(worker, thread)| worker.ns(&threads, thread))
        .collect();
    let all = command_ns(&before, &process.snapshot().unwrap());
    assert_eq!(threads.ns(&idle_thread), 0, "a thread that did not run");
    assert!(each.iter().all(|&ns| ns > 0), "{each:?}");
    let sum: u64 = each.iter().sum();
    let ratio = sum as f64 / all as f64;
    println!("threads {each:?}, process {all}, ratio {ratio:.3}");
    // There are two copies of the programs, and each counts the cost of the other. The test's own thread is
    // only in the process' time.
    assert!((0.85..1.1).contains(&ratio), "{each:?} of {all}");
    idle.begin.send(()).unwrap();
    for worker in workers {
        worker.end();
    }
    idle.end();
}

#[test]
fn a_forgotten_thread_is_in_no_time_and_a_place_is_free_again() {
    let _alone = ALONE.lock().unwrap();
    let Some(mut threads) = load() else { return };
    let [server, client] = pair();
    let named = threads.name(client.tid).unwrap();
    threads.forget(&named);
    let idle = Worker::new(|| {});
    // Uses all places, including the one that the client had.
    let named: Vec<Thread> = (0..bpf::THREADS_MAX)
        .map(|_| threads.name(idle.tid).unwrap())
        .collect();
    let error = threads.name(idle.tid).unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    server.begin.send(()).unwrap();
    client.begin.send(()).unwrap();
    client.done.recv().unwrap();
    assert!(named.iter().all(|thread| threads.ns(thread) == 0));
    idle.begin.send(()).unwrap();
    for worker in [server, client, idle] {
        worker.end();
    }
}
