//! Layer of the network stack for a call chain.
//!
//! The innermost function that belongs to a layer decides. So an allocator or a lock counts to its caller's
//! layer.

/// A layer of the network stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// User mode: the application.
    User,
    /// System calls, sockets, readiness, and the copy between user and kernel.
    SystemCall,
    /// TCP output: segments that are built and sent, including ACKs.
    TcpOutput,
    /// IP, netfilter, queueing disciplines, segmentation and GRO, in both directions.
    IpAndBelow,
    /// A device's driver.
    Driver,
    /// TCP input: data and ACKs that arrived.
    TcpInput,
    /// Wake-ups and task switches.
    WakeUp,
    /// Hard interrupts for other purposes: between CPUs, timers, the tick.
    Interrupts,
    /// Tracepoints and eBPF programs, of our meters and of other programs.
    Measuring,
    /// Any other code.
    Rest,
}

impl Layer {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Layer::User => "application",
            Layer::SystemCall => "system call and copy",
            Layer::TcpOutput => "TCP output",
            Layer::IpAndBelow => "IP and below",
            Layer::Driver => "driver",
            Layer::TcpInput => "TCP input and ACK",
            Layer::WakeUp => "wake-ups",
            Layer::Interrupts => "hard interrupts",
            Layer::Measuring => "measuring",
            Layer::Rest => "the rest",
        }
    }
}

/// Layer of a kernel call chain, innermost function first. An empty chain is user mode.
pub fn layer<'a>(functions: impl IntoIterator<Item = &'a str>) -> Layer {
    let mut inner = None;
    for function in functions {
        // Functions that the device layer calls belong to the driver, whatever their names are.
        let calls_driver = matches!(function, "dev_hard_start_xmit" | "__napi_poll");
        let is_poll_of_stack = inner == Some("process_backlog");
        if calls_driver && inner.is_some() && !is_poll_of_stack {
            return Layer::Driver;
        }
        let known = TABLE
            .iter()
            .find(|(_, starts)| starts.iter().any(|start| function.starts_with(start)));
        if let Some((layer, _)) = known {
            return *layer;
        }
        inner = Some(function);
    }
    match inner {
        None => Layer::User,
        Some(_) => Layer::Rest,
    }
}

/// Prefixes of function names. The first matching row counts.
const TABLE: &[(Layer, &[&str])] = &[
    (
        Layer::Measuring,
        &["__traceiter_", "bpf_trace_run", "bpf_prog_"],
    ),
    (
        Layer::WakeUp,
        &[
            "sock_def_readable",
            "sock_def_write_space",
            "sk_stream_write_space",
            "ep_poll_callback",
            "__wake_up",
            "try_to_wake_up",
            "ttwu_",
            "schedule",
            "__schedule",
            "__switch_to",
            "sched_ttwu",
        ],
    ),
    (
        Layer::TcpInput,
        &[
            "tcp_v4_rcv",
            "tcp_v6_rcv",
            "tcp_v4_do_rcv",
            "tcp_v6_do_rcv",
            "tcp_rcv_",
            "tcp_ack",
            "tcp_data_queue",
            "tcp_clean_rtx",
            "tcp_queue_rcv",
            "tcp_add_backlog",
            "tcp_try_coalesce",
            "tcp_prequeue",
            "tcp_event_data_recv",
            "tcp_rtt",
            "tcp_rack",
            "tcp_sacktag",
            "tcp_fastretrans",
            "tcp_validate_incoming",
            "tcp_newly_delivered",
            "__inet_lookup",
            "inet6_lookup",
            "tcp_cong_control",
        ],
    ),
    (
        Layer::TcpOutput,
        &[
            "tcp_write_xmit",
            "__tcp_transmit_skb",
            "tcp_transmit",
            "tcp_push",
            "__tcp_push",
            "tcp_tso",
            "tcp_send_ack",
            "__tcp_send_ack",
            "tcp_send_mss",
            "tcp_current_mss",
            "tcp_established_options",
            "tcp_options_write",
            "tcp_event_new_data",
            "tcp_schedule_loss",
            "tcp_fragment",
            "tso_fragment",
            "tcp_mtu_probe",
            "tcp_pace",
            "tcp_pacing",
            "tcp_tasklet",
            "tcp_tsq",
            "tcp_small_queue",
            "tcp_delack",
            "tcp_write_timer",
            "tcp_retransmit",
            "tcp_wfree",
            "tcp_v4_send_check",
            "tcp_update_skb",
            "tcp_rearm",
            "tcp_chrono",
        ],
    ),
    (
        Layer::IpAndBelow,
        &[
            "ip_",
            "__ip_",
            "ip6_",
            "ipv6_",
            "inet_gso",
            "ipv6_gso",
            "tcp_gso",
            "tcp4_gso",
            "tcp6_gso",
            "tcp_gro",
            "tcp4_gro",
            "tcp6_gro",
            "inet_gro",
            "skb_segment",
            "skb_gso",
            "__skb_gso",
            "skb_mac_gso",
            "nf_",
            "ipt_",
            "nft_",
            "__dev_queue_xmit",
            "dev_hard_start",
            "validate_xmit",
            "sch_direct",
            "__qdisc",
            "qdisc_",
            "pfifo",
            "fq_",
            "codel_",
            "tbf_",
            "net_tx_action",
            "net_rx_action",
            "__netif_receive",
            "netif_",
            "napi_",
            "__napi",
            "process_backlog",
            "enqueue_to_backlog",
            "dev_gro",
            "get_rps_cpu",
            "skb_flow_dissect",
            "__skb_flow",
            "__skb_get_hash",
            "neigh_",
            "__local_bh",
        ],
    ),
    (
        Layer::Driver,
        &["veth_", "loopback_xmit", "virtnet_", "tun_"],
    ),
    (
        Layer::SystemCall,
        &[
            "rep_movs",
            "copy_user",
            "_copy_",
            "copy_page",
            "skb_copy_datagram",
            "__skb_datagram",
            "simple_copy",
            "tcp_sendmsg",
            "tcp_recvmsg",
            "tcp_cleanup_rbuf",
            "tcp_splice",
            "tcp_rcv_space",
            "tcp_stream_",
            "tcp_poll",
            "tcp_eat",
            "inet_",
            "inet6_",
            "sock_",
            "__sock",
            "lock_sock",
            "release_sock",
            "__release_sock",
            "sk_stream",
            "sk_wait",
            "ep_",
            "do_epoll",
            "__x64_sys",
            "__arm64_sys",
            "__sys_",
            "__se_sys",
            "ksys_",
            "vfs_",
            "do_syscall",
            "entry_SYSCALL",
            "syscall_",
            "el0_svc",
            "new_sync",
            "fdget",
            "__fget",
        ],
    ),
    (
        Layer::Interrupts,
        &[
            "asm_sysvec_",
            "asm_common_interrupt",
            "el0t_64_irq",
            "el1h_64_irq",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(chain: &str, expected: Layer) {
        // `chain` is written outermost function first.
        assert_eq!(layer(chain.split_whitespace().rev()), expected, "{chain}");
    }

    #[test]
    fn the_innermost_function_that_a_layer_knows_decides() {
        let call =
            "entry_SYSCALL_64_after_hwframe do_syscall_64 ksys_write vfs_write sock_write_iter";
        check(call, Layer::SystemCall);
        let sent = format!(
            "{call} tcp_sendmsg tcp_sendmsg_locked tcp_push tcp_write_xmit __tcp_transmit_skb"
        );
        check(&sent, Layer::TcpOutput);
        check(
            &format!("{sent} __alloc_skb kmem_cache_alloc"),
            Layer::TcpOutput,
        );
        let device = format!("{sent} ip_queue_xmit __dev_queue_xmit dev_hard_start_xmit");
        check(&device, Layer::IpAndBelow);
        check(
            &format!("{device} strange_xmit strange_ring"),
            Layer::Driver,
        );
        let softirq = format!(
            "{device} __local_bh_enable_ip do_softirq net_rx_action __napi_poll process_backlog"
        );
        check(&softirq, Layer::IpAndBelow);
        check(
            &format!("{softirq} __netif_receive_skb ip_rcv tcp_v4_rcv tcp_ack"),
            Layer::TcpInput,
        );
        check(
            &format!("{softirq} ip_rcv tcp_v4_rcv sock_def_readable __wake_up"),
            Layer::WakeUp,
        );
        check("net_rx_action __napi_poll mlx5e_poll", Layer::Driver);
        check(
            &format!("{softirq} __traceiter_softirq_exit bpf_trace_run1 __rcu_read_lock"),
            Layer::Measuring,
        );
        let tick = "asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt";
        check(&format!("{tick} hrtimer_interrupt"), Layer::Interrupts);
        check(&format!("{tick} try_to_wake_up"), Layer::WakeUp);
        check("ret_from_fork kthread", Layer::Rest);
        check("", Layer::User);
    }
}
