//! The selectors of omni results. Names, headings and order are netperf's (`nettest_omni.c`,
//! `netperf_output_name` and `print_omni_init_list`).

use super::Report;
use super::value::{Value, asked, count, int, per, printed, quoted, text, three, two};
use crate::cpu::Cpu;
use crate::options::{Direction, Transport};

/// A selector: its index in the table `ROWS`, continued by `OWN`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Selector(usize);

/// Selectors, by block of lines.
pub type Blocks = Vec<Vec<Selector>>;

/// Name, heading with `|` between its lines, function that returns the value.
type Row = (&'static str, &'static str, fn(&Report<'_>) -> Value);

impl Selector {
    /// Finds a selector by its name, in any case, or by its heading with blanks between the lines.
    pub fn named(name: &str) -> Option<Selector> {
        let is_it = |(its, heading, _): &Row| {
            its.eq_ignore_ascii_case(name) || heading.replace('|', " ").eq_ignore_ascii_case(name)
        };
        ROWS.iter().chain(OWN).position(is_it).map(Selector)
    }

    fn row(self) -> &'static Row {
        ROWS.get(self.0)
            .unwrap_or_else(|| &OWN[self.0 - ROWS.len()])
    }

    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Lines of the heading, at most four.
    pub fn heading(self) -> impl Iterator<Item = &'static str> {
        self.row().1.split('|')
    }

    pub fn value(self, report: &Report<'_>) -> Value {
        (self.row().2)(report)
    }

    /// Returns whether the selector needs the latency of each transaction.
    pub fn is_latency(self) -> bool {
        self.name().ends_with("_LATENCY") && self.name() != "RT_LATENCY"
    }
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// All names that netperf has, in one line with commas or a line each, for the selection `?`.
pub fn list(in_one_line: bool) -> String {
    let names: Vec<&str> = ROWS.iter().map(|row| row.0).collect();
    names.join(if in_one_line { "," } else { "\n" }) + "\n"
}

/// All selectors that netperf has, in its four blocks.
pub fn all() -> Blocks {
    let place = |name| {
        ROWS.iter()
            .position(|row| row.0 == name)
            .expect("it is in the table")
    };
    let begins = [
        "SOCKET_TYPE",
        "LOCAL_CPU_UTIL",
        "LOCAL_SEND_THROUGHPUT",
        "LOCAL_SYSNAME",
    ]
    .map(place);
    let ends = begins.into_iter().skip(1).chain([ROWS.len()]);
    begins
        .into_iter()
        .zip(ends)
        .map(|(begin, end)| (begin..end).map(Selector).collect())
        .collect()
}

/// Default selectors of a test.
pub fn by_direction(direction: Direction, with_cpu: bool) -> Vec<Selector> {
    let sizes = match direction {
        Direction::Send => "LSS_SIZE_END,RSR_SIZE_END,LOCAL_SEND_SIZE",
        Direction::Receive => "RSS_SIZE_END,LSR_SIZE_END,REMOTE_SEND_SIZE",
        Direction::Both => {
            "LSS_SIZE_END,LSR_SIZE_END,RSR_SIZE_END,RSS_SIZE_END,REQUEST_SIZE,RESPONSE_SIZE"
        }
    };
    let rate = ["ELAPSED_TIME", "THROUGHPUT", "THROUGHPUT_UNITS"];
    let cpu = [
        "UTIL",
        "PERCENT_USER",
        "PERCENT_SYSTEM",
        "PERCENT_IOWAIT",
        "PERCENT_IRQ",
        "PERCENT_SWINTR",
        "METHOD",
    ];
    let of = |end: &'static str| cpu.iter().map(move |what| format!("{end}_CPU_{what}"));
    let demand = ["LOCAL_SD", "REMOTE_SD", "SD_UNITS"].map(str::to_string);
    let cpu = of("LOCAL")
        .chain(of("REMOTE"))
        .chain(demand)
        .filter(|_| with_cpu);
    let names = sizes.split(',').chain(rate).map(str::to_string).chain(cpu);
    names
        .map(|name| Selector::named(&name).expect("it is in the table"))
        .collect()
}

/// Value that netperf 2.7 and later print for what they no longer look for.
const DEPRECATED: &str = "Deprecated";

/// Selectors that netperf does not have: the method and CPU time of each service demand, and the bytes
/// that were not yet acknowledged at the end.
#[rustfmt::skip]
const OWN: &[Row] = &[
    ("LOCAL_SD_METHOD", "Local|Service|Demand|Method", |r| method(&r.cpu.local)),
    ("LOCAL_SD_CPU_NS", "Local|Service|Demand|CPU ns", |r| known(r.cpu.local.cpu_ns)),
    ("REMOTE_SD_METHOD", "Remote|Service|Demand|Method", |r| method(&r.cpu.remote)),
    ("REMOTE_SD_CPU_NS", "Remote|Service|Demand|CPU ns", |r| known(r.cpu.remote.cpu_ns)),
    ("LOCAL_BYTES_UNCONFIRMED", "Local|Bytes|Unconfirmed", |r| known(r.local.unconfirmed)),
];

fn by_transport(report: &Report<'_>, tcp: &'static str, udp: &'static str) -> &'static str {
    match report.options.transport {
        Transport::Tcp => tcp,
        Transport::Udp => udp,
    }
}

fn method(cpu: &Cpu) -> Value {
    cpu.method.map_or(Value::None, |method| text(method.name()))
}

fn known(number: Option<u64>) -> Value {
    number.map_or(Value::None, count)
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("SOCKET_TYPE", "Socket|Type", |r| text(by_transport(r, "Stream", "Datagram"))),
    ("PROTOCOL", "Protocol", |r| text(by_transport(r, "TCP", "UDP"))),
    ("DIRECTION", "Direction", |r| text(r.options.direction_name())),
    ("ELAPSED_TIME", "Elapsed|Time|(sec)", |r| two(r.elapsed)),
    ("THROUGHPUT", "Throughput", |r| two(r.throughput)),
    ("THROUGHPUT_UNITS", "Throughput|Units", |r| Value::Text(format!("{}/s", r.options.unit.name()))),
    ("LSS_SIZE_REQ", "Local|Send Socket|Size|Requested", |r| asked(r.options.send_buffer.local)),
    ("LSS_SIZE", "Local|Send Socket|Size|Initial", |r| int(r.local.send_buffer)),
    ("LSS_SIZE_END", "Local|Send Socket|Size|Final", |r| int(r.local.send_buffer_end)),
    ("LSR_SIZE_REQ", "Local|Recv Socket|Size|Requested", |r| asked(r.options.receive_buffer.local)),
    ("LSR_SIZE", "Local|Recv Socket|Size|Initial", |r| int(r.local.receive_buffer)),
    ("LSR_SIZE_END", "Local|Recv Socket|Size|Final", |r| int(r.local.receive_buffer_end)),
    ("RSS_SIZE_REQ", "Remote|Send Socket|Size|Requested", |r| asked(r.options.send_buffer.remote)),
    ("RSS_SIZE", "Remote|Send Socket|Size|Initial", |r| int(r.set_up.send_buf_size)),
    ("RSS_SIZE_END", "Remote|Send Socket|Size|Final", |r| int(r.remote.send_buf_size)),
    ("RSR_SIZE_REQ", "Remote|Recv Socket|Size|Requested", |r| asked(r.options.receive_buffer.remote)),
    ("RSR_SIZE", "Remote|Recv Socket|Size|Initial", |r| int(r.set_up.recv_buf_size)),
    ("RSR_SIZE_END", "Remote|Recv Socket|Size|Final", |r| int(r.remote.recv_buf_size)),
    ("LOCAL_SEND_SIZE", "Local|Send|Size", |r| int(r.local.send_size)),
    ("LOCAL_RECV_SIZE", "Local|Recv|Size", |r| int(r.local.receive_size)),
    ("REMOTE_SEND_SIZE", "Remote|Send|Size", |r| int(r.set_up.send_size)),
    ("REMOTE_RECV_SIZE", "Remote|Recv|Size", |r| int(r.set_up.receive_size)),
    ("REQUEST_SIZE", "Request|Size|Bytes", |r| int(r.options.request)),
    ("RESPONSE_SIZE", "Response|Size|Bytes", |r| int(r.options.response)),
    ("LOCAL_CPU_UTIL", "Local|CPU|Util|%", |r| two(r.cpu.local.percent(|cpu| cpu.all))),
    ("LOCAL_CPU_PERCENT_USER", "Local|CPU|User|%", |r| two(r.cpu.local.percent(|cpu| cpu.user))),
    ("LOCAL_CPU_PERCENT_SYSTEM", "Local|CPU|System|%", |r| two(r.cpu.local.percent(|cpu| cpu.system))),
    ("LOCAL_CPU_PERCENT_IOWAIT", "Local|CPU|I/O|%", |r| two(r.cpu.local.percent(|cpu| cpu.iowait))),
    ("LOCAL_CPU_PERCENT_IRQ", "Local|CPU|IRQ|%", |r| two(r.cpu.local.percent(|cpu| cpu.irq))),
    ("LOCAL_CPU_PERCENT_SWINTR", "Local|CPU|swintr|%", |r| two(r.cpu.local.percent(|cpu| cpu.softirq))),
    ("LOCAL_CPU_METHOD", "Local|CPU|Util|Method", |r| text(r.cpu.local.method_letter())),
    ("LOCAL_SD", "Local|Service|Demand", |r| three(printed(r.cpu.local.service_demand))),
    ("REMOTE_CPU_UTIL", "Remote|CPU|Util|%", |r| two(r.cpu.remote.percent(|cpu| cpu.all))),
    ("REMOTE_CPU_PERCENT_USER", "Remote|CPU|User|%", |r| two(r.cpu.remote.percent(|cpu| cpu.user))),
    ("REMOTE_CPU_PERCENT_SYSTEM", "Remote|CPU|System|%", |r| two(r.cpu.remote.percent(|cpu| cpu.system))),
    ("REMOTE_CPU_PERCENT_IOWAIT", "Remote|CPU|I/O|%", |r| two(r.cpu.remote.percent(|cpu| cpu.iowait))),
    ("REMOTE_CPU_PERCENT_IRQ", "Remote|CPU|IRQ|%", |r| two(r.cpu.remote.percent(|cpu| cpu.irq))),
    ("REMOTE_CPU_PERCENT_SWINTR", "Remote|CPU|swintr|%", |r| two(r.cpu.remote.percent(|cpu| cpu.softirq))),
    ("REMOTE_CPU_METHOD", "Remote|CPU|Util|Method", |r| text(r.cpu.remote.method_letter())),
    ("REMOTE_SD", "Remote|Service|Demand", |r| three(printed(r.cpu.remote.service_demand))),
    ("SD_UNITS", "Service|Demand|Units", |r| text(r.service_demand_unit())),
    ("CONFIDENCE_LEVEL", "Confidence|Level|Percent", |r| int(r.options.confidence.level)),
    ("CONFIDENCE_INTERVAL", "Confidence|Width|Target", |r| Value::Decimal(r.confidence.target, 6)),
    ("CONFIDENCE_ITERATION", "Confidence|Iterations|Run", |r| int(r.confidence.iterations)),
    ("THROUGHPUT_CONFID", "Throughput|Confidence|Width (%)", |r| three(r.confidence.result)),
    ("LOCAL_CPU_CONFID", "Local|CPU|Confidence|Width (%)", |r| three(r.confidence.local_cpu)),
    ("REMOTE_CPU_CONFID", "Remote|CPU|Confidence|Width (%)", |r| three(r.confidence.remote_cpu)),
    ("TRANSACTION_RATE", "Transaction|Rate|Tran/s", |r| three(r.transaction_rate)),
    ("RT_LATENCY", "Round|Trip|Latency|usec/tran", |r| three(r.round_trip_us)),
    ("BURST_SIZE", "Initial|Burst|Requests", |r| int(r.options.burst)),
    ("LOCAL_TRANSPORT_RETRANS", "Local|Transport|Retransmissions", |r| int(r.local.retransmits)),
    ("REMOTE_TRANSPORT_RETRANS", "Remote|Transport|Retransmissions", |r| int(r.remote.transport_retrans)),
    ("TRANSPORT_MSS", "Transport|MSS|bytes", |r| int(r.local.mss)),
    ("LOCAL_SEND_THROUGHPUT", "Local|Send|Throughput", |r| two(r.rate(r.local.bytes_sent))),
    ("LOCAL_RECV_THROUGHPUT", "Local|Recv|Throughput", |r| two(r.rate(r.local.bytes_received))),
    ("REMOTE_SEND_THROUGHPUT", "Remote|Send|Throughput", |r| two(r.rate(r.remote.bytes_sent))),
    ("REMOTE_RECV_THROUGHPUT", "Remote|Recv|Throughput", |r| two(r.rate(r.remote.bytes_received))),
    ("LOCAL_CPU_BIND", "Local|CPU|Bind", |r| asked(r.options.affinity.local)),
    ("LOCAL_CPU_COUNT", "Local|CPU|Count", |r| int(r.cpu.local.cpus)),
    ("LOCAL_CPU_PEAK_UTIL", "Local|Peak|Per CPU|Util %", |r| two(r.cpu.local.percent(|cpu| cpu.peak))),
    ("LOCAL_CPU_PEAK_ID", "Local|Peak|Per CPU|ID", |r| asked(r.cpu.local.peak_id())),
    ("LOCAL_CPU_MODEL", "Local|CPU|Model", |_| text(DEPRECATED)),
    ("LOCAL_CPU_FREQUENCY", "Local|CPU|Frequency|MHz", |_| int(0)),
    ("REMOTE_CPU_BIND", "Remote|CPU|Bind", |r| asked(r.options.affinity.remote)),
    ("REMOTE_CPU_COUNT", "Remote|CPU|Count", |r| int(r.cpu.remote.cpus)),
    ("REMOTE_CPU_PEAK_UTIL", "Remote|Peak|Per CPU|Util %", |r| two(r.cpu.remote.percent(|cpu| cpu.peak))),
    ("REMOTE_CPU_PEAK_ID", "Remote|Peak|Per CPU|ID", |r| asked(r.cpu.remote.peak_id())),
    ("REMOTE_CPU_MODEL", "Remote|CPU|Model", |_| text(DEPRECATED)),
    ("REMOTE_CPU_FREQUENCY", "Remote|CPU|Frequency|MHz", |_| int(0)),
    ("SOURCE_PORT", "Source|Port", |r| text(&r.options.data_port.local.to_string())),
    ("SOURCE_ADDR", "Source|Address", |r| text(&r.source)),
    ("SOURCE_FAMILY", "Source|Family", |r| int(r.family)),
    ("DEST_PORT", "Destination|Port", |r| text(&r.options.data_port.remote.to_string())),
    ("DEST_ADDR", "Destination|Address", |r| text(&r.destination)),
    ("DEST_FAMILY", "Destination|Family", |r| int(r.family)),
    ("LOCAL_SEND_CALLS", "Local|Send|Calls", |r| count(r.local.send_calls)),
    ("LOCAL_RECV_CALLS", "Local|Recv|Calls", |r| count(r.local.receive_calls)),
    ("LOCAL_BYTES_PER_RECV", "Local|Bytes|Per|Recv", |r| two(per(r.local.bytes_received, r.local.receive_calls))),
    ("LOCAL_BYTES_PER_SEND", "Local|Bytes|Per|Send", |r| two(per(r.local.bytes_sent, r.local.send_calls))),
    ("LOCAL_BYTES_SENT", "Local|Bytes|Sent", |r| count(r.local.bytes_sent)),
    ("LOCAL_BYTES_RECVD", "Local|Bytes|Received", |r| count(r.local.bytes_received)),
    ("LOCAL_BYTES_XFERD", "Local|Bytes|Xferred", |r| count(r.local.bytes_received + r.local.bytes_sent)),
    ("LOCAL_SEND_OFFSET", "Local|Send|Offset", |_| int(0)),
    ("LOCAL_RECV_OFFSET", "Local|Recv|Offset", |_| int(0)),
    ("LOCAL_SEND_ALIGN", "Local|Send|Alignment", |_| int(8)),
    ("LOCAL_RECV_ALIGN", "Local|Recv|Alignment", |_| int(8)),
    ("LOCAL_SEND_WIDTH", "Local|Send|Width", |_| int(1)),
    ("LOCAL_RECV_WIDTH", "Local|Recv|Width", |_| int(1)),
    ("LOCAL_SEND_DIRTY_COUNT", "Local|Send|Dirty|Count", |_| int(-1)),
    ("LOCAL_RECV_DIRTY_COUNT", "Local|Recv|Dirty|Count", |_| int(-1)),
    ("LOCAL_RECV_CLEAN_COUNT", "Local|Recv|Clean|Count", |_| int(-1)),
    ("LOCAL_NODELAY", "Local|NODELAY", |r| int(r.options.nodelay)),
    ("LOCAL_CORK", "Local|Cork", |r| int(r.options.cork)),
    ("REMOTE_SEND_CALLS", "Remote|Send|Calls", |r| count(r.remote.send_calls.into())),
    ("REMOTE_RECV_CALLS", "Remote|Recv|Calls", |r| count(r.remote.recv_calls.into())),
    ("REMOTE_BYTES_PER_RECV", "Remote|Bytes|Per|Recv", |r| two(per(r.remote.bytes_received, r.remote.recv_calls.into()))),
    ("REMOTE_BYTES_PER_SEND", "Remote|Bytes|Per|Send", |r| two(per(r.remote.bytes_sent, r.remote.send_calls.into()))),
    ("REMOTE_BYTES_SENT", "Remote|Bytes|Sent", |r| count(r.remote.bytes_sent)),
    ("REMOTE_BYTES_RECVD", "Remote|Bytes|Received", |r| count(r.remote.bytes_received)),
    ("REMOTE_BYTES_XFERD", "Remote|Bytes|Xferred", |r| count(r.remote.bytes_received + r.remote.bytes_sent)),
    ("REMOTE_SEND_OFFSET", "Remote|Send|Offset", |_| int(0)),
    ("REMOTE_RECV_OFFSET", "Remote|Recv|Offset", |_| int(0)),
    ("REMOTE_SEND_ALIGN", "Remote|Send|Alignment", |_| int(8)),
    ("REMOTE_RECV_ALIGN", "Remote|Recv|Alignment", |_| int(8)),
    ("REMOTE_SEND_WIDTH", "Remote|Send|Width", |_| int(1)),
    ("REMOTE_RECV_WIDTH", "Remote|Recv|Width", |_| int(1)),
    ("REMOTE_SEND_DIRTY_COUNT", "Remote|Send|Dirty|Count", |_| int(-1)),
    ("REMOTE_RECV_DIRTY_COUNT", "Remote|Recv|Dirty|Count", |_| int(-1)),
    ("REMOTE_RECV_CLEAN_COUNT", "Remote|Recv|Clean|Count", |_| int(-1)),
    ("REMOTE_NODELAY", "Remote|NODELAY", |r| int(r.remote_nodelay)),
    ("REMOTE_CORK", "Remote|Cork", |r| int(r.options.cork)),
    ("LOCAL_SYSNAME", "Local|Sysname", |_| text(DEPRECATED)),
    ("LOCAL_SYSTEM_MODEL", "Local|System|Model", |_| text(DEPRECATED)),
    ("LOCAL_RELEASE", "Local|Release", |_| text(DEPRECATED)),
    ("LOCAL_VERSION", "Local|Version", |_| text(DEPRECATED)),
    ("LOCAL_MACHINE", "Local|Machine", |_| text(DEPRECATED)),
    ("REMOTE_SYSNAME", "Remote|Sysname", |_| text(DEPRECATED)),
    ("REMOTE_SYSTEM_MODEL", "Remote|System|Model", |_| text(DEPRECATED)),
    ("REMOTE_RELEASE", "Remote|Release", |_| text(DEPRECATED)),
    ("REMOTE_VERSION", "Remote|Version", |_| text(DEPRECATED)),
    ("REMOTE_MACHINE", "Remote|Machine", |_| text(DEPRECATED)),
    ("LOCAL_INTERFACE_NAME", "Local|Interface|Name", |_| text(DEPRECATED)),
    ("LOCAL_INTERFACE_VENDOR", "Local|Interface|Vendor", |_| Value::Hex(-2, 4)),
    ("LOCAL_INTERFACE_DEVICE", "Local|Interface|Device", |_| Value::Hex(-2, 4)),
    ("LOCAL_INTERFACE_SUBVENDOR", "Local|Interface|Subvendor", |_| Value::Hex(-2, 4)),
    ("LOCAL_INTERFACE_SUBDEVICE", "Local|Interface|Subdevice", |_| Value::Hex(-2, 4)),
    ("LOCAL_DRIVER_NAME", "Local|Driver|Name", |_| text(DEPRECATED)),
    ("LOCAL_DRIVER_VERSION", "Local|Driver|Version", |_| text(DEPRECATED)),
    ("LOCAL_DRIVER_FIRMWARE", "Local|Driver|Firmware", |_| text(DEPRECATED)),
    ("LOCAL_DRIVER_BUS", "Local|Driver|Bus", |_| text(DEPRECATED)),
    ("LOCAL_INTERFACE_SLOT", "Local|Interface|Slot", |_| text(DEPRECATED)),
    ("REMOTE_INTERFACE_NAME", "Remote|Interface|Name", |_| text(DEPRECATED)),
    ("REMOTE_INTERFACE_VENDOR", "Remote|Interface|Vendor", |_| Value::Hex(-2, 4)),
    ("REMOTE_INTERFACE_DEVICE", "Remote|Interface|Device", |_| Value::Hex(-2, 4)),
    ("REMOTE_INTERFACE_SUBVENDOR", "Remote|Interface|Subvendor", |_| Value::Hex(-2, 4)),
    ("REMOTE_INTERFACE_SUBDEVICE", "Remote|Interface|Subdevice", |_| Value::Hex(-2, 4)),
    ("REMOTE_DRIVER_NAME", "Remote|Driver|Name", |_| text(DEPRECATED)),
    ("REMOTE_DRIVER_VERSION", "Remote|Driver|Version", |_| text(DEPRECATED)),
    ("REMOTE_DRIVER_FIRMWARE", "Remote|Driver|Firmware", |_| text(DEPRECATED)),
    ("REMOTE_DRIVER_BUS", "Remote|Driver|Bus", |_| text(DEPRECATED)),
    ("REMOTE_INTERFACE_SLOT", "Remote|Interface|Slot", |_| text(DEPRECATED)),
    ("LOCAL_INTERVAL_USECS", "Local|Interval|Usecs", |_| int(0)),
    ("LOCAL_INTERVAL_BURST", "Local|Interval|Burst", |_| int(0)),
    ("REMOTE_INTERVAL_USECS", "Remote|Interval|Usecs", |_| int(0)),
    ("REMOTE_INTERVAL_BURST", "Remote|Interval|Burst", |_| int(0)),
    ("LOCAL_SECURITY_TYPE_ID", "Local|OS|Security|Type ID", |_| int(0)),
    ("LOCAL_SECURITY_TYPE", "Local|OS|Security|Type", |_| text(DEPRECATED)),
    ("LOCAL_SECURITY_ENABLED_NUM", "Local|OS|Security|Enabled Num", |_| int(0)),
    ("LOCAL_SECURITY_ENABLED", "Local|OS|Security|Enabled", |_| text(DEPRECATED)),
    ("LOCAL_SECURITY_SPECIFIC", "Local|OS|Security|Specific", |_| text(DEPRECATED)),
    ("REMOTE_SECURITY_TYPE_ID", "Remote|OS|Security|Type", |_| int(0)),
    ("REMOTE_SECURITY_TYPE", "Remote|OS|Security|Type", |_| text(DEPRECATED)),
    ("REMOTE_SECURITY_ENABLED_NUM", "Remote|OS|Security|Enabled", |_| int(0)),
    ("REMOTE_SECURITY_ENABLED", "Remote|OS|Security|Enabled", |_| text(DEPRECATED)),
    ("REMOTE_SECURITY_SPECIFIC", "Remote|OS|Security|Specific", |_| text(DEPRECATED)),
    ("RESULT_BRAND", "Result|Tag", |r| r.options.brand.as_deref().map_or(Value::None, quoted)),
    ("UUID", "Test|UUID", |r| text(&r.uuid)),
    ("MIN_LATENCY", "Minimum|Latency|Microseconds", |r| int(r.latency.min_us)),
    ("MAX_LATENCY", "Maximum|Latency|Microseconds", |r| int(r.latency.max_us)),
    ("P50_LATENCY", "50th|Percentile|Latency|Microseconds", |r| int(r.latency.p50_us)),
    ("P90_LATENCY", "90th|Percentile|Latency|Microseconds", |r| int(r.latency.p90_us)),
    ("P99_LATENCY", "99th|Percentile|Latency|Microseconds", |r| int(r.latency.p99_us)),
    ("MEAN_LATENCY", "Mean|Latency|Microseconds", |r| two(r.latency.mean_us)),
    ("STDDEV_LATENCY", "Stddev|Latency|Microseconds", |r| two(r.latency.stddev_us)),
    ("LOCAL_SOCKET_PRIO", "Local|Socket|Priority", |r| asked(r.options.priority.local)),
    ("REMOTE_SOCKET_PRIO", "Remote|Socket|Priority", |r| int(r.set_up.socket_prio)),
    ("LOCAL_SOCKET_TOS", "Local|Socket|TOS", |r| Value::Hex(r.options.tos.local.unwrap_or(-1), 2)),
    ("REMOTE_SOCKET_TOS", "Remote|Socket|TOS", |r| Value::Hex(r.set_up.socket_tos, 2)),
    ("LOCAL_CONG_CONTROL", "Local|Congestion|Control|Algorithm", |r| text(&r.local.congestion)),
    ("REMOTE_CONG_CONTROL", "Remote|Congestion|Control|Algorithm", |r| text(&r.remote.cong_control)),
    ("LOCAL_FILL_FILE", "Local|Fill|File", |r| text(&r.fill_name())),
    ("REMOTE_FILL_FILE", "Remote|Fill|File", |r| text(&r.options.remote_fill)),
    ("COMMAND_LINE", "Command|Line", |r| quoted(&r.options.command_line)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_named_in_any_case_or_by_its_heading() {
        let named = |name| Selector::named(name).map(Selector::name);
        assert_eq!(named("throughput"), Some("THROUGHPUT"));
        assert_eq!(named("Elapsed Time (sec)"), Some("ELAPSED_TIME"));
        assert_eq!(named("local_sd_method"), Some("LOCAL_SD_METHOD"));
        assert_eq!(named("nothing"), None);
    }

    #[test]
    fn all_of_them_are_in_four_blocks_each_once() {
        let blocks = all();
        assert_eq!(blocks.len(), 4);
        assert_eq!(blocks.iter().flatten().count(), ROWS.len());
        assert_eq!(blocks[0].last().unwrap().name(), "RESPONSE_SIZE");
        assert_eq!(blocks[2].last().unwrap().name(), "REMOTE_CORK");
        assert_eq!(blocks[3].last().unwrap().name(), "COMMAND_LINE");
    }
}
