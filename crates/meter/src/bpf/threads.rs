//! CPU time of threads that are named while `exact` counts: of the thread itself, and of softirqs and hard interrupts for the sockets
//! that it made since then and for the connections that they accepted. So instances of a load generator are told apart, one a process or
//! many in one, without a program for each.

use std::collections::VecDeque;
use std::fmt;

use super::exact::Exact;
use super::layout::exact::{OWNED_CONTEXTS, OWNERS, TASK_NS, USER_NS};
use super::object::Table;
use super::owned_rows::{OwnedRows, THREADS_MAX};
use crate::{MeterError, Owners, Scope};

/// The programs of `exact`, and the threads whose time they tell.
pub struct Threads {
    cpus: Vec<usize>,
    followed: Table,
    rows: OwnedRows,
    /// Owners that no thread is. The one that was freed first is taken first: packets of its former thread may be on their way.
    free: VecDeque<usize>,
    _programs: Exact,
}

/// A thread whose time is told.
#[derive(Debug)]
pub struct Thread {
    tid: u32,
    owner: usize,
    /// What the owner had when it became this thread.
    base_ns: u64,
}

impl Threads {
    /// Loads the programs.
    ///
    /// # Errors
    /// Those of `exact` with owners: no privilege (CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN), no BTF, no cgroup v2, a PID namespace of our own.
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

    /// From when this thread sleeps next its time is told, until it ends or [`Threads::forget`] is called.
    ///
    /// # Errors
    /// There are [`THREADS_MAX`].
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

    /// CPU time of a thread since it was named, ns: its own until it slept last, and that of interrupts for its sockets.
    pub fn ns(&self, thread: &Thread) -> u64 {
        self.sum_ns(thread.owner).saturating_sub(thread.base_ns)
    }

    /// Frees the thread's place.
    pub fn forget(&mut self, thread: &Thread) {
        // Nothing but an owner without time comes of a thread that stays named.
        let _ = self.set(thread.tid, None);
        self.free.push_back(thread.owner);
    }

    fn set(&self, tid: u32, owner: Option<usize>) -> Result<(), MeterError> {
        let owner = owner.map(|owner| (owner as u32).to_ne_bytes());
        let owner = owner.as_ref().map(|owner| &owner[..]);
        self.followed.set(&tid.to_ne_bytes(), owner)
    }

    fn sum_ns(&self, owner: usize) -> u64 {
        let ns = self.rows.sum(owner, &self.cpus).ns;
        let interrupts: u64 = ns[..OWNED_CONTEXTS.min(USER_NS)].iter().sum();
        ns[TASK_NS] + interrupts
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}
