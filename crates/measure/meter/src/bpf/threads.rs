//! CPU time of named threads by the meter `exact`: of the thread itself, and of softirqs and hard interrupts for the sockets that
//! it made after it was named and for the connections that these sockets accepted. Instances of a load generator share one copy of
//! the programs, whether each is a process or several are threads of one process.

use std::collections::VecDeque;
use std::fmt;

use super::exact::Exact;
use super::layout::exact::OWNERS;
use super::object::Table;
use super::owned_rows::{OwnedRows, THREADS_MAX};
use crate::{MeterError, Owners, Scope};

/// Programs of `exact`, and the threads that they measure.
pub struct Threads {
    cpus: Vec<usize>,
    followed: Table,
    rows: OwnedRows,
    /// Free owners. The owner that was freed first is reused first, because packets of its former thread may still arrive.
    free: VecDeque<usize>,
    _programs: Exact,
}

/// A thread that is measured.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    owner: usize,
    /// Time of the owner's rows when the thread was named.
    base_ns: u64,
}

impl Threads {
    /// Loads the programs.
    ///
    /// # Errors
    /// CAP_BPF, CAP_PERFMON or CAP_NET_ADMIN, BTF or cgroup v2 is missing, or this process is not in the first PID namespace.
    pub fn load(cpus: &[usize]) -> Result<Threads, MeterError> {
        let scope = Scope {
            cpus: cpus.to_vec(),
            follows: Some(THREADS_MAX as u32),
            owners: Owners::Threads,
            ..Scope::default()
        };
        let exact = Exact::load(&scope)?;
        let (followed, rows) = exact.threads()?;
        Ok(Threads {
            cpus: scope.cpus,
            followed,
            rows,
            free: (OWNERS..OWNERS + THREADS_MAX).collect(),
            _programs: exact,
        })
    }

    /// Measures a thread from the next time that it sleeps until it ends or [`Threads::forget`] is called.
    ///
    /// # Errors
    /// [`THREADS_MAX`] threads are measured already.
    pub fn name(&mut self, tid: u32) -> Result<Thread, MeterError> {
        let room = self.free.pop_front();
        let owner = room.ok_or_else(|| {
            let why = format!("no room for more than {THREADS_MAX} threads");
            MeterError::refused(tcpcost_counts::MeterName::Exact, why)
        })?;
        let thread = Thread {
            tid,
            owner,
            base_ns: self.sum_ns(owner),
        };
        let named = self.set(tid, Some(owner));
        if named.is_err() {
            self.free.push_front(owner);
        }
        named.map(|()| thread)
    }

    /// CPU time of a thread since it was named, ns: its own time up to its last sleep, and interrupts for its sockets up to now.
    pub fn ns(&self, thread: &Thread) -> u64 {
        self.sum_ns(thread.owner).saturating_sub(thread.base_ns)
    }

    /// Frees the thread's place.
    pub fn forget(&mut self, thread: &Thread) {
        // If this fails the thread stays named, and its owner's time grows without a reader.
        let _ = self.set(thread.tid, None);
        self.free.push_back(thread.owner);
    }

    fn set(&self, tid: u32, owner: Option<usize>) -> Result<(), MeterError> {
        let owner = owner.map(|owner| (owner as u32).to_ne_bytes());
        let owner = owner.as_ref().map(|owner| &owner[..]);
        self.followed.set(&tid.to_ne_bytes(), owner)
    }

    fn sum_ns(&self, owner: usize) -> u64 {
        let row = self.rows.sum(owner, &self.cpus);
        row.task_ns() + row.softirq_ns() + row.hardirq_ns()
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}
