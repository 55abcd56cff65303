//! CPU time by context to the nanosecond: which task, which softirq, hard interrupt or idle. And how often: runs of NET_RX, sleeps
//! of own tasks, IPIs, interrupts of the timer beyond the tick. What this kernel does not show is absent.
//!
//! Programs at sched_switch, softirq_entry/exit, irq_handler_entry/exit and x86's interrupt vectors
//! charge the time since the last event on their CPU to what was running. The kernel's own accounting
//! by the tick sees a softirq as part of what it interrupts, and samples it 4 ms apart.
//!
//! A softirq's entry or exit costs some 40 ns of CPU: 18 for the kernel's way to a program and back, 16 for the clock. A
//! switch between tasks of one class reads no clock: 20. A one-byte transaction on one CPU is four of the one and two of the
//! other (examples/bpf_cost.rs: 0.20 us of 3.4). Where the kernel guards returns and indirect calls by software the way there
//! and back is 77, and the clock 55. Owners add four programs a transaction, which read no clock.
//!
//! Two ends of a trial on one host share a copy: each opens the cells of its own CPUs.
//!
//! It cannot see what the hypervisor stole: that is in the context that it hit. Compare
//! `cpu_steal_ns` of the meter `proc`.

#![allow(unsafe_code, reason = "memory that an eBPF program writes")]

use std::fmt;
use std::os::linux::fs::MetadataExt;
use std::sync::LazyLock;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use std::{fs, process, ptr, thread};

use rustix::time::ClockId;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot, Totals};

use super::calls::Calls;
use super::cgroup;
use super::events::{self, COMMAND_EVENTS, HOLDER_EVENTS, NEIGHBOUR_EVENTS, PEER_EVENTS};
use super::functions::FUNCTIONS;
use super::holders::{self, Holders, PLACES_MAX};
use super::layout::exact::{
    COMMAND, CONTEXTS, COUNTED, Cell, Changes, MAX_CPUS, OF_COMMAND, OF_HOLDERS, OF_THREADS,
    OWN_PIDS, OWNERS, Owned, Place, Seen,
};
use super::object::{Attached, Listing, Room, Table};
use super::owned_rows::{OWNED, OwnedRows, THREADS_MAX};
use super::{Idle, MISSED_BY_PROBE, Pausable};
use crate::holder::ByHolder;
use crate::{Meter, MeterError, Needs, Owners, Scope, clock};

/// The meter `exact`: [`Quantity::EXACT_CONTEXTS`] and [`Quantity::EXACT_EVENTS`] of each CPU ([`CountOwner::Cpu`]) and of
/// all ([`CountOwner::Cpus`]).
pub struct Exact {
    attached: Attached,
    cpus: Vec<usize>,
    /// CPUs that no other reader of these programs had opened.
    opened: Vec<usize>,
    /// The totals last given, by CPU: none ever shrinks.
    given: Vec<[u64; CONTEXTS]>,
    /// Softirq time by owner ([`Owned`]), a row for each CPU and owner; absent where it has none.
    owned: Option<OwnedRows>,
    /// Where each process with sockets is an owner.
    holders: Option<Holders>,
    /// Rows of this process; `None` if it is not one of several owners.
    host: Option<OfHost>,
    /// Processes without room that were told.
    not_followed: u64,
    /// Softirqs that have no owner, events that are not seen, and the reasons, in a line. `None` if nothing is missing.
    misses: Option<String>,
    /// Events that the programs see here, a bit for each place.
    seen: u64,
}

impl Exact {
    /// Loads the programs and makes each CPU switch tasks once, from where on its context is known.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: no privilege, no BTF, a CPU that is not there,
    /// or a PID namespace of our own, in which process ids are not the kernel's.
    pub fn load(scope: &Scope) -> Result<Exact, MeterError> {
        if let Some(cpu) = scope.cpus.iter().find(|cpu| **cpu >= MAX_CPUS) {
            let reason = format!("CPU {cpu}: only CPUs below {MAX_CPUS} are known");
            return Err(MeterError::refused(METER, reason));
        }
        let length = SEEN_AT + size_of::<Seen>();
        let shared = scope.loaded.get(&METER).and_then(|handle| {
            let attached = Attached::of(METER, handle, length).ok()?;
            let mut exact = Exact::counting(attached, scope).ok()?;
            exact.own(scope).ok()?;
            Some(exact)
        });
        if let Some(shared) = shared {
            return Ok(shared);
        }
        // A few are compared one by one, which is cheaper than the table of those that are followed.
        let mut own = [0_u32; OWN_PIDS];
        let (few, many) = match scope.own_pids.len() <= OWN_PIDS {
            true => (&scope.own_pids[..], &[][..]),
            false => (&[][..], &scope.own_pids[..]),
        };
        own[..few.len()].copy_from_slice(few);
        let is_followed = !many.is_empty() || scope.owners == Owners::Holders;
        let most = scope.follows.or(is_followed.then_some(FOLLOWED_MAX));
        let (points, misses) = points(scope)?;
        let (targ, rooms) = settings(own, most, scope.owners, points == Points::Probe);
        let attached = Attached::new(METER, OBJECT, &targ, &rooms, length)?;
        if !many.is_empty() {
            let followed = attached.remembered(FOLLOWED, CELLS_LENGTH)?;
            for &pid in many {
                followed.set(&pid.to_ne_bytes(), Some(&COMMAND_BYTES))?;
            }
        }
        in_first_pid_namespace()?;
        let (seen, unseen) = events::seen(&attached);
        // SAFETY: so many bytes were mapped, and cells and counts of changes are multiples of 64 bytes; programs do not read it.
        unsafe {
            attached
                .variables()
                .add(SEEN_AT)
                .cast::<Seen>()
                .write_volatile(seen)
        };
        let mut exact = Exact::counting(attached, scope)?;
        let all: Vec<String> = misses.into_iter().chain(unseen).collect();
        exact.misses = (!all.is_empty()).then(|| all.join("; "));
        exact.own(scope)?;
        Ok(exact)
    }

    /// Maps the rows of the owners that the scope asks for.
    ///
    /// # Errors
    /// The programs were loaded for other owners, or this process is not in the first PID namespace.
    fn own(&mut self, scope: &Scope) -> Result<(), MeterError> {
        match scope.owners {
            // `Threads` maps the rows of its threads.
            Owners::None | Owners::Threads => {}
            Owners::Command => {
                self.owned = Some(OwnedRows::new(&self.attached, OWNERS)?);
            }
            Owners::Holders => self.holders = Some(Holders::new(&self.attached, self.seen)?),
            Owners::Hosts { index, count, .. } => {
                in_first_pid_namespace()?;
                let place = OWNERS as u32 + index;
                let followed = self.attached.remembered(FOLLOWED, CELLS_LENGTH)?;
                followed.set(&process::id().to_ne_bytes(), Some(&place.to_ne_bytes()))?;
                self.host = Some(OfHost {
                    rows: OwnedRows::new(&self.attached, OWNERS + count as usize)?,
                    place,
                    given: Counts::new(),
                });
            }
        }
        Ok(())
    }

    /// Opens the cells of its CPUs, but for those that another reader has opened.
    fn counting(attached: Attached, scope: &Scope) -> Result<Exact, MeterError> {
        let given = vec![[0; CONTEXTS]; scope.cpus.len()];
        // SAFETY: so many bytes were mapped; the reader that loaded the programs has written it.
        let seen = unsafe {
            attached
                .variables()
                .add(SEEN_AT)
                .cast::<Seen>()
                .read_volatile()
        };
        let mut meter = Exact {
            attached,
            cpus: scope.cpus.clone(),
            given,
            owned: None,
            holders: None,
            host: None,
            not_followed: 0,
            misses: None,
            seen: seen.events,
            opened: Vec::new(),
        };
        for &cpu in &scope.cpus {
            if meter.cell(cpu).is_open == 1 {
                continue;
            }
            meter.restart(cpu, 0);
            meter.opened.push(cpu);
            switch_tasks_on(cpu).map_err(|source| MeterError::Unavailable {
                meter: METER,
                tried: format!("run on CPU {cpu}"),
                source: Some(source),
                needs: None,
            })?;
            if meter.cell(cpu).last_ns == 0 {
                return Err(MeterError::refused(
                    METER,
                    format!("CPU {cpu} shows no task switch"),
                ));
            }
        }
        Ok(meter)
    }

    /// By whom processes are made own, with [`Scope::follows`].
    ///
    /// # Errors
    /// It was loaded without, or there are no descriptors left.
    pub(super) fn follower(&self) -> Result<Follower, MeterError> {
        let files = match self.owned {
            Some(_) => Some(self.attached.listing(OWNED_FILES)?),
            None => None,
        };
        Ok(Follower {
            followed: self.attached.remembered(FOLLOWED, CELLS_LENGTH)?,
            files,
        })
    }

    /// Table in which threads are named, and their rows. Needs [`Owners::Threads`].
    ///
    /// # Errors
    /// The programs were loaded for other owners, or no descriptors are left.
    pub(super) fn threads(&self) -> Result<(Table, OwnedRows), MeterError> {
        let rows = OwnedRows::new(&self.attached, OWNERS + THREADS_MAX)?;
        Ok((self.attached.remembered(FOLLOWED, CELLS_LENGTH)?, rows))
    }

    /// Softirqs, hard interrupts and events by owner, of its CPUs ([`Quantity::EXACT_OWNED`]).
    fn owned(&self) -> Counts {
        let mut counts = Counts::new();
        let Some(rows) = &self.owned else {
            return counts;
        };
        let owners = Quantity::EXACT_OWNED.iter();
        let owners = owners.zip([COMMAND_EVENTS, PEER_EVENTS, NEIGHBOUR_EVENTS]);
        for (index, (&[softirq, hardirq], owned)) in owners.enumerate() {
            let row = rows.sum(index + 1, &self.cpus);
            counts.extend([(softirq, row.softirq_ns()), (hardirq, row.hardirq_ns())]);
            counts.extend(events::of(&row, self.seen, owned));
        }
        counts
    }

    /// Totals of this process at `now_ns`, on all CPUs that any reader opened ([`Quantity::EXACT_OF_HOST`], and events).
    fn of_host(&mut self, now_ns: u64) -> Option<Counts> {
        let host = self.host.as_ref()?;
        let mut ns = [0; 3];
        let mut all = Counts::new();
        for cpu in 0..host.rows.cpus() {
            let (cell, row) = self.cell_and_row(cpu, host);
            ns[0] += row.task_ns();
            ns[1] += row.softirq_ns();
            ns[2] += row.hardirq_ns();
            for (of, count) in events::of(&row, self.seen, HOLDER_EVENTS) {
                *all.entry(of).or_insert(0) += count;
            }
            let is_task = [Place::OWN as usize, Place::OTHERS as usize].contains(&cell.running());
            if cell.is_open == 1 && is_task && cell.holder == host.place {
                ns[0] += now_ns.saturating_sub(cell.last_ns);
            }
        }
        all.extend(Quantity::EXACT_OF_HOST.into_iter().zip(ns));
        let host = self.host.as_mut()?;
        for (of, total) in &mut all {
            *total = (*total).max(host.given.get(of).copied().unwrap_or(0));
        }
        host.given.clone_from(&all);
        Some(all)
    }

    /// A CPU's cell, and a host's row on the CPU, both of one instant.
    fn cell_and_row(&self, cpu: usize, host: &OfHost) -> (Cell, Owned) {
        loop {
            let cell = self.cell(cpu);
            let row = host.rows.sum(host.place as usize, &[cpu]);
            fence(Ordering::Acquire);
            if self.cell(cpu).sequence == cell.sequence {
                return (cell, row);
            }
        }
    }

    /// Opens a CPU's cell; time counts from here on, or from the first event where this is 0.
    fn restart(&self, cpu: usize, last_ns: u64) {
        let place = self.place(cpu);
        // SAFETY: in bounds and aligned; the cell is ours until it is open.
        unsafe {
            (&raw mut (*place).contexts).write_volatile(0);
            (&raw mut (*place).last_ns).write_volatile(last_ns);
        }
        self.set_open(cpu, true);
    }

    /// From now on its programs write this CPU's cell, or leave it alone.
    fn set_open(&self, cpu: usize, is_open: bool) {
        let place = self.place(cpu);
        fence(Ordering::SeqCst);
        // SAFETY: in bounds and aligned. Programs only read the word, and write others only while it is 1.
        unsafe { (&raw mut (*place).is_open).write_volatile(is_open.into()) };
        fence(Ordering::SeqCst);
    }

    /// Where a CPU's cell is.
    fn place(&self, cpu: usize) -> *mut Cell {
        assert!(cpu < MAX_CPUS, "checked when it was loaded");
        // SAFETY: so many cells were mapped, and a page is aligned for all.
        unsafe { self.attached.variables().cast::<Cell>().add(cpu) }
    }

    /// A CPU's cell, whole: as it was at one instant.
    fn cell(&self, cpu: usize) -> Cell {
        let cell = self.place(cpu);
        // The CPU writes a cell in some 50 ns and stays away for microseconds. On machines that reorder
        // stores the sequence alone would not do: two equal copies make up for it.
        let mut earlier = None;
        loop {
            // SAFETY: in bounds and aligned as above; volatile since another CPU writes it.
            let copy = unsafe { ptr::read_volatile(cell) };
            fence(Ordering::Acquire);
            if copy.sequence % 2 == 0 && Some(copy) == earlier {
                return copy;
            }
            earlier = Some(copy);
        }
    }

    /// A CPU's totals at `now_ns` or, if it wrote after that, right then.
    fn totals(&mut self, index: usize, now_ns: u64) -> [u64; CONTEXTS] {
        let cell = self.cell(self.cpus[index]);
        let mut totals = cell.totals;
        if cell.is_open == 1 {
            totals[cell.running()] += now_ns.saturating_sub(cell.last_ns);
        }
        // The kernel's clock for programs and that of clock_gettime may be some ns apart.
        for (total, given) in totals.iter_mut().zip(&mut self.given[index]) {
            *total = (*total).max(*given);
            *given = *total;
        }
        totals
    }

    /// Totals by quantity; several contexts may be one. Without events that the programs do not see here.
    fn counts(&self, totals: &[u64; CONTEXTS]) -> Counts {
        let mut counts = Counts::new();
        for (place, (&total, quantity)) in totals.iter().zip(&*QUANTITIES).enumerate() {
            if let Some(quantity) = quantity
                && (place < Place::NET_RX_RUNS as usize || self.seen >> place & 1 == 1)
            {
                *counts.entry(*quantity).or_insert(0) += total;
            }
        }
        counts
    }
}

impl Exact {
    /// A time, and each CPU's totals then. Another task may have our CPU between the two, and the cells
    /// are then of a later time: looks again.
    fn look(&mut self) -> (u64, Vec<[u64; CONTEXTS]>) {
        let mut tries = 1..LOOKS_MAX;
        loop {
            // Before the cells: a span that has not begun by now is no part of what was running.
            let now_ns = clock::now_ns(ClockId::Monotonic);
            let cells = (0..self.cpus.len())
                .map(|index| self.totals(index, now_ns))
                .collect();
            let took_ns = clock::now_ns(ClockId::Monotonic) - now_ns;
            let most_ns = LOOK_MAX_NS + LOOK_CPU_NS * self.cpus.len() as u64;
            if took_ns <= most_ns || tries.next().is_none() {
                return (now_ns, cells);
            }
        }
    }
}

impl Meter for Exact {
    fn name(&self) -> MeterName {
        METER
    }

    fn handle(&self) -> Option<String> {
        self.attached.handle()
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let (now_ns, cells) = self.look();
        let mut sum = [0; CONTEXTS];
        let mut totals = Vec::with_capacity(self.cpus.len() + 1);
        for (&cpu, cell) in self.cpus.iter().zip(&cells) {
            sum.iter_mut()
                .zip(cell)
                .for_each(|(sum, total)| *sum += total);
            totals.push(Totals {
                whose: CountOwner::Cpu(cpu),
                counts: self.counts(cell),
            });
        }
        let mut all = self.counts(&sum);
        all.append(&mut self.owned());
        totals.push(Totals {
            whose: CountOwner::Cpus(self.cpus.clone()),
            counts: all,
        });
        totals.extend(self.of_host(now_ns).map(|counts| Totals {
            whose: CountOwner::Process,
            counts,
        }));
        Ok(Snapshot {
            meter: METER,
            at_ns: now_ns,
            totals,
        })
    }

    fn by_holder(&mut self) -> Option<ByHolder> {
        let holders = self.holders.as_mut()?;
        Some(holders.read(&self.cpus))
    }

    fn misses(&self) -> Option<String> {
        self.misses.clone()
    }

    fn overflow(&mut self) -> Option<String> {
        // SAFETY: in bounds and aligned; volatile since another CPU writes it, in one piece.
        let of = |cpu| unsafe { (&raw const (*self.place(cpu)).not_followed).read_volatile() };
        let all: u64 = (0..MAX_CPUS).map(of).sum();
        let more = all - std::mem::replace(&mut self.not_followed, all);
        if self.holders.is_some() {
            return (more > 0).then(|| {
                format!("{METER}: {more} times a process or a port found no place among {PLACES_MAX}: their CPU time is in no row")
            });
        }
        (more > 0).then(|| {
            format!(
                "{METER}: {more} processes found no room among those that are followed: their CPU time, and that of what they started, is with the other tasks'"
            )
        })
    }
}

/// The programs of hard interrupts stay attached in any case: there are ten, and they run seldom.
impl Pausable for Exact {
    fn pause(&mut self, idle: Idle) {
        for &cpu in &self.cpus {
            let place = self.place(cpu);
            self.set_open(cpu, false);
            let cell = self.cell(cpu);
            let now_ns = clock::now_ns(ClockId::Monotonic);
            let open_ns = now_ns.saturating_sub(cell.last_ns);
            // SAFETY: in bounds and aligned; from here on the cell is ours. A program that looked at the word just before
            // writes a time that is lost, or counted twice: one event.
            unsafe {
                (&raw mut (*place).totals[cell.running()])
                    .write_volatile(cell.totals[cell.running()] + open_ns);
                (&raw mut (*place).last_ns).write_volatile(now_ns);
            }
        }
        if idle == Idle::Detached {
            self.attached.detach(|name| HOT.contains(&name));
        }
    }

    fn resume(&mut self) -> Result<(), MeterError> {
        self.attached.attach()?;
        for &cpu in &self.cpus {
            if self.cell(cpu).is_open == 1 {
                continue;
            }
            self.restart(cpu, clock::now_ns(ClockId::Monotonic));
        }
        Ok(())
    }
}

/// Rows of this process in the map `owned`.
struct OfHost {
    rows: OwnedRows,
    /// Place of this process among the rows of a CPU.
    place: u32,
    /// Totals of the last snapshot: no total ever decreases.
    given: Counts,
}

/// Whoever reads later shall not take cells that nobody writes any more for open ones.
impl Drop for Exact {
    fn drop(&mut self) {
        self.opened
            .iter()
            .for_each(|&cpu| self.set_open(cpu, false));
    }
}

/// Makes processes own while `exact` counts.
#[derive(Debug)]
pub struct Follower {
    followed: Table,
    /// Looks through the files of all processes; absent without owners.
    files: Option<Listing>,
}

impl Follower {
    /// From now on this process is own, and so are all that it starts, and theirs. It ends for a process with the
    /// process, or here: what it has started stays own.
    ///
    /// # Errors
    /// There are too many, [`FOLLOWED_MAX`] where nothing else was asked for.
    pub fn follow(&self, pid: u32, is_followed: bool) -> Result<(), MeterError> {
        let value = is_followed.then_some(&COMMAND_BYTES[..]);
        self.followed.set(&pid.to_ne_bytes(), value)
    }

    /// Makes the sockets own that the followed processes have open now: those that they made before, or were given. What
    /// they make later is own by itself. Nothing where softirq time has no owners.
    ///
    /// # Errors
    /// The kernel refuses to list the files of its processes.
    pub fn adopt_open_sockets(&self) -> Result<(), MeterError> {
        self.files.as_ref().map_or(Ok(()), Listing::run)
    }

    /// The meter `socket_calls`: sends and receives of the followed processes, from now on.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: a kernel older than 6.3.
    pub fn count_calls(&self) -> Result<Box<dyn Meter + Send>, MeterError> {
        Ok(Box::new(Calls::load(&self.followed)?))
    }
}

impl fmt::Debug for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exact")
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}

/// Puts a thread on the CPU that goes to sleep there: it is switched to, and away from.
fn switch_tasks_on(cpu: usize) -> std::io::Result<()> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: an all-zero set is a valid one, `cpu` is below its size, the kernel only reads it.
            let status = unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
            };
            if status != 0 {
                return Err(std::io::Error::last_os_error());
            }
            thread::sleep(Duration::from_micros(1));
            Ok(())
        });
        thread.join().expect("it does not panic")
    })
}

/// The programs' settings, and how much room their maps have.
fn settings(
    own: [u32; OWN_PIDS],
    follows: Option<u32>,
    owners: Owners,
    probes: bool,
) -> (Vec<u8>, Vec<Room>) {
    let possible = libbpf_rs::num_possible_cpus().map_or(MAX_CPUS, |count| count.min(MAX_CPUS));
    let (owns, rows, sockets) = match owners {
        Owners::None => (0, 0, 0),
        Owners::Command => (OF_COMMAND, OWNERS, SOCKETS_MAX),
        Owners::Holders => (OF_HOLDERS, OWNERS + PLACES_MAX, SOCKETS_MAX),
        Owners::Threads => (OF_THREADS, OWNERS + THREADS_MAX, SOCKETS_MAX),
        Owners::Hosts { count, sockets, .. } => {
            let sockets = SOCKETS_MAX.max(sockets as usize);
            (OF_HOLDERS, OWNERS + count as usize, sockets)
        }
    };
    let any = owners != Owners::None;
    let hosts = matches!(owners, Owners::Hosts { .. });
    let (pace_kick, senders) = match any {
        true => (FUNCTIONS.pace_kick, FUNCTIONS.senders),
        false => (0, None),
    };
    let words = [owns, possible, rows].map(|word| word as u32);
    let words = [u32::from(follows.is_some())].into_iter().chain(words);
    let words = own.into_iter().chain(words);
    let targ = words
        .flat_map(u32::to_ne_bytes)
        .chain(
            [pace_kick, probes.into(), hosts.into(), FUNCTIONS.tick]
                .into_iter()
                .chain(senders.unwrap_or_default())
                .flat_map(u64::to_ne_bytes),
        )
        .collect();
    let with = |is_needed: bool, entries: usize| is_needed.then_some(entries as u32);
    let holders = owns == OF_HOLDERS;
    let rooms = [
        // Only the hosts' processes are in it.
        (FOLLOWED, follows.or(with(hosts, HOSTS_MAX))),
        (OWNED, with(any, possible * rows)),
        (OWNED_SOCKET, with(any, 0)),
        (OWNED_COOKIE, with(any, sockets)),
        (OWNED_PAIR, with(any, SOCKETS_MAX)),
        (holders::PLACES, with(holders, rows)),
        (holders::KEYS, with(holders, 2 * rows)),
        (SENDER_POINTS, with(senders.is_some(), 0)),
        (TRANSMIT_POINT, with(senders.is_none(), 0)),
    ];
    let left_out = if probes { CGROUP_POINTS } else { PROBE_POINTS };
    let left_out = left_out.iter().map(|program| (*program, None));
    let rooms = rooms.into_iter().chain(left_out);
    let rooms = rooms.map(|(map, entries)| Room { map, entries });
    (targ, rooms.collect())
}

/// How the programs learn the socket of the packet in hand.
#[derive(PartialEq, Eq)]
enum Points {
    Cgroups,
    Probe,
}

/// Points for a scope's owners, and the softirqs that then have no owner, in a line. `None` if each has one.
///
/// # Errors
/// Programs of cgroups are unavailable, and the scope is a study's or netperf's: their figures never mix the two methods.
fn points(scope: &Scope) -> Result<(Points, Option<String>), MeterError> {
    let is_seen_whole = match scope.owners {
        Owners::None => return Ok((Points::Cgroups, None)),
        Owners::Command | Owners::Holders => cgroup::root_sees_all(METER),
        // All sockets of a study, and of netperf, are of one container.
        Owners::Threads | Owners::Hosts { .. } => true,
    };
    let admits = match scope.without_cgroups {
        true => Err(MeterError::refused(METER, "left out")),
        false => cgroup::root_admits(METER),
    };
    match (admits, scope.owners) {
        (Ok(()), _) if is_seen_whole => Ok((Points::Cgroups, None)),
        (Ok(()), _) => Ok((Points::Cgroups, Some(MISSED_BY_CONTAINER.to_string()))),
        (Err(error), Owners::Command | Owners::Holders) => {
            let cause = error.cause();
            let misses = format!("owners of softirqs by tcp_probe ({cause}): {MISSED_BY_PROBE}");
            Ok((Points::Probe, Some(misses)))
        }
        (Err(error), _) => Err(error),
    }
}

/// Packets that have no owner where the root of cgroup v2 is a container's.
const MISSED_BY_CONTAINER: &str = "owners of softirqs: sockets outside of this container's cgroup have none; to see them, run with the host's cgroup namespace (--cgroupns=host)";

/// Programs of owner_points.h at cgroups,
const CGROUP_POINTS: &[&str] = &[
    "owned_ingress",
    "owned_create",
    "owned_release",
    "owned_connect",
];
/// and the one that stands in for them.
const PROBE_POINTS: &[&str] = &["owned_probe"];

/// Checks that process ids here are the kernel's own.
///
/// # Errors
/// This process is not in the first PID namespace.
fn in_first_pid_namespace() -> Result<(), MeterError> {
    let namespace = fs::metadata("/proc/self/ns/pid");
    if namespace.is_ok_and(|file| file.st_ino() != FIRST_PID_NAMESPACE) {
        return Err(MeterError::Unavailable {
            meter: METER,
            tried: "identify own processes".to_string(),
            source: None,
            needs: Some(Needs::FirstPids),
        });
    }
    Ok(())
}

const METER: MeterName = MeterName::Exact;
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/exact.bpf.o"));
/// The map of exact.bpf.c, whose changes are counted after the cells.
const FOLLOWED: &str = "followed";
const CELLS_LENGTH: usize = MAX_CPUS * size_of::<Cell>();
/// Place of [`Seen`], after the changes of that map.
const SEEN_AT: usize = CELLS_LENGTH + size_of::<Changes>();
/// The maps of owner.h.
const OWNED_SOCKET: &str = "owned_socket";
const OWNED_COOKIE: &str = "owned_cookie";
const OWNED_PAIR: &str = "owned_pair";
/// The program of owner_points.h that finds open sockets.
const OWNED_FILES: &str = "owned_files";
/// So many sockets of the command and of the other ends are known at once: some MiB of kernel memory.
const SOCKETS_MAX: usize = 65_536;
/// So many processes at once are followed: kernel.pid_max is 4 million at most, and a make -j
/// of a large machine a few hundred.
pub const FOLLOWED_MAX: u32 = 65_536;
/// Limit on processes of one machine that own CPU time in a trial.
const HOSTS_MAX: usize = 4096;
/// Programs that run often.
const HOT: &[&str] = &[
    "sched_switch",
    "softirq_entry",
    "softirq_exit",
    "owned_receive",
    "owned_gro_receive",
    "owned_gro_frags",
    "owned_ingress",
    "owned_probe",
    "owned_transmit",
    "timer_expired",
    "owned_sender_timer",
    "owned_sender_queue",
    "owned_sender_packets",
];
/// How programs begin that look at these functions, and the one that does without their addresses.
const SENDER_POINTS: &str = "owned_sender";
const TRANSMIT_POINT: &str = "owned_transmit";
/// The value of what is followed.
const COMMAND_BYTES: [u8; 4] = (COMMAND as u32).to_ne_bytes();
/// A look at all CPUs may take so long: 0.1 % of a trial of 100 ms. Undisturbed it takes some µs,
const LOOK_MAX_NS: u64 = 100_000;
/// and of hundreds of CPUs so much more of each: a cell is nine lines of another CPU's cache.
const LOOK_CPU_NS: u64 = 1_000;
/// Looks until one is taken as it is.
const LOOKS_MAX: u32 = 8;
/// include/linux/proc_ns.h, PROC_PID_INIT_INO.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Quantity of each context and event. The first context has none, and is never charged.
static QUANTITIES: LazyLock<Vec<Option<Quantity>>> =
    LazyLock::new(|| COUNTED.iter().map(|name| Quantity::named(name)).collect());

impl Cell {
    /// The context that runs. Nothing known since a pause: no event, so an idle CPU.
    fn running(&self) -> usize {
        match self.contexts % CONTEXTS as u64 {
            0 => Place::IDLE as usize,
            context => context as usize,
        }
    }
}
