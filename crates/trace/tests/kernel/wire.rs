//! Two network namespaces whose kernels are connected by a wire in user space. Unlike a veth it
//! delays, limits or loses packets, and it is captured at both ends and in the middle.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tcpcost_host::{link, namespace};
use tcpcost_link::{
    CapturingDevice, Copied, Device, Filled, Impaired, Impairment, Layer, Offloads, Source, Tap,
};

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 212, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 212, 0, 2);

/// Result of a run: captures as pcapng, at the client, in the middle and at the server.
pub struct Carried {
    pub files: [Vec<u8>; 3],
    /// Longest delay of the wire for lack of a CPU.
    pub late: Duration,
    /// Share of the time that an end's program waited for a CPU, 0 to 1; of the end that waited
    /// longer.
    pub waited_ratio: f64,
}

/// Runs one closure in each namespace until both end. Impairments act after the middle on the way
/// to the server, and before it on the way back; half of the delay is on either side.
pub fn over_wire(
    path: Impairment,
    client: impl FnOnce() + Send,
    server: impl FnOnce() + Send,
) -> Carried {
    let (ended, waited_ns) = (AtomicUsize::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (ended, waited_ns) = (&ended, &waited_ns);
        let mut taps = Vec::new();
        let mut goes = Vec::new();
        let work: [(Ipv4Addr, Box<dyn FnOnce() + Send>); 2] =
            [(CLIENT, Box::new(client)), (SERVER, Box::new(server))];
        for (address, work) in work {
            let (tap_sender, tap) = mpsc::channel();
            let (go, gone) = mpsc::channel::<()>();
            scope.spawn(move || {
                let _ends = Ends(ended);
                namespace::enter_new().unwrap();
                let tap = Tap::open("wire", Layer::Ip, Offloads::NONE).unwrap();
                link::add_address("wire", address, 24).unwrap();
                // The wire reads late if the machine is busy: the device must not lose what the
                // wire does not lose.
                std::fs::write("/sys/class/net/wire/tx_queue_len", "10000").unwrap();
                link::set_up("wire").unwrap();
                tap_sender.send(tap).unwrap();
                gone.recv().unwrap();
                let before = waited_for_a_cpu_ns();
                work();
                waited_ns.fetch_max(waited_for_a_cpu_ns() - before, Ordering::Relaxed);
            });
            taps.push(tap.recv().expect("a namespace with a device of its own"));
            goes.push(go);
        }
        for go in goes {
            go.send(()).unwrap();
        }
        let begin = Instant::now();
        let mut carried = carry(taps.try_into().ok().expect("two"), path, ended).unwrap();
        let waited = Duration::from_nanos(waited_ns.load(Ordering::Relaxed));
        carried.waited_ratio = waited.as_secs_f64() / begin.elapsed().as_secs_f64();
        carried
    })
}

/// Time that this thread was ready to run and did not (sched-stats.rst), ns. 0 if the kernel does
/// not report it.
fn waited_for_a_cpu_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = told.split_ascii_whitespace().nth(1);
    waited.and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Guard that counts a closure that ended, even by a panic.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn carry([client, server]: [Tap; 2], path: Impairment, ended: &AtomicUsize) -> io::Result<Carried> {
    let delay = Impairment {
        delay: path.delay / 2,
        ..Impairment::default()
    };
    let rest = Impairment {
        delay: path.delay / 2,
        ..path
    };
    let started = Instant::now();
    let epoch = Duration::from_secs(1_700_000_000);
    let ready = [client.try_clone()?, server.try_clone()?];
    let files = [0; 3].map(|_| File::default());
    let captured = |at: usize| files[at].clone();
    let near = CapturingDevice::new(client, captured(0), started, epoch)?;
    let near = Impaired::new(near, delay, delay, 8);
    let middle = CapturingDevice::new(near, captured(1), started, epoch)?;
    let mut far = Impaired::new(middle, rest, rest, 7);
    let mut server = CapturingDevice::new(server, captured(2), started, epoch)?;
    let mut source = Buffer(vec![0; 1 << 16]);
    let (mut there, mut back) = (VecDeque::new(), VecDeque::new());
    let mut late = Duration::ZERO;
    while ended.load(Ordering::Acquire) < 2 {
        let due = far.next_event();
        let until = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()));
        let timeout = Timespec::try_from(until.min(IDLE)).expect("some ms");
        let descriptors = ready.each_ref().map(Device::<Copied>::descriptor);
        let mut waits = descriptors
            .map(|of| PollFd::from_borrowed_fd(of.expect("of the system"), PollFlags::IN));
        match poll(&mut waits, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        late = late.max(due.map_or(Duration::ZERO, |due| now.saturating_duration_since(due)));
        far.receive(&mut source, &mut there, AT_ONCE, now)?;
        server.send(&mut there, now)?;
        server.receive(&mut source, &mut back, AT_ONCE, now)?;
        far.send(&mut back, now)?;
    }
    let files = files.map(|file| file.0.lock().unwrap().clone());
    Ok(Carried {
        files,
        late,
        waited_ratio: 0.0,
    })
}

/// Interval for checking whether both ends are done.
const IDLE: Duration = Duration::from_millis(5);
const AT_ONCE: usize = 64;

/// Buffer for packets that are copied out of it.
struct Buffer(Vec<u8>);

impl Source<Copied> for Buffer {
    fn fill(
        &mut self,
        read: &mut dyn FnMut(&mut [u8]) -> io::Result<Filled>,
    ) -> io::Result<Copied> {
        let filled = read(&mut self.0)?;
        Ok(Copied {
            bytes: self.0[..filled.bytes].to_vec(),
            offload: filled.offload,
        })
    }
}

/// File in memory.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
