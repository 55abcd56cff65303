//! Words of netperf, iperf3, neper, uperf, sockperf and wrk, with the keys of a study that mean the
//! same. They are only for error messages; none of these words is accepted.

/// Words of other tools, and the key of a study for each, in backticks.
const SYNONYMS: &[(&[&str], &str)] = &[
    (
        &[
            "connections",
            "conns",
            "num_flows",
            "streams",
            "parallel",
            "sockets",
            "sessions",
            "nprocs",
            "concurrency",
        ],
        "`flows` of [workload]",
    ),
    (
        &["nthreads", "num_threads", "procs", "processes", "workers"],
        "`threads` of [workload]",
    ),
    (
        &[
            "length",
            "len",
            "size",
            "message_size",
            "msg_size",
            "send_size",
            "buffer_size",
            "buf_size",
            "block_size",
            "bs",
        ],
        "`write_size` of [workload] (of a request: `request_size`)",
    ),
    (&["recv_size", "receive_size"], "`read_size` of [workload]"),
    (&["request", "req_size"], "`request_size` of [workload]"),
    (
        &["response", "resp_size", "reply_size"],
        "`response_size` of [workload]",
    ),
    (
        &[
            "bandwidth",
            "bitrate",
            "bps",
            "throughput",
            "rate_limit",
            "target_rate",
        ],
        "`rate` of [workload], or `bottleneck` of [bed] for the link",
    ),
    (
        &["rps", "qps", "mps", "tps", "requests_per_second"],
        "`transaction_rate` of [workload]",
    ),
    (
        &[
            "pipeline",
            "pipelining",
            "burst",
            "outstanding",
            "depth",
            "queue_depth",
        ],
        "`in_flight` of [workload]",
    ),
    (
        &[
            "test",
            "test_name",
            "traffic",
            "pattern",
            "mode",
            "protocol",
        ],
        "`kind` of [workload]",
    ),
    (&["reverse"], "`kind` of [workload] = \"maerts\""),
    (
        &["bidir", "duplex", "dualtest"],
        "`kind` of [workload] = \"bidirectional\"",
    ),
    (
        &["no_delay", "tcp_nodelay", "nagle"],
        "`nodelay` of [workload]",
    ),
    (&["tcp_cork", "msg_more"], "`cork` of [workload]"),
    (
        &["zerocopy", "zero_copy", "msg_zerocopy"],
        "`send_with` of [workload] = \"zerocopy\"",
    ),
    (&["sendfile", "splice"], "`send_with` of [workload]"),
    (
        &[
            "congestion",
            "cc",
            "cca",
            "tcp_congestion",
            "congestion_algorithm",
        ],
        "`congestion_control` of [workload]",
    ),
    (
        &["window", "wndsz", "sndbuf", "so_sndbuf", "socket_buffer"],
        "`send_buffer` of [workload] (and `receive_buffer`)",
    ),
    (&["rcvbuf", "so_rcvbuf"], "`receive_buffer` of [workload]"),
    (&["rcvlowat", "so_rcvlowat"], "`rcvlowat` of [bed]"),
    (&["mss", "set_mss"], "`mtu` of [bed], which is 40 more"),
    (
        &["affinity", "cpu", "cpu_affinity", "pin", "taskset"],
        "`cpus` of [bed], or `placement` of [workload]",
    ),
    (&["ip_version", "ipv4", "ipv6", "family"], "`ip` of [bed]"),
    (&["lro"], "`gro` of [bed]"),
    (&["tx", "tx_csum", "checksum"], "`tx_checksum` of [bed]"),
    (
        &["delack", "delayed_ack", "delayed_acks", "ack_ratio"],
        "`ack_policy` of [bed], or `ack_delay`",
    ),
    (
        &["fq_rate", "max_pacing_rate", "maxpacingrate"],
        "`pacing_rate` of [bed]",
    ),
    (&["initcwnd", "cwnd"], "`initial_window` of [bed]"),
    (
        &["time", "duration", "test_length", "seconds"],
        "`duration` of [measure]",
    ),
    (&["omit", "warmup", "warm_up"], "`warm_up` of [measure]"),
    (
        &["repeat", "runs", "iterations", "repetitions", "samples"],
        "`repetitions` of [measure]",
    ),
    (
        &["meters", "seed", "quantity", "target"],
        "a key of [measure]",
    ),
];

/// Key of a study for a word of another tool. `None` for an unknown word.
pub(crate) fn synonym(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let row = SYNONYMS
        .iter()
        .find(|(names, _)| names.contains(&name.as_str()));
    row.map(|(_, here)| *here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::KNOBS;

    #[test]
    fn each_leads_to_a_key_that_there_is_and_no_word_leads_to_two() {
        let mut seen = Vec::new();
        for (names, here) in SYNONYMS {
            for name in *names {
                assert!(!seen.contains(name), "{name} twice");
                seen.push(name);
            }
            for key in here.split('`').skip(1).step_by(2) {
                let is_knob = KNOBS.iter().any(|knob| knob.key == key);
                let is_measure = ["duration", "warm_up", "repetitions"].contains(&key);
                assert!(is_knob || is_measure, "{here}: {key}");
            }
        }
    }
}
