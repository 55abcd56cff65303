//! Splits a call chain by context. An interrupt or a softirq runs on top of the interrupted code, and is not
//! part of its work.

use tcpcost_study::{CallChain, CallChains, TaskClass};

/// Part of a chain in its innermost context.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChainPart<'a> {
    /// Context: `softirq`, `interrupt`, or the name of the task.
    pub(super) context: &'a str,
    /// Functions in user mode, outermost first; empty in an interrupt.
    pub(super) user: &'a [u32],
    /// Kernel functions, from the entry of the context on.
    pub(super) kernel: &'a [u32],
}

/// Part of a chain that is the trial's work. `None` for idle time and for tasks of others. A softirq or an
/// interrupt counts as the trial's work, whatever it interrupted, as in the meter `exact`.
pub(super) fn part<'a>(chains: &'a CallChains, chain: &'a CallChain) -> Option<ChainPart<'a>> {
    let mut kernel = &chain.kernel[..];
    // If a sample is due while a virtual machine's CPU does not run, it arrives with the pending interrupts,
    // at the first instruction of the first one. The interrupted functions are further out.
    while let [outer @ .., innermost] = kernel
        && entry(chains.name(*innermost)) == Some(INTERRUPT)
    {
        kernel = outer;
    }
    let innermost_entry = kernel
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, &place)| Some((at, entry(chains.name(place))?)));
    if let Some((at, context)) = innermost_entry {
        return Some(ChainPart {
            context,
            user: &[],
            kernel: &kernel[at..],
        });
    }
    match chain.whose {
        TaskClass::Own | TaskClass::Kernel => Some(ChainPart {
            context: &chain.task,
            user: &chain.user,
            kernel,
        }),
        TaskClass::Others | TaskClass::Idle => None,
    }
}

const SOFTIRQ: &str = "softirq";
const INTERRUPT: &str = "interrupt";

/// Context whose entry is this function. `None` for other functions.
fn entry(name: &str) -> Option<&'static str> {
    match name {
        // Names until Linux 6.10, and since then.
        "__do_softirq" | "handle_softirqs" => Some(SOFTIRQ),
        "asm_common_interrupt" | "el1h_64_irq" | "el0t_64_irq" => Some(INTERRUPT),
        name if name.starts_with("asm_sysvec_") => Some(INTERRUPT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(whose: TaskClass, kernel: &str, expected: Option<(&str, &str)>) {
        let functions: Vec<String> = kernel.split_whitespace().map(String::from).collect();
        let chain = CallChain {
            task: "client-0".into(),
            whose,
            user: Vec::new(),
            kernel: (0..functions.len() as u32).collect(),
            samples: 1,
        };
        let chains = CallChains {
            functions,
            ..CallChains::default()
        };
        let found = part(&chains, &chain).map(|part| {
            let names: Vec<&str> = part.kernel.iter().map(|&at| chains.name(at)).collect();
            (part.context.to_string(), names.join(" "))
        });
        let expected = expected.map(|(context, kernel)| (context.into(), kernel.into()));
        assert_eq!(found, expected, "{kernel}");
    }

    #[test]
    fn a_softirq_or_an_interrupt_is_not_the_work_of_what_it_hit() {
        let own = TaskClass::Own;
        check(
            own,
            "do_syscall tcp_sendmsg",
            Some(("client-0", "do_syscall tcp_sendmsg")),
        );
        check(
            own,
            "do_syscall tcp_sendmsg do_softirq handle_softirqs net_rx_action",
            Some(("softirq", "handle_softirqs net_rx_action")),
        );
        check(
            own,
            "do_syscall asm_sysvec_call_function_single sysvec_x irq_exit __do_softirq tcp_ack",
            Some(("softirq", "__do_softirq tcp_ack")),
        );
        let timer = "asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt";
        check(
            TaskClass::Idle,
            &format!("do_idle {timer}"),
            Some(("interrupt", timer)),
        );
    }

    #[test]
    fn a_sample_at_the_entry_of_an_interrupt_is_of_what_it_hit() {
        check(
            TaskClass::Own,
            "do_syscall _copy_from_iter asm_sysvec_call_function_single",
            Some(("client-0", "do_syscall _copy_from_iter")),
        );
        let twice = "handle_softirqs tcp_ack asm_sysvec_reschedule_ipi asm_common_interrupt";
        check(
            TaskClass::Idle,
            twice,
            Some(("softirq", "handle_softirqs tcp_ack")),
        );
    }

    #[test]
    fn idle_time_and_tasks_of_others_are_not_the_trials() {
        check(TaskClass::Idle, "do_idle default_idle", None);
        check(TaskClass::Others, "do_syscall ext4_write", None);
        check(TaskClass::Others, "", None);
        check(
            TaskClass::Kernel,
            "kthread worker",
            Some(("client-0", "kthread worker")),
        );
        check(TaskClass::Own, "", Some(("client-0", "")));
    }
}
