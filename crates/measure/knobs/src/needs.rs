//! Disk space and memory that a host's workload needs: a pure function of a cell's knobs.
//!
//! Files, buffers and queues are counted, which a study can make large. Not counted are the buffers
//! of the kernel's sockets, which `net.ipv4.tcp_mem` bounds for the whole machine; captures; and
//! the program itself, about 20 MiB.

use serde::{Deserialize, Serialize};

use crate::choices::{SendWith, WaitsBy};
use crate::host_name::HostName;
use crate::knob::Knobs;
use crate::knob_error::KnobError;
use crate::program::{Operation, Program};
use crate::settings::WorkloadSettings;
use crate::side::Side;
use crate::value::Value;
use crate::wire::WireSettings;

/// Upper bounds of the disk space and memory of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Size of the files in the temporary directory, bytes.
    pub disk_bytes: u64,
    /// Size of the memory, bytes.
    pub memory_bytes: u64,
    /// Knob with the largest part of the memory.
    pub memory_knob: String,
    /// Size of that part, bytes.
    largest_bytes: u64,
}

impl Needs {
    /// Needs of a host with this number of worker threads. `times`: number of hosts that a
    /// forwarding host talks with.
    ///
    /// # Errors
    /// The knobs contradict each other.
    pub fn of(
        knobs: &Knobs,
        host: HostName,
        side: Option<Side>,
        times: usize,
        threads: usize,
    ) -> Result<Needs, KnobError> {
        let mut needs = Needs::default();
        let is_user = knobs.is_user(host);
        if let Some(side) = side {
            for group in knobs.groups_at(host, times)? {
                needs.add_group(&group.settings, side, is_user, threads);
            }
        }
        let links = times.max(1) as u64;
        let wire = WireSettings::of(knobs, host);
        if wire.rate_bits_per_s.is_some() {
            needs.add("wire_queue", links.saturating_mul(wire.queue_bytes));
        }
        if let Some(Value::BitsPerS(_)) = knobs.value_at(host, "bottleneck")
            && let Some(Value::Bytes(queue)) = knobs.value_at(host, "bottleneck_queue")
        {
            needs.add("bottleneck_queue", links.saturating_mul(queue));
        }
        Ok(needs)
    }

    /// Text of the knobs and values that cause the needs, such as `files = 63`.
    pub fn why(knobs: &Knobs, names: &[&str]) -> String {
        let shown = names.iter().filter_map(|name| {
            let value = knobs.get(name).cloned().or_else(|| knobs.value(name))?;
            Some(format!("{name} = {value}"))
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    /// Sum of both needs.
    #[must_use]
    pub fn and(mut self, other: &Needs) -> Needs {
        self.disk_bytes = self.disk_bytes.saturating_add(other.disk_bytes);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        if other.largest_bytes > self.largest_bytes {
            self.largest_bytes = other.largest_bytes;
            self.memory_knob.clone_from(&other.memory_knob);
        }
        self
    }

    fn add(&mut self, knob: &str, memory_bytes: u64) {
        let part = Needs {
            disk_bytes: 0,
            memory_bytes,
            memory_knob: knob.to_string(),
            largest_bytes: memory_bytes,
        };
        *self = std::mem::take(self).and(&part);
    }

    fn add_group(&mut self, s: &WorkloadSettings, side: Side, is_user: bool, threads: usize) {
        let connections = s.connections() as u64;
        let is_blocking = s.io == WaitsBy::BlockingThreads;
        let workers = match is_blocking {
            true => 1,
            false => threads.min(s.flows).max(1) as u64,
        };
        let buffers = |count: u64, bytes: usize| count.saturating_mul(bytes as u64);
        if s.sends(side) {
            for with in calls(s) {
                if !with.is_from_files() {
                    self.add("write_size", buffers(workers, s.write_bytes));
                    continue;
                }
                let files = s.files.saturating_mul(s.file_bytes).saturating_mul(workers);
                // Our TCP sends from files on disk instead of a memfd.
                match with == SendWith::SendfileMemfd && !is_user {
                    true => self.add("files", files),
                    false => self.disk_bytes = self.disk_bytes.saturating_add(files),
                }
            }
        }
        if s.sends(side.peer()) {
            let readers = if is_blocking { connections } else { workers };
            let checked = if s.check { 2 } else { 1 };
            self.add("read_size", buffers(readers * checked, s.read_bytes));
            if s.io == WaitsBy::IoUring {
                let each = connections.div_ceil(workers).clamp(RING_MIN, RING_MAX);
                let ring = buffers(each.next_power_of_two(), s.read_bytes);
                let ring = ring.min(RING_BYTES_MAX.max(buffers(2, s.read_bytes)));
                self.add("read_size", workers.saturating_mul(ring));
            }
        }
        if s.kind.has_transactions() && side == Side::Connects {
            self.add("in_flight", buffers(connections, s.in_flight * SLOT_BYTES));
        }
        if is_user {
            let bytes = [s.send_buffer_bytes, s.receive_buffer_bytes];
            for (knob, bytes) in ["send_buffer", "receive_buffer"].into_iter().zip(bytes) {
                self.add(knob, buffers(connections, bytes.unwrap_or(0)));
            }
        }
    }
}

/// Limits of a ring's buffers (`stack/src/uring`).
const RING_MIN: u64 = 16;
const RING_MAX: u64 = 4096;
const RING_BYTES_MAX: u64 = 256 << 20;
/// Size of the time at which a request began, bytes.
const SLOT_BYTES: usize = 8;

/// Calls by which a side may send. Each has its own source of payload.
fn calls(s: &WorkloadSettings) -> Vec<SendWith> {
    let mut calls = vec![s.send_with];
    for operation in s.program.iter().flat_map(Program::all) {
        if let Operation::Send {
            with: Some(with), ..
        } = operation
            && !calls.contains(with)
        {
            calls.push(*with);
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(set: &[(&str, &str)], host: HostName, threads: usize) -> Needs {
        let mut knobs = Knobs::default();
        for (name, value) in set {
            knobs.set(name, value).unwrap();
        }
        let side = match host {
            HostName::CLIENT => Side::Connects,
            _ => Side::Listens,
        };
        Needs::of(&knobs, host, Some(side), 1, threads).unwrap()
    }

    #[test]
    fn files_are_counted_for_each_thread_at_the_host_that_sends() {
        let files = [
            ("send_with", "sendfile"),
            ("files", "4096"),
            ("file_size", "1GiB"),
            ("flows", "2"),
        ];
        let client = needs(&files, HostName::CLIENT, 1);
        assert_eq!(client.disk_bytes, 4 << 40);
        assert!(client.memory_bytes < 1 << 20, "{client:?}");
        assert_eq!(needs(&files, HostName::CLIENT, 8).disk_bytes, 8 << 40);
        assert_eq!(needs(&files, HostName::SERVER, 8).disk_bytes, 0);
        let mut memory = files;
        memory[0].1 = "sendfile-memfd";
        let memory = needs(&memory, HostName::CLIENT, 1);
        assert_eq!((memory.disk_bytes, memory.memory_bytes), (0, 4 << 40));
        assert_eq!(memory.memory_knob, "files");
    }

    #[test]
    fn buffers_are_counted_by_threads_or_by_connections() {
        let large = [("read_size", "64MiB"), ("flows", "30000")];
        let of = |more: &[(&str, &str)], threads| {
            let set = [&large[..], more].concat();
            needs(&set, HostName::SERVER, threads).memory_bytes
        };
        assert_eq!(of(&[], 2), 128 << 20);
        assert_eq!(of(&[("io", "blocking-threads")], 2), 30_000 * (64 << 20));
        let ring = of(&[("io", "io-uring")], 2);
        assert_eq!(ring, (128 << 20) + 2 * (256 << 20));
        let ours = [
            ("server.stack", "user"),
            ("receive_buffer", "1GiB"),
            ("flows", "100"),
        ];
        let ours = needs(&ours, HostName::SERVER, 1);
        assert_eq!(ours.memory_knob, "receive_buffer");
        assert!(ours.memory_bytes >= 100 << 30);
    }

    #[test]
    fn a_small_study_needs_little() {
        let small = needs(&[("flows", "1000")], HostName::SERVER, 2);
        assert_eq!(small.disk_bytes, 0);
        assert!(small.memory_bytes < 1 << 20, "{small:?}");
    }
}
