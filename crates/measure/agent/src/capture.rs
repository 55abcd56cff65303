//! The capture of an end. The kernel's end: its device's packets by libpcap, on a thread of its own. Our
//! TCP's end: packets that pass between our TCP and its wire, written by the worker that sends or receives
//! them.
//!
//! The thread captures in the agent's namespace because it is started there.

use std::fs::File;
use std::io::BufWriter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tcpcost_link::pcapng::{Header, Packet, RAW, Writer};
use tcpcost_link::{CapturingDevice, Device};
use tcpcost_stack::Wire;

use crate::protocol::{CaptureRequest, Prepare, StoppedCapture, realtime_ns};
use tcpcost_host::libpcap::{Live, TIMEOUT};

/// The capture file of our TCP's end, which its workers share.
pub type WireFile = Arc<Mutex<Writer<BufWriter<File>>>>;

/// A capture that runs.
pub enum Capture {
    /// Captures a device of the kernel.
    Device {
        name: String,
        /// Tells the thread to stop when it is dropped.
        stop: Stop,
        /// Returns the number of packets written, and of packets that did not fit into the ring.
        thread: JoinHandle<anyhow::Result<(u64, u64)>>,
    },
    /// Captures the wires of our TCP.
    Wire {
        /// Name of the device.
        name: String,
        file: WireFile,
    },
}

/// Stops the capture thread when dropped, so that the capture of an aborted trial ends, too.
pub struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Capture {
    /// Begins the capture, before there is a connection.
    ///
    /// # Errors
    /// The file cannot be made; libpcap is missing or may not capture here.
    pub fn start(
        prepare: &Prepare,
        asked: &CaptureRequest,
        is_kernel: bool,
    ) -> anyhow::Result<Capture> {
        let [port] = prepare.ports.as_slice() else {
            bail!("a host with several devices is not captured");
        };
        let name = port.device.clone();
        if !is_kernel {
            let file = Arc::new(Mutex::new(create(asked, &name, RAW)?));
            return Ok(Capture::Wire { name, file });
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (device, asked, told) = (name.clone(), asked.clone(), Arc::clone(&stop));
        let (ready, is_ready) = channel();
        // A libpcap handle stays on the thread that made it.
        let run = move || {
            let opened = DeviceFile::open(&device, &asked);
            let (opened, outcome) = match opened {
                Ok(opened) => (Some(opened), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The send fails if the caller is gone; then `told` is set and ends `write`.
            let _ = ready.send(outcome);
            opened.map_or(Ok((0, 0)), |opened| opened.write(&told))
        };
        let thread = std::thread::Builder::new()
            .name(format!("{}-capture", prepare.host))
            .spawn(run)?;
        let stop = Stop(stop);
        is_ready.recv().context("the capture's thread ended")??;
        Ok(Capture::Device { name, stop, thread })
    }

    /// The file that workers of our TCP write into.
    pub fn wire(&self) -> Option<WireFile> {
        match self {
            Capture::Wire { file, .. } => Some(Arc::clone(file)),
            Capture::Device { .. } => None,
        }
    }

    /// Ends the capture. The workers must have ended.
    ///
    /// # Errors
    /// Packets could not be captured or written.
    pub fn stop(self) -> anyhow::Result<StoppedCapture> {
        match self {
            Capture::Device { name, stop, thread } => {
                drop(stop);
                let ended = thread.join();
                let (packets, dropped) = ended.map_err(|_| anyhow!("the capture panicked"))??;
                Ok(StoppedCapture {
                    place: format!("{name}, by libpcap"),
                    packets,
                    dropped: Some(dropped),
                })
            }
            Capture::Wire { name, file } => {
                let file = Arc::into_inner(file).context("a worker still captures")?;
                let file = file.into_inner().unwrap_or_else(PoisonError::into_inner);
                let packets = file.packets();
                file.finish(realtime_ns(), None)
                    .context("write the capture")?;
                Ok(StoppedCapture {
                    place: format!("between our TCP and {name}"),
                    packets,
                    dropped: None,
                })
            }
        }
    }
}

/// A device, and the file that its packets go into.
struct DeviceFile {
    live: Live,
    writer: Writer<BufWriter<File>>,
}

impl DeviceFile {
    fn open(device: &str, asked: &CaptureRequest) -> anyhow::Result<DeviceFile> {
        // Opened before the file is created, so that without libpcap there is no file.
        let live = Live::open(device, asked.snap_len, RING_BYTES)?;
        let writer = create(asked, device, live.link_type())?;
        Ok(DeviceFile { live, writer })
    }

    /// Writes packets until `told` is set and no more come. Returns the number of packets written, and of
    /// packets that did not fit into the ring.
    fn write(self, told: &AtomicBool) -> anyhow::Result<(u64, u64)> {
        let DeviceFile {
            mut live,
            mut writer,
        } = self;
        let mut stopping_since = None;
        loop {
            let any = live.wait(TIMEOUT)?;
            if told.load(Ordering::Relaxed) {
                // The other end's last packets may still be in flight.
                let since: &mut Instant = stopping_since.get_or_insert_with(Instant::now);
                if !any || since.elapsed() > DRAIN_MAX {
                    break;
                }
            }
            let mut written = Ok(());
            live.packets(|at_ns, len, bytes| {
                let packet = Packet {
                    at_ns,
                    len,
                    direction: None,
                    comment: "",
                };
                if written.is_ok() {
                    written = writer.packet(packet, std::iter::once(bytes));
                }
            })?;
            written.context("write the capture")?;
        }
        let (packets, dropped) = (writer.packets(), live.dropped()?);
        writer
            .finish(realtime_ns(), Some(dropped))
            .context("write the capture")?;
        Ok((packets, dropped))
    }
}

fn create(
    asked: &CaptureRequest,
    interface: &str,
    link_type: u16,
) -> anyhow::Result<Writer<BufWriter<File>>> {
    let tried = || format!("create {}", asked.file.display());
    let made = asked
        .place()
        .and_then(|(folder, name)| folder.create_anew(name));
    let file = made.with_context(tried)?;
    let header = Header {
        link_type,
        snap_len: asked.snap_len,
        comment: &asked.comment,
        interface,
    };
    Writer::new(BufWriter::with_capacity(BUFFER_BYTES, file), header).with_context(tried)
}

/// Wraps a device so that its packets are also written to the file. Their time stamp is the clock reading of
/// our TCP, one for all packets of a batch.
pub fn captured<D: Device<Wire> + Send + 'static>(
    device: D,
    file: WireFile,
) -> Box<dyn Device<Wire> + Send> {
    let epoch = Duration::from_nanos(realtime_ns());
    Box::new(CapturingDevice::into_file(
        device,
        file,
        Instant::now(),
        epoch,
    ))
}

/// Size of the kernel's ring: 200 ms at a million packets a second, of 128 bytes and a header each.
const RING_BYTES: usize = 64 << 20;
/// Size of a write(2) to the file.
const BUFFER_BYTES: usize = 1 << 20;
/// Limit on waiting for last packets: a loopback that other programs use is never quiet.
const DRAIN_MAX: Duration = Duration::from_secs(1);
