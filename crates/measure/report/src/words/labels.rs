//! Labels and footnotes that the text and the page share, so that they cannot disagree.

use std::collections::BTreeSet;

use tcpcost_counts::SocketBuffer;
use tcpcost_study::{
    Derived, Figure, FigureOf, HostName, Machine, Scope, Value, WorkloadKind, units,
};

use crate::derive::cell::{CellSummary, Load};
use crate::derive::number::{precise, show, trials};
use crate::derive::scope::whose;
use crate::derive::values::asked_buffer;
use crate::judge::comparable;
use crate::judge::copy_path;
use crate::judge::second_clock::ByInstructions;
use crate::summary::Summary;
use crate::words::by_host;

/// Lines under the title: machine, bed, number of trials, method, and the owner of the CPU time.
pub(crate) fn head(summary: &Summary) -> Vec<String> {
    let study = &summary.study;
    let mut lines: Vec<String> = Vec::new();
    for line in summary.machines.each.iter().map(host) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.extend(changed(summary));
    let mut ran = vec![
        format!("study {}", study.name),
        format!(
            "{} of {} trials of {}",
            summary.trials_done,
            summary.trials_planned.max(summary.trials_done),
            match study.measure.work {
                Some(work) => format!(
                    "{} or {} transactions",
                    Value::Bytes(work.bytes),
                    work.transactions
                ),
                None => units::show_duration(study.measure.duration),
            }
        ),
    ];
    if !summary.beds.is_empty() {
        ran.push(format!("bed {}", summary.beds.join(" and ")));
    }
    ran.push(format!("seed {}", study.measure.seed));
    if let Some((first, _)) = &summary.started {
        ran.push(format!("started {first}"));
    }
    lines.push(ran.join(" · "));
    if summary.records_of_others > 0 {
        lines.push(format!(
            "{} records belong to no cell of this study; no number includes them.",
            summary.records_of_others
        ));
    }
    lines.push(method(summary).to_string());
    lines.extend(summary.by_instructions.as_ref().map(second_clock));
    lines.push(match counts_instructions(summary) {
        true => "Numbers are means over snapshots [with the 95 % interval of the mean].".into(),
        false => "Numbers are medians over trials [with the 95 % interval of the median].".into(),
    });
    lines
}

/// Line about the guests that counted instructions beside the time.
fn second_clock(by: &ByInstructions) -> String {
    let release = |kernel: &String| kernel.split(' ').next().unwrap_or_default().to_string();
    let kernels: Vec<String> = by.kernels.iter().map(release).collect();
    let memory = by.memory_shares.map_or(String::new(), |shares| {
        let [least, most] = shares.map(|share| precise(share * 100.0, 0));
        format!(
            " Copying, clearing and setting memory is {least} to {most} % of the instructions; what that takes depends on caches, which they do not show."
        )
    });
    format!(
        "By instructions: the same cells in guests of Linux {}, which QEMU emulates on one CPU: no caches, no waits, no other tasks.{memory}",
        kernels.join(", ")
    )
}

/// Line that names the hosts whose machine or setting differs between records. `None` if there are none.
fn changed(summary: &Summary) -> Option<String> {
    let changed = &summary.machines.changed;
    let hosts: Vec<&str> = changed.keys().map(HostName::as_str).collect();
    let fields: BTreeSet<&str> = changed.values().flatten().map(String::as_str).collect();
    let fields: Vec<&str> = fields.into_iter().collect();
    (!hosts.is_empty()).then(|| {
        format!(
            "The records come from more than one machine or setting of {} ({}): do not compare their numbers.",
            hosts.join(", "),
            fields.join(", ")
        )
    })
}

/// Machine in one line.
pub(crate) fn host(host: &Machine) -> String {
    let mut parts = vec![
        format!("{}, {} CPUs", host.cpu, host.cpus),
        format!(
            "Linux {}",
            host.kernel.split(' ').next().unwrap_or_default()
        ),
        host.machine.clone(),
    ];
    parts.extend(host.hypervisor.clone());
    parts.push(format!("{} accounting", host.cpu_accounting));
    parts.push(format!("tcpcost {}", host.tcpcost));
    parts.join(" · ")
}

/// Sentences about the method that counted CPU time, and whose time it is.
pub(crate) fn method(summary: &Summary) -> String {
    let is_exact = |cell: &CellSummary| {
        let exact = [Figure::ExactUsPerKib, Figure::ExactUsPerTransaction];
        exact.contains(&cell.main.kind)
    };
    if counts_instructions(summary) {
        return INSTRUCTIONS.to_string();
    }
    let exact = if summary.cells.iter().any(is_exact) {
        "Exact CPU is all CPU time except idle time and other tasks, to the nanosecond, by eBPF. Other "
    } else {
        ""
    };
    let any = |of: fn(&CellSummary) -> bool| summary.cells.iter().any(of);
    let owned = if any(|cell| by_host::has(cell, &by_host::OWNED)) {
        "CPU by owner is that of a host's process, and of softirqs and hard interrupts for its sockets, on whichever CPU. "
    } else {
        ""
    };
    format!("{exact}{owned}{}", not_idle(summary))
}

/// True if the clocks of the guests count instructions.
fn counts_instructions(summary: &Summary) -> bool {
    summary.cells.iter().any(|cell| cell.counts_instructions)
}

/// Note for figures in instructions.
const INSTRUCTIONS: &str = "Instructions are not time. The meter exact counts them in a guest that QEMU emulates: kernel and programs of all hosts on one CPU, \
     including the meter's own programs. There are no caches, no latency and no device. Instructions that copy, clear or set memory have their own column \
     (a byte is an eighth of an instruction here). The contexts include them; the sum includes them only if no column shows them. \
     Paths that copy more or less often are not compared by instructions. Each repetition is a guest that was booted with another seed; its cells are restored from there.";

fn not_idle(summary: &Summary) -> &'static str {
    if summary.beds.iter().any(|bed| bed == "loopback") {
        "CPU is the time in which the CPUs of both ends together were not idle, by /proc/stat, other \
         tasks on these CPUs included. On loopback it cannot be split by end; the CPU time of the \
         workload's threads (getrusage) can."
    } else if told_by_end(summary) {
        "CPU is the time in which the CPUs of each end were not idle, by /proc/stat, other \
         tasks on these CPUs included. Receive work is steered to each end's own CPUs."
    } else {
        "CPU is the time in which the CPUs of the ends were not idle, by /proc/stat, other \
         tasks on these CPUs included. Where both ends share a CPU, or receive work is not steered to each \
         end's own CPUs, it is reported for both ends together."
    }
}

/// True if every cell that has numbers has them by end.
fn told_by_end(summary: &Summary) -> bool {
    let has = |cell: &CellSummary, end| {
        let of = Derived::of(end, Figure::IdleRatio);
        cell.estimates.contains_key(&of)
    };
    let mut with_numbers = summary.cells.iter().filter(|cell| cell.n > 0);
    with_numbers.all(|cell| cell.cpus.keys().all(|&host| has(cell, host)))
}

/// Name of a quantity in a heading or a list, such as `CPU per KiB, all hosts together`.
pub(crate) fn quantity(of: Derived) -> String {
    let what = of.kind.words();
    if of.kind.whose() == FigureOf::Host || matches!(of.scope, Scope::Group(_)) {
        format!("{what}, {}", whose(of.scope))
    } else {
        what.to_string()
    }
}

/// Name of a quantity at the start of a line.
pub(crate) fn heading(of: Derived) -> String {
    let mut name = quantity(of);
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}

/// Name of a quantity in a sentence, such as `client's CPU per KiB`.
pub(crate) fn in_sentence(of: Derived) -> String {
    owned(of.scope, of.kind.words())
}

/// A figure's text with the host or group that it is of, such as `client's ACKs/KiB`.
pub(crate) fn owned(scope: Scope, text: &str) -> String {
    match scope.name() {
        None => text.to_string(),
        Some(name) => format!("{name}'s {text}"),
    }
}

/// CPUs of a scope, such as `client CPU 0` or `all CPU 0,1`.
pub(crate) fn whose_cpus(cell: &CellSummary, scope: Scope) -> String {
    let cpus = cpus(cell, scope);
    let list: Vec<String> = cpus.iter().map(|(_, cpu)| cpu.to_string()).collect();
    let whose = scope
        .name()
        .map_or_else(|| "all".to_string(), |name| name.to_string());
    format!("{whose} CPU {}", list.join(","))
}

/// Segmentation regimes as read back, each with its cells if there are several.
pub(crate) fn regimes(summary: &Summary) -> Vec<String> {
    let regimes = by_text(summary, |cell| Some(regime(&cell.regime()?)));
    let lines = regimes.into_iter();
    lines
        .map(|text| format!("Segmentation as read back: {text}."))
        .collect()
}

/// Sizes of socket buffers for each host: requested, and actual at the end of the interval (Jones 2005: 128
/// KB requested gave 256 KB). Each with its cells if there are several.
pub(crate) fn buffers(summary: &Summary) -> Vec<String> {
    let sizes = by_text(summary, |cell| {
        let hosts = cell.hosts().into_iter();
        let sizes: Vec<String> = hosts.filter_map(|host| buffers_of(cell, host)).collect();
        (!sizes.is_empty()).then(|| sizes.join("; "))
    });
    let lines = sizes.into_iter();
    lines
        .map(|text| format!("Buffers of the first connection: {text}."))
        .collect()
}

/// The different texts of cells, each with the names of its cells if there are several texts.
fn by_text(summary: &Summary, of: impl Fn(&CellSummary) -> Option<String>) -> Vec<String> {
    let mut texts: Vec<(String, Vec<&str>)> = Vec::new();
    for cell in &summary.cells {
        let Some(text) = of(cell) else { continue };
        match texts.iter_mut().find(|(seen, _)| *seen == text) {
            Some((_, cells)) => cells.push(&cell.name),
            None => texts.push((text, vec![&cell.name])),
        }
    }
    let several = texts.len() > 1;
    let with_cells = |(text, cells): (String, Vec<&str>)| match several {
        true => format!("{text} ({})", cells.join("; ")),
        false => text,
    };
    texts.into_iter().map(with_cells).collect()
}

/// Text such as `client: to send 256KiB asked, 512KiB had, to receive none asked, 6MiB had`.
fn buffers_of(cell: &CellSummary, host: HostName) -> Option<String> {
    let of = |what: &str, buffer, kind| {
        let had = cell.estimates.get(&Derived::of(host, kind))?.median;
        let asked = asked_buffer(&cell.knobs, host, buffer);
        let asked = asked.map_or("none".to_string(), |bytes| Value::Bytes(bytes).to_string());
        // The size of an automatically tuned buffer is the median of trials, and no round number.
        let had = Value::Bytes(had as u64);
        Some(format!("{what} {asked} asked, {had} had"))
    };
    let send = of("to send", SocketBuffer::Send, Figure::SendBuffer)?;
    let receive = of("to receive", SocketBuffer::Receive, Figure::ReceiveBuffer)?;
    Some(format!("{host}: {send}, {receive}"))
}

/// Lines about losses and similar events on paths, if there were any in any trial.
pub(crate) fn not_clean(summary: &Summary) -> Vec<String> {
    let most = |kind| {
        let of = Derived::total(kind);
        let mut cells = Vec::new();
        let (mut found, mut most) = (0, 0.0_f64);
        for cell in &summary.cells {
            let values = cell.trials.iter().filter_map(|trial| trial.values.get(&of));
            let above: Vec<f64> = values.copied().filter(|value| *value > 0.0).collect();
            if !above.is_empty() {
                cells.push(cell.name.as_str());
                found += above.len();
                most = above.into_iter().fold(most, f64::max);
            }
        }
        (found > 0).then(|| {
            format!(
                "{}: more than none in {}, at most {} ({}).",
                kind.words(),
                trials(found),
                show(most),
                cells.join("; ")
            )
        })
    };
    let kinds = [Figure::OutOfOrderPerMib, Figure::DuplicateAcksPerMib];
    kinds.into_iter().filter_map(most).collect()
}

/// A segmentation regime and its meaning.
fn regime(regime: &str) -> String {
    let meaning = match regime {
        "per-mss" => ", one skb per MSS through TCP, as in 2005",
        "software-gso" => ", TCP builds super-segments and the kernel cuts them before the device",
        "tso" => ", the device gets super-segments",
        _ => "",
    };
    format!("{regime}{meaning}")
}

/// True if every cell's number includes flagged trials. Then a mark on each cell would distinguish none.
fn all_are_marked(summary: &Summary) -> bool {
    let mut with_numbers = summary.cells.iter().filter(|cell| cell.n > 0).peekable();
    with_numbers.peek().is_some() && with_numbers.all(CellSummary::uses_marked)
}

/// Marks of a cell's main number. [`notes`] explains them.
pub(crate) fn marks(summary: &Summary, cell: &CellSummary) -> &'static str {
    match (
        cell.converged,
        cell.uses_marked() && !all_are_marked(summary),
    ) {
        (Some(false), true) => "!!!",
        (_, true) => "!!",
        (Some(false), false) => "!",
        _ => "",
    }
}

/// Columns of the table of the meter `exact`.
pub(crate) const EXACT: &[Figure] = &[
    Figure::ExactUsPerKib,
    Figure::ExactUsPerTransaction,
    Figure::OwnedUsPerKib,
    Figure::OwnedUsPerTransaction,
    Figure::UnownedUsPerKib,
    Figure::UnownedUsPerTransaction,
    Figure::ExactOwnRatio,
    Figure::ExactNetRxRatio,
    Figure::ExactDeferredRatio,
    Figure::ExactHardirqRatio,
    Figure::ExactOthersRatio,
    Figure::NetRxRunsPerMib,
    Figure::NetRxRunsPerTransaction,
    Figure::ProcToExact,
    Figure::RusageToExact,
    Figure::SoakToExact,
];

/// Columns of the table of instructions: instructions by context, and the counts that must be equal before
/// two cells are compared.
pub(crate) fn instructions(has_transactions: bool) -> [Derived; 10] {
    let total = |kind| Derived::total(kind);
    let of = |host, kind| Derived::of(host, kind);
    match has_transactions {
        false => [
            total(Figure::MemoryInstructionsPerKib),
            total(Figure::TaskInstructionsPerKib),
            total(Figure::NetRxInstructionsPerKib),
            total(Figure::DeferredInstructionsPerKib),
            total(Figure::HardirqInstructionsPerKib),
            of(HostName::CLIENT, Figure::ThreadInstructionsPerKib),
            of(HostName::SERVER, Figure::ThreadInstructionsPerKib),
            total(Figure::AcksPerKib),
            total(Figure::SwitchesPerMib),
            total(Figure::SegmentsPerSkb),
        ],
        true => [
            total(Figure::MemoryInstructionsPerTransaction),
            total(Figure::TaskInstructionsPerTransaction),
            total(Figure::NetRxInstructionsPerTransaction),
            total(Figure::DeferredInstructionsPerTransaction),
            total(Figure::HardirqInstructionsPerTransaction),
            of(HostName::CLIENT, Figure::ThreadInstructionsPerTransaction),
            of(HostName::SERVER, Figure::ThreadInstructionsPerTransaction),
            total(Figure::SystemCallsPerTransaction),
            total(Figure::SwitchesPerTransaction),
            total(Figure::PacketsPerTransaction),
        ],
    }
}

/// True if a cell was measured by the meter `exact`.
pub(crate) fn has_exact(cell: &CellSummary) -> bool {
    cell.estimates
        .contains_key(&Derived::total(Figure::ExactIdleRatio))
}

/// Notes on the exact table about the other methods.
pub(crate) fn methods(summary: &Summary) -> Vec<String> {
    let range = |kind| {
        let medians = summary
            .cells
            .iter()
            .flat_map(|cell| cell.estimates.iter().filter(move |(of, _)| of.kind == kind))
            .map(|(_, estimate)| estimate.median);
        let (lo, hi) = medians.fold((f64::INFINITY, 0.0_f64), |(lo, hi), x| {
            (lo.min(x), hi.max(x))
        });
        (lo <= hi).then(|| format!("{} to {}", show(lo), show(hi)))
    };
    let mut lines = Vec::new();
    if let Some(range) = range(Figure::ProcToExact) {
        lines.push(format!(
            "proc ÷: busy time by the ticks of /proc/stat is {range} times the exact busy time (medians of cells and ends), \
             since a tick charges all of its milliseconds to whatever it interrupts."
        ));
    }
    if let Some(range) = range(Figure::RusageToExact) {
        lines.push(format!(
            "rusage ÷: getrusage of the workload's threads is {range} times the exact cost (all CPU time \
             except idle time and other tasks), since it lacks softirqs that ran on an idle CPU or in other tasks."
        ));
    }
    if let Some(range) = range(Figure::SoakToExact) {
        lines.push(format!(
            "soak ÷: the soaker's load is {range} times the exact busy share: it also includes the effects on caches, \
             memory bandwidth and interrupt entry, which no accounting sees."
        ));
    }
    let exact = summary.cells.iter().filter(|cell| has_exact(cell));
    lines.extend(exact.filter_map(by_host::missing));
    lines
}

/// Trials without numbers, with their reasons.
pub(crate) fn not_measured(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    for cell in &summary.cells {
        for (what, reasons) in [("failed", &cell.failed), ("skipped", &cell.skipped)] {
            for (reason, count) in reasons {
                lines.push(format!("{what} {count}×: {}: {reason}", cell.name));
            }
        }
    }
    lines
}

/// One step of /proc/stat as a share of a cell's busy time, the largest of all cells whose main quantity is
/// based on it. `None` below 2 %.
fn coarsest_step(summary: &Summary) -> Option<f64> {
    const STEP_S: f64 = 0.01;
    const WORTH_TELLING: f64 = 0.02;
    let of_cell = |cell: &CellSummary| {
        let scope = cell.main.scope;
        let made_of_it = matches!(
            cell.main.kind,
            Figure::CpuUsPerKib
                | Figure::CpuUsPerTransaction
                | Figure::TscCyclesPerKib
                | Figure::TscCyclesPerTransaction
        );
        let kind = Figure::IdleRatio;
        let idle_ratio = cell.estimates.get(&Derived { kind, scope })?.median;
        let cpus = cpus(cell, scope).len();
        let busy_s =
            (1.0 - idle_ratio) * cpus as f64 * summary.study.measure.duration.as_secs_f64();
        (made_of_it && busy_s > 0.0).then(|| STEP_S / busy_s)
    };
    let steps = summary.cells.iter().filter_map(of_cell);
    steps
        .max_by(f64::total_cmp)
        .filter(|step| *step >= WORTH_TELLING)
}

fn cpus(cell: &CellSummary, scope: Scope) -> BTreeSet<&(String, usize)> {
    let of_hosts = cell.cpus.iter();
    of_hosts
        .filter(|(host, _)| scope.holds(**host))
        .flat_map(|(_, cpus)| cpus)
        .collect()
}

/// Explanations of fixed rate and of CPU-bound.
pub(crate) fn loads(summary: &Summary) -> Vec<String> {
    let is_fixed = |cell: &CellSummary| cell.load != Load::CpuBound;
    let any = |wanted: bool| summary.cells.iter().any(|cell| is_fixed(cell) == wanted);
    let notes = [
        (
            true,
            "Fixed rate: these cells do equal work, so their CPU costs can be compared directly.",
        ),
        (
            false,
            "CPU-bound: these cells run as fast as the CPU allows, so their work and cost drift with the \
             machine. Trust the ratio to the first cell, which compares trials of the same repetition, \
             more than the absolute cost.",
        ),
    ];
    // Counts of instructions do not drift.
    let drifts = |is_fixed: bool| !is_fixed && counts_instructions(summary);
    let notes = notes
        .into_iter()
        .filter(|(is_fixed, _)| any(*is_fixed) && !drifts(*is_fixed));
    notes.map(|(_, note)| note.to_string()).collect()
}

/// Explanations of the marks in a table, and of what is needed to read the answer correctly.
pub(crate) fn notes(summary: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    let any = |of: &dyn Fn(&CellSummary) -> bool| summary.cells.iter().any(of);
    if let Some(step) = coarsest_step(summary) {
        notes.push(format!(
            "/proc/stat counts in steps of 10 ms, here up to {} % of a cell's main number. An \
             interval narrower than a step is only as good as the step; longer trials have finer steps. Shares of user, system, irq and \
             softirq time are what ticks met, so with idle time they need not add up to 100 %.",
            show(step * 100.0)
        ));
    }
    notes.extend(placement(summary));
    notes.extend(copy_path::note(&summary.cells));
    notes.extend(comparable::note(&summary.cells));
    if summary.is_partial() {
        let limit = summary
            .study
            .measure
            .time_max
            .map_or(String::new(), |limit| {
                let limit = units::show_duration(limit);
                format!("; the run ends after {limit}, its limit on the time")
            });
        notes.push(format!(
            "Partial: {} of {} trials are done{limit}.",
            summary.trials_done, summary.trials_planned
        ));
    }
    if any(&|cell| {
        cell.estimates
            .values()
            .any(|estimate| estimate.lo.is_none())
    }) {
        notes.push(match counts_instructions(summary) {
            true => "[n=1]: one snapshot has no interval.".to_string(),
            false => {
                "[n=…]: fewer than six trials have no 95 % interval of the median.".to_string()
            }
        });
    }
    notes.extend(notes_on_marks(summary));
    if any(&|cell| cell.main_stands_in) {
        notes.push(
            "The study asks for one end's CPU time. This bed cannot separate the ends, so the numbers are for both ends together."
                .to_string(),
        );
    }
    notes
}

/// CPUs of each host's threads, where programs ran: an author of programs, such as uperf, may bind no thread. `None` without
/// programs, and if cells differ.
fn placement(summary: &Summary) -> Option<String> {
    let (first, others) = summary.cells.split_first()?;
    let mut cells = summary.cells.iter();
    if cells.any(|cell| cell.workload != Some(WorkloadKind::Program))
        || first.cpus.is_empty()
        || others.iter().any(|cell| cell.cpus != first.cpus)
    {
        return None;
    }
    let hosts = first.hosts().into_iter();
    let whose: Vec<String> = hosts
        .map(|host| whose_cpus(first, Scope::Host(host)))
        .collect();
    Some(format!(
        "Threads were bound to {}. uperf binds none and can have other rates, most of all on virtual machines: tcpcost uperf -m PROFILE runs a profile as it does.",
        whose.join(", ")
    ))
}

/// Explanations of the marks of cells, and of marked trials.
fn notes_on_marks(summary: &Summary) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(target) = summary.study.measure.target
        && summary.is_unconverged()
    {
        notes.push(format!(
            "! not converged: the interval is wider than ±{} % of the median, or there is no interval.",
            show(target * 100.0)
        ));
    }
    if all_are_marked(summary) {
        notes.push(
            "Most trials of every cell are marked by a warning, so marked trials are included."
                .to_string(),
        );
    } else if summary.cells.iter().any(CellSummary::uses_marked) {
        notes.push(
            "!! most trials of the cell are marked by a warning, so marked trials are included \
             (!!!: also not converged)."
                .to_string(),
        );
    }
    let aside: usize = summary
        .cells
        .iter()
        .map(|cell| cell.trials.iter().filter(|trial| !trial.used).count())
        .sum();
    if aside > 0 {
        notes.push(format!(
            "Marked by a warning and not used here: {}; the records have them.",
            trials(aside)
        ));
    }
    notes
}

/// Largest difference over the cells between the counts of kernel and workload.
pub(crate) fn cross_check(summary: &Summary) -> Option<String> {
    let worst = |kind| {
        let medians = summary
            .cells
            .iter()
            .filter_map(|cell| cell.estimates.get(&Derived::total(kind)));
        let worst = medians
            .map(|estimate| estimate.median)
            .max_by(f64::total_cmp)?;
        Some(format!("{} %", show(worst * 100.0)))
    };
    let payload = worst(Figure::PayloadDisagreement)?;
    let segments = worst(Figure::SegmentDisagreement).map_or_else(String::new, |segments| {
        format!(", the namespaces' and the connections' counts of segments by {segments}")
    });
    Some(format!(
        "Cross-check, worst cell: the kernel's and the workload's counts of payload differ by {payload}{segments}."
    ))
}
