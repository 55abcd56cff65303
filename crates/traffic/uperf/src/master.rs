//! The master: it connects to slaves, tells each what to do, does its own part, and prints what was done (uperf's `master.c`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tcpcost_study::UperfProfile;

use crate::Failure;
use crate::control::{Slave, connect};
use crate::devices::Devices;
use crate::order::{Group, Kind};
use crate::print::{Printer, Span};
use crate::shared::{Shared, now_ns};
use crate::strand::{Stat, Strand, Timed, Times};
use crate::wake;
use crate::wire::{self, Command, Goodbye};

/// Options of a run.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names are the tables that are printed")]
pub struct MasterOptions {
    /// Port of the slaves.
    pub port: u16,
    pub with_groups: bool,
    pub with_threads: bool,
    pub with_transactions: bool,
    pub with_flowops: bool,
    /// No numbers at all.
    pub is_silent: bool,
    /// Numbers with their times, a line each.
    pub is_raw: bool,
    /// Time between two lines of progress.
    pub interval: Duration,
    /// File for the time of each flowop.
    pub history: Option<File>,
    /// Columns of a line.
    pub width: usize,
}

/// Limit on the wait for the first transaction.
const FIRST: Duration = Duration::from_secs(20);
/// Limit on waiting for threads that must end.
const END: Duration = Duration::from_secs(2);
/// Pause between two signals to a thread that is still in a call.
const AGAIN: Duration = Duration::from_millis(5);
/// Pause after a transaction without a duration for slaves that interrupt late threads: those of the slave return from accept after
/// the master's from connect. uperf's master looks once a second.
const SETTLE: Duration = Duration::from_millis(200);
/// Stack of a thread, bytes: it calls nothing deep.
const STACK: usize = 256 << 10;

/// Runs a profile against the slaves of its hosts. Prints results on `out`. Returns false if errors ended the run.
///
/// # Errors
/// A slave does not answer or refuses; the output fails.
pub fn master(
    profile: &UperfProfile,
    options: MasterOptions,
    out: &mut dyn Write,
) -> Result<bool, Failure> {
    let groups = Group::of(profile).map_err(Failure)?;
    wake::prepare().map_err(|error| Failure::of("sigaction", &error))?;
    let files = Arc::new(files(&groups)?);
    let mut slaves = connect(&groups, options.port)?;
    let transactions = groups.iter().map(|group| group.transactions.len()).max();
    let threads = groups.iter().map(|group| group.threads as usize).sum();
    let mut run = Run {
        shared: Arc::new(Shared::new(threads, transactions.unwrap_or(0))),
        printer: Printer {
            out,
            is_raw: options.is_raw,
            width: options.width,
        },
        threads: Vec::new(),
        groups: groups.into_iter().map(Arc::new).collect(),
        files,
        options,
    };
    let strands = run.handshake(&mut slaves)?;
    let failed = |error: io::Error| Failure::of("write results", &error);
    run.start(&profile.name, strands)?;
    for slave in &mut slaves {
        let done = wire::send_ack(&mut slave.stream, &Ok(()));
        // uperf's own answer is empty.
        let done = done.and_then(|()| wire::receive_ack(&mut slave.stream).map(drop));
        done.map_err(|error| Failure::of(&slave.host, &error))?;
    }
    let before = Devices::read().ok();
    let begin = now_ns();
    let is_good = run.transactions(&mut slaves).map_err(failed)?;
    let times = run.join();
    let total = run.total(begin);
    let after = Devices::read().ok();
    let devices = before.as_ref().zip(after.as_ref());
    run.results(&mut slaves, &total, &times, devices)
        .map_err(failed)?;
    let errors = run.shared.errors();
    for error in &errors {
        eprintln!("uperf: {error}");
    }
    if !is_good {
        let count = errors.len().max(1);
        run.printer
            .text(&format!("\nWARNING: {count} Errors detected during run\n"))
            .map_err(failed)?;
    }
    Ok(is_good)
}

/// Files of the folders that a profile sends.
fn files(groups: &[Group]) -> Result<HashMap<String, Vec<(File, u64)>>, Failure> {
    let mut all = HashMap::new();
    for flowop in groups.iter().flat_map(Group::flowops) {
        let sends = matches!(flowop.kind, Kind::Sendfile | Kind::Sendfilev);
        if !sends || all.contains_key(&flowop.folder) {
            continue;
        }
        let mut found = Vec::new();
        add_files(Path::new(&flowop.folder), &mut found)
            .map_err(|error| Failure::of(&flowop.folder, &error))?;
        all.insert(flowop.folder.clone(), found);
    }
    Ok(all)
}

/// Limit on the files that are open at once.
const FILES_MAX: usize = 512;

fn add_files(folder: &Path, found: &mut Vec<(File, u64)>) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() && found.len() < FILES_MAX {
            add_files(&entry.path(), found)?;
        } else if metadata.is_file() && metadata.len() > 0 && found.len() < FILES_MAX {
            found.push((File::open(entry.path())?, metadata.len()));
        }
    }
    Ok(())
}

/// A run and its threads.
struct Run<'a> {
    options: MasterOptions,
    groups: Vec<Arc<Group>>,
    files: Arc<HashMap<String, Vec<(File, u64)>>>,
    shared: Arc<Shared>,
    /// Threads with the number of their group.
    threads: Vec<(usize, JoinHandle<Times>)>,
    printer: Printer<'a>,
}

impl Run<'_> {
    /// Tells slaves what to do. Returns the threads of this end.
    fn handshake(&mut self, slaves: &mut [Slave]) -> Result<Vec<Strand>, Failure> {
        let timed = Timed {
            flowops: !self.options.is_silent
                && (self.options.with_flowops
                    || self.options.with_groups
                    || self.options.history.is_some()),
            transactions: !self.options.is_silent && self.options.with_transactions,
            group: !self.options.is_silent && self.options.with_groups,
            history: self
                .options
                .history
                .take()
                .map(|file| Arc::new(Mutex::new(file))),
        };
        let mut strands = Vec::new();
        let mut firsts = Vec::new();
        for group in &self.groups {
            firsts.push(strands.len());
            strands.extend((0..group.threads).map(|_| Strand {
                group: Arc::clone(group),
                index: 0,
                shared: Arc::clone(&self.shared),
                ports: HashMap::new(),
                listener: None,
                files: Arc::clone(&self.files),
                timed: timed.clone(),
            }));
        }
        for (index, strand) in strands.iter_mut().enumerate() {
            strand.index = index;
        }
        for slave in slaves.iter_mut() {
            slave.greet()?;
        }
        for slave in slaves.iter_mut() {
            let (first, group) = (firsts[slave.group], &self.groups[slave.group]);
            let last = first + group.threads as usize;
            slave.place(group, &mut strands[first..last])?;
        }
        Ok(strands)
    }

    fn start(&mut self, name: &str, strands: Vec<Strand>) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::of("start threads", &error);
        let count = |is_processes: bool| -> u32 {
            let groups = self
                .groups
                .iter()
                .filter(|group| group.is_processes == is_processes);
            groups.map(|group| group.threads).sum()
        };
        let what = match (count(false), count(true)) {
            (0, processes) => format!("{processes} processes"),
            (threads, 0) => format!("{threads} threads"),
            (threads, processes) => format!("{threads} threads, {processes} processes"),
        };
        let text = format!("Starting {what} running profile:{name} ... ");
        self.printer.text(&text).map_err(failed)?;
        let begin = Instant::now();
        for strand in strands {
            let group = strand.group.number as usize;
            let thread = std::thread::Builder::new().stack_size(STACK);
            let thread = thread.spawn(move || strand.run()).map_err(failed)?;
            self.threads.push((group, thread));
        }
        let took = begin.elapsed().as_secs_f64();
        self.printer
            .text(&format!(" {took:5.2} seconds\n"))
            .map_err(failed)
    }

    /// Number of threads that have a transaction of this number.
    fn threads_of(&self, transaction: usize) -> usize {
        let groups = self.groups.iter();
        let with = groups.filter(|group| group.transactions.len() > transaction);
        with.map(|group| group.threads as usize).sum()
    }

    /// True if any group has a duration for the transaction of this number.
    fn has_duration(&self, transaction: usize) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|group| {
            let found = group.transactions.get(transaction);
            found.is_some_and(|found| found.duration_ns > 0)
        })
    }

    /// Does all transactions, each when all threads are there. False if an error has ended them.
    fn transactions(&mut self, slaves: &mut [Slave]) -> io::Result<bool> {
        let count = self
            .groups
            .iter()
            .map(|group| group.transactions.len())
            .max()
            .unwrap_or(0);
        let limit = Instant::now() + FIRST;
        if !self.shared.wait_for(0, self.threads_of(0), limit) {
            return Ok(false);
        }
        for number in 0..count {
            if number > 0
                && !self.has_duration(number - 1)
                && !slaves.iter().all(|slave| slave.waits)
            {
                std::thread::sleep(SETTLE);
            }
            let begun = Command::Begin(u32::try_from(number).unwrap_or(u32::MAX));
            for slave in slaves.iter_mut() {
                if begun.send(&mut slave.stream).is_err() {
                    return self.aborted();
                }
            }
            let (bytes, operations) = self.shared.total();
            let first = Span {
                name: format!("Txn{}", number + 1),
                begin_ns: now_ns(),
                end_ns: 0,
                bytes,
                operations,
            };
            self.shared.begin(number);
            if !self.transaction(number, number + 1 == count, &first, slaves)? {
                return Ok(false);
            }
            if !self.options.is_silent {
                self.progress(&first)?;
                self.printer.text("\n")?;
            }
        }
        if !self.options.is_silent {
            self.printer.line()?;
        }
        Ok(true)
    }

    fn aborted(&mut self) -> io::Result<bool> {
        self.printer.text("\n*** Slave aborted! ***\n")?;
        self.shared.abort();
        Ok(false)
    }

    /// Waits for the end of a transaction, ends those of a duration, and prints progress.
    fn transaction(
        &mut self,
        number: usize,
        is_last: bool,
        first: &Span,
        slaves: &mut [Slave],
    ) -> io::Result<bool> {
        let begin = Instant::now();
        let durations = self.groups.iter().map(|group| {
            let transaction = group.transactions.get(number)?;
            (transaction.duration_ns > 0)
                .then(|| begin + Duration::from_nanos(transaction.duration_ns))
        });
        let durations: Vec<Option<Instant>> = durations.collect();
        let next = self.threads_of(number + 1);
        let mut due = begin;
        loop {
            let now = Instant::now();
            let wake_at = durations.iter().flatten().filter(|end| **end > now).min();
            if !self.options.is_silent && now >= due {
                // Wrappers average lines, so the last one must not be about a moment.
                let is_near = |end: &&Instant| **end < now + self.options.interval / 2;
                let is_end = durations
                    .iter()
                    .flatten()
                    .max()
                    .is_some_and(|end| is_near(&end));
                if !is_end {
                    self.progress(first)?;
                }
                due = now + self.options.interval;
            }
            let is_late = self.end_those_over(number, &durations, now);
            let limit = if is_late {
                now + AGAIN
            } else {
                now + Duration::from_secs(1)
            };
            let until = limit.min(due).min(*wake_at.unwrap_or(&limit));
            let is_done = match is_last {
                true => self.shared.wait_for_end(until),
                false => self.shared.wait_for(number + 1, next, until),
            };
            if !self.shared.errors().is_empty() {
                return Ok(false);
            }
            if is_done {
                return Ok(true);
            }
            if slaves.iter().any(Slave::has_spoken) {
                return self.aborted();
            }
        }
    }

    /// Ends the transaction of threads whose time is over, and wakes those in a call. True if any is still in one.
    fn end_those_over(&self, number: usize, ends: &[Option<Instant>], now: Instant) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let number = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let mut is_any = false;
        for ((group, thread), counter) in self.threads.iter().zip(&self.shared.counters) {
            if ends[*group].is_some_and(|end| now >= end) && counter.within.load(Relaxed) == number
            {
                counter.over.store(number, Relaxed);
                wake::wake(thread);
                is_any = true;
            }
        }
        is_any
    }

    fn progress(&mut self, first: &Span) -> io::Result<()> {
        let (bytes, operations) = self.shared.total();
        let span = Span {
            end_ns: now_ns(),
            bytes: bytes - first.bytes,
            operations: operations - first.operations,
            ..first.clone()
        };
        self.printer.span(&span, true)
    }

    /// Waits for all threads, those of an aborted run for a limited time.
    fn join(&mut self) -> Vec<(usize, Times)> {
        let limit = Instant::now() + END;
        let has_failed = !self.shared.errors().is_empty();
        if has_failed {
            self.shared.abort();
        }
        while Instant::now() < limit && self.threads.iter().any(|(_, thread)| !thread.is_finished())
        {
            self.shared.abort();
            self.threads
                .iter()
                .for_each(|(_, thread)| wake::wake(thread));
            std::thread::sleep(AGAIN);
        }
        let threads = self
            .threads
            .drain(..)
            .filter(|(_, thread)| thread.is_finished());
        threads
            .filter_map(|(group, thread)| Some((group, thread.join().ok()?)))
            .collect()
    }

    fn total(&self, begin_ns: u64) -> Span {
        let (bytes, operations) = self.shared.total();
        Span {
            name: "Total".to_string(),
            begin_ns,
            end_ns: now_ns(),
            bytes,
            operations,
        }
    }

    fn results(
        &mut self,
        slaves: &mut [Slave],
        total: &Span,
        times: &[(usize, Times)],
        devices: Option<(&Devices, &Devices)>,
    ) -> io::Result<()> {
        let goodbyes = slaves.iter_mut().map(Slave::goodbye).collect::<Vec<_>>();
        if self.options.is_silent {
            return Ok(());
        }
        self.printer.span(total, false)?;
        self.tables(times)?;
        if let Some((before, after)) = devices {
            after.print_since(before, &mut self.printer)?;
        }
        self.printer
            .title("Run Statistics\nHostname            Time       Data   Throughput   Operations      Errors")?;
        let mut all = Goodbye::default();
        for (slave, goodbye) in slaves.iter().zip(goodbyes) {
            match goodbye {
                Ok(goodbye) => {
                    if !goodbye.error.is_empty() {
                        eprintln!("uperf: [{}] {}", slave.host, goodbye.error);
                    }
                    self.printer.host(&slave.host, &goodbye)?;
                    all.elapsed_ns = all.elapsed_ns.max(goodbye.elapsed_ns);
                    all.bytes += goodbye.bytes;
                    all.count += goodbye.count;
                }
                Err(error) => eprintln!("uperf: Error saying goodbye with {}: {error}", slave.host),
            }
        }
        if slaves.len() > 1 {
            self.printer.host("Total", &all)?;
        }
        let master = Goodbye {
            error: String::new(),
            elapsed_ns: total.end_ns - total.begin_ns,
            bytes: total.bytes,
            count: total.operations,
        };
        self.printer.host("master", &master)?;
        self.printer.difference(&master, &all)
    }

    fn tables(&mut self, times: &[(usize, Times)]) -> io::Result<()> {
        let printer = &mut self.printer;
        if self.options.with_groups {
            printer.title("Group Details")?;
            for (number, group) in self.groups.iter().enumerate() {
                let mut sum = Stat::default();
                for (_, times) in times.iter().filter(|(of, _)| *of == number) {
                    times
                        .flowops
                        .iter()
                        .flatten()
                        .for_each(|stat| sum.merge(stat));
                }
                if let Some(span) = Span::of(&group.name, &sum) {
                    printer.span(&span, false)?;
                }
            }
            printer.text("\n")?;
        }
        if self.options.with_threads {
            printer.title("Strand Details")?;
            for number in 0..self.groups.len() {
                let threads = times.iter().filter(|(of, _)| *of == number);
                for (place, (_, times)) in threads.enumerate() {
                    if let Some(span) = Span::of(&format!("Thr{place}"), &times.thread) {
                        printer.span(&span, false)?;
                    }
                }
            }
            printer.text("\n")?;
        }
        let sum = |group: usize, of: &dyn Fn(&Times) -> Option<&Stat>| {
            let mut sum = Stat::default();
            let times = times.iter().filter(|(number, _)| *number == group);
            times
                .filter_map(|(_, times)| of(times))
                .for_each(|stat| sum.merge(stat));
            sum
        };
        let (mut transactions, mut flowops) = (Vec::new(), Vec::new());
        for (group, what) in self.groups.iter().enumerate() {
            for (number, transaction) in what.transactions.iter().enumerate() {
                let stat = sum(group, &|times| times.transactions.get(number));
                transactions.push((format!("Txn{number}"), stat));
                for (place, flowop) in transaction.flowops.iter().enumerate() {
                    let stat = sum(group, &|times| times.flowops.get(number)?.get(place));
                    flowops.push((flowop.kind.name().to_string(), stat));
                }
            }
        }
        if self.options.with_transactions {
            let rows = transactions.iter().map(|(name, stat)| (name.clone(), stat));
            printer.averages("Txn", rows)?;
        }
        if self.options.with_flowops {
            let rows = flowops.iter().map(|(name, stat)| (name.clone(), stat));
            printer.averages("Flowop", rows)?;
        }
        Ok(())
    }
}
