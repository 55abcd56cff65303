//! Instructions by context of a guest: tasks, softirqs and hard interrupts, as the plugin counts them (contexts.h).

use crate::symbols::Symbols;

/// Instructions by context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contexts {
    /// In tasks, kernel threads included, in user and kernel mode.
    pub task: u64,
    /// In softirqs other than NET_RX.
    pub deferred: u64,
    /// In softirq NET_RX.
    pub net_rx: u64,
    /// In hard interrupts.
    pub hardirq: u64,
}

/// Kernel functions that begin a context, with its number in contexts.h: those of a row until one is found. Up to Linux 6.8
/// `__do_softirq` calls the softirqs, later `handle_softirqs`, in which the former may end without a return.
const NEEDED: [(&[&str], u32); 4] = [
    (&["handle_softirqs", "__do_softirq"], 1),
    (&["net_rx_action"], 3),
    (&["hrtimer_interrupt"], 4),
    (&["handle_irq_event"], 4),
];

/// Other softirqs; a kernel has those of its version and options.
const DEFERRED: [&str; 9] = [
    "net_tx_action",
    "run_timer_softirq",
    "hrtimer_run_softirq",
    "tasklet_action",
    "tasklet_hi_action",
    "rcu_core",
    "run_rebalance_domains",
    "sched_balance_softirq",
    "blk_done_softirq",
];

/// Options of the plugin; none if the kernel lacks a function that is needed.
pub(crate) fn doorways(symbols: &Symbols) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |names: &[&str], context: u32| {
        let mut found = names.iter().map(|name| ranges(symbols, name));
        let found = found.find(|ranges| !ranges.is_empty()).unwrap_or_default();
        let of_context = found.iter();
        options
            .extend(of_context.map(|(start, end)| format!("doorway={context}:{start:x}:{end:x}")));
        !found.is_empty()
    };
    if !NEEDED.iter().all(|(names, context)| add(names, *context)) {
        return Vec::new();
    }
    for name in DEFERRED {
        add(&[name], 2);
    }
    let thunk = ranges(symbols, "__x86_return_thunk");
    options.extend(thunk.first().map(|(start, _)| format!("thunk={start:x}")));
    options
}

/// Addresses at which the functions of this name begin, and those behind them.
fn ranges(symbols: &Symbols, name: &str) -> Vec<(u64, u64)> {
    let all = symbols.sorted.iter().enumerate();
    let of_name = all.filter(|(_, (_, symbol))| symbol == name);
    of_name
        .filter_map(|(at, (start, _))| {
            let behind = symbols.sorted[at..].iter();
            let end = behind
                .map(|(address, _)| *address)
                .find(|end| end > start)?;
            Some((*start, end))
        })
        .collect()
}

impl Contexts {
    /// Parses the counts of a line, in the order of contexts.h.
    pub(crate) fn parse(counts: &str) -> Option<Contexts> {
        let counts: Result<Vec<u64>, _> = counts.split(' ').map(str::parse).collect();
        match counts.ok()?[..] {
            [task, deferred, net_rx, hardirq] => Some(Contexts {
                task,
                deferred,
                net_rx,
                hardirq,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(names: &[&str]) -> Symbols {
        let numbered = names.iter().zip(1..);
        Symbols {
            sorted: numbered
                .map(|(name, at)| (at << 8, name.to_string()))
                .collect(),
        }
    }

    #[test]
    fn a_kernel_has_one_function_for_each_context_or_no_contexts() {
        let names = [
            "__do_softirq",
            "handle_softirqs",
            "net_rx_action",
            "hrtimer_interrupt",
            "handle_irq_event",
            "rcu_core",
            "__x86_return_thunk",
            "last",
        ];
        let expected = [
            "doorway=1:200:300",
            "doorway=3:300:400",
            "doorway=4:400:500",
            "doorway=4:500:600",
            "doorway=2:600:700",
            "thunk=700",
        ];
        assert_eq!(doorways(&symbols(&names)), expected);
        let earlier: Vec<&str> = names
            .into_iter()
            .filter(|name| *name != "handle_softirqs")
            .collect();
        assert_eq!(doorways(&symbols(&earlier))[0], "doorway=1:100:200");
        assert_eq!(doorways(&symbols(&names[..3])), [""; 0]);
        assert_eq!(Contexts::parse("1 2 3"), None);
    }
}
