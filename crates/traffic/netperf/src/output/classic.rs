//! The columns of TCP_STREAM, TCP_MAERTS, TCP_SENDFILE, TCP_RR, TCP_CRR, UDP_STREAM and UDP_RR (netperf's `nettest_omni.c`, `send_tcp_stream`
//! and its likes). Scripts count their lines and words: super_netperf takes the last word of the seventh line.

use std::fmt::Write;

use super::value::{left, per, printed, right};
use super::{Report, histogram};
use crate::cpu::Cpu;
use crate::options::{Direction, Options, Transport};

/// Formats all results below the banner.
pub fn results(report: &Report<'_>) -> String {
    let mut text = String::new();
    text += &report.confidence.warning();
    match report.options.direction {
        Direction::Both => transactions(report, &mut text),
        _ if report.options.transport == Transport::Udp => datagrams(report, &mut text),
        direction => stream(report, direction, &mut text),
    }
    text
}

/// Formats the output of verbosity 0: one number, the service demand if CPU was measured, otherwise the
/// throughput.
fn brief(report: &Report<'_>, text: &mut String) {
    let brand = report.brand();
    let of_cpu = if report.options.cpu.local {
        Some(&report.cpu.local)
    } else if report.options.cpu.remote {
        Some(&report.cpu.remote)
    } else {
        None
    };
    let _ = match of_cpu {
        Some(cpu) => writeln!(
            text,
            "{} {} {brand}",
            right(printed(cpu.service_demand), 6, 3),
            cpu.method_letter()
        ),
        None => writeln!(text, "{} {brand}", right(report.throughput, 7, 2)),
    };
}

fn stream(report: &Report<'_>, direction: Direction, text: &mut String) {
    let options = report.options;
    if options.verbosity == 0 {
        return brief(report, text);
    }
    let (local, set_up) = (&report.local, &report.set_up);
    let with_cpu = options.cpu.local || options.cpu.remote;
    let unit = options.unit.name();
    let is_maerts = direction == Direction::Receive;
    if options.with_headers {
        let words = if is_maerts {
            ["Recv", "Send"]
        } else {
            ["Send", "Recv"]
        };
        let [here, there] = words;
        *text += &match with_cpu {
            false => format!(
                "Recv   Send    Send                          \n\
                 Socket Socket  Message  Elapsed              \n\
                 Size   Size    Size     Time     Throughput  \n\
                 bytes  bytes   bytes    secs.    {unit}/sec  \n\n"
            ),
            true => format!(
                "Recv   Send    Send                          Utilization       Service Demand\n\
                 Socket Socket  Message  Elapsed              {here}     {there}     {here}    {there}\n\
                 Size   Size    Size     Time     Throughput  local    remote   local   remote\n\
                 bytes  bytes   bytes    secs.    {unit:<8}/s  % {}      % {}      us/KB   us/KB\n\n",
                report.cpu.local.method_letter(),
                report.cpu.remote.method_letter(),
            ),
        };
    }
    let (receive, send, size) = match is_maerts {
        true => (local.receive_buffer, set_up.send_buf_size, set_up.send_size),
        false => (set_up.recv_buf_size, local.send_buffer, local.send_size),
    };
    let _ = write!(
        text,
        "{receive:>6} {send:>6} {size:>6}    {} ",
        left(report.elapsed, 6, 2)
    );
    let _ = match with_cpu {
        false => writeln!(
            text,
            "  {}   {}",
            right(report.throughput, 7, 2),
            report.brand()
        ),
        true => writeln!(
            text,
            "    {}   {}   {}   {}  {} {}",
            right(report.throughput, 7, 2),
            left(report.cpu.local.percent(|cpu| cpu.all), 6, 2),
            left(report.cpu.remote.percent(|cpu| cpu.all), 6, 2),
            left(printed(report.cpu.local.service_demand), 6, 3),
            left(printed(report.cpu.remote.service_demand), 6, 3),
            report.brand()
        ),
    };
    if options.verbosity > 1 {
        calls(report, is_maerts, text);
    }
}

/// Formats what was sent, and below it what netserver received (`send_udp_stream`).
fn datagrams(report: &Report<'_>, text: &mut String) {
    let options = report.options;
    let (local, remote) = (&report.local, &report.remote);
    let with_cpu = options.cpu.local || options.cpu.remote;
    let (sent, received) = (
        report.rate(local.bytes_sent),
        report.rate(remote.bytes_received),
    );
    if options.verbosity == 0 {
        match with_cpu {
            true => brief(report, text),
            false => *text += &(right(sent, 7, 2) + "\n"),
        }
        return;
    }
    let unit = options.unit.name();
    if options.with_headers {
        let (ours, theirs) = (
            report.cpu.local.method_letter(),
            report.cpu.remote.method_letter(),
        );
        *text += &match with_cpu {
            false => format!(
                "Socket  Message  Elapsed      Messages                \n\
                 Size    Size     Time         Okay Errors   Throughput\n\
                 bytes   bytes    secs            #      #   {unit}/sec\n\n"
            ),
            true => format!(
                "Socket  Message  Elapsed      Messages                   CPU      Service\n\
                 Size    Size     Time         Okay Errors   Throughput   Util     Demand\n\
                 bytes   bytes    secs            #      #   {unit}/sec % {ours}{theirs}     us/KB\n\n"
            ),
        };
    }
    let elapsed = left(report.elapsed, 7, 2);
    let digits = if with_cpu { 1 } else { 2 };
    let cpu = |cpu: &Cpu| match with_cpu {
        false => String::new(),
        true => format!(
            "     {}   {}",
            left(cpu.percent(|cpu| cpu.all), 6, 2),
            left(printed(cpu.service_demand), 6, 3)
        ),
    };
    let _ = writeln!(
        text,
        "{:>6}  {:>6}   {elapsed}   {:>7} {:>6}    {}{}",
        local.send_buffer,
        local.send_size,
        local.send_calls,
        local.failed_sends,
        right(sent, 7, digits),
        cpu(&report.cpu.local),
    );
    let _ = writeln!(
        text,
        "{:>6}           {elapsed}   {:>7}           {}{}\n",
        report.set_up.recv_buf_size,
        remote.recv_calls,
        right(received, 7, digits),
        cpu(&report.cpu.remote),
    );
    if options.verbosity > 1 {
        *text += &histogram::titled(report, "\nHistogram of time spent in send() call");
    }
}

/// Formats the bytes, the calls and the bytes per call of both ends, and the MSS.
fn calls(report: &Report<'_>, is_maerts: bool, text: &mut String) {
    let (local, remote) = (&report.local, &report.remote);
    let (here, there) = if is_maerts {
        ("Recv", "Send")
    } else {
        ("Send", "Recv")
    };
    let (bytes, our_calls, their_bytes, their_calls) = match is_maerts {
        true => (
            local.bytes_received,
            local.receive_calls,
            remote.bytes_sent,
            u64::from(remote.send_calls),
        ),
        false => (
            local.bytes_sent,
            local.send_calls,
            local.bytes_sent,
            u64::from(remote.recv_calls),
        ),
    };
    let _ = write!(
        text,
        "\nAlignment      Offset         Bytes    Bytes       {here}s   Bytes    {there}s\n\
         Local  Remote  Local  Remote  Xfered   Per                 Per\n\
         {here}   {there}    {here}   {there}             {here} (avg)          {there} (avg)\n\
         {:>5}   {:>5}  {:>5}   {:>5} {bytes:>6}  {}    {our_calls:>6}   {} {their_calls:>6}\n",
        8,
        8,
        0,
        0,
        right(per(bytes, our_calls), 6, 2),
        right(per(their_bytes, their_calls), 6, 2),
    );
    let _ = write!(text, "\nMaximum\nSegment\nSize (bytes)\n{:>6}\n", local.mss);
    let call = if is_maerts { "recv" } else { "send" };
    let title = format!("\n\nHistogram of time spent in {call}() call.");
    *text += &histogram::titled(report, &title);
}

fn transactions(report: &Report<'_>, text: &mut String) {
    let options = report.options;
    if options.verbosity == 0 {
        return brief(report, text);
    }
    let (local, set_up) = (&report.local, &report.set_up);
    let with_cpu = options.cpu.local || options.cpu.remote;
    let is_rate = options.unit.counts_transactions();
    let unit = options.unit.name();
    if options.with_headers {
        let (ours, theirs) = (
            report.cpu.local.method_letter(),
            report.cpu.remote.method_letter(),
        );
        *text += "Local /Remote\n";
        *text += &match (with_cpu, is_rate) {
            (false, true) => "Socket Size   Request  Resp.   Elapsed  Trans.\n\
                 Send   Recv   Size     Size    Time     Rate         \n\
                 bytes  Bytes  bytes    bytes   secs.    per sec   \n\n"
                .to_string(),
            (false, false) => format!(
                "Socket Size   Request  Resp.   Elapsed  \n\
                 Send   Recv   Size     Size    Time     Throughput \n\
                 bytes  Bytes  bytes    bytes   secs.    {unit}/sec   \n\n"
            ),
            (true, true) => format!(
                "Socket Size   Request Resp.  Elapsed Trans.   CPU    CPU    S.dem   S.dem\n\
                 Send   Recv   Size    Size   Time    Rate     local  remote local   remote\n\
                 bytes  bytes  bytes   bytes  secs.   per sec  % {ours}    % {theirs}    us/Tr   us/Tr\n\n"
            ),
            (true, false) => format!(
                "Socket Size   Request Resp.  Elapsed Tput     CPU    CPU    S.dem   S.dem\n\
                 Send   Recv   Size    Size   Time    {unit:<8} local  remote local   remote\n\
                 bytes  bytes  bytes   bytes  secs.   per sec  % {ours}    % {theirs}    us/KB   us/KB\n\n"
            ),
        };
    }
    let brand = report.brand();
    let _ = write!(
        text,
        "{:<6} {:<6} {:<6} ",
        local.send_buffer, local.receive_buffer, options.request
    );
    let _ = match with_cpu {
        false => writeln!(
            text,
            "  {:<6}  {}   {}   {brand}",
            options.response,
            left(report.elapsed, 6, 2),
            right(report.throughput, 7, 2)
        ),
        true => writeln!(
            text,
            " {:<6} {}  {}  {} {} {}  {} {brand}",
            options.response,
            left(report.elapsed, 6, 2),
            left(report.throughput, 6, 2),
            left(report.cpu.local.percent(|cpu| cpu.all), 6, 2),
            left(report.cpu.remote.percent(|cpu| cpu.all), 6, 2),
            left(printed(report.cpu.local.service_demand), 6, 3),
            left(printed(report.cpu.remote.service_demand), 6, 3),
        ),
    };
    let _ = writeln!(
        text,
        "{:<6} {:<6}",
        set_up.send_buf_size, set_up.recv_buf_size
    );
    if options.verbosity > 1 {
        let title = match options.transport {
            Transport::Tcp => "\nHistogram of request/response times",
            // netperf's own spelling.
            Transport::Udp => "\nHistogram of request/reponse times.",
        };
        if options.transport == Transport::Tcp && options.test.reports_round_trips {
            round_trips(report, text);
        }
        *text += &histogram::titled(report, title);
    }
}

/// Formats the mean round trip, the transaction rate, and the throughput in each direction.
fn round_trips(report: &Report<'_>, text: &mut String) {
    let [outbound, inbound] = throughputs(report.options, report.transaction_rate);
    let _ = write!(
        text,
        "Alignment      Offset         RoundTrip  Trans    Throughput\n\
         Local  Remote  Local  Remote  Latency    Rate     {:<8}/s\n\
         Send   Recv    Send   Recv    usec/Tran  per sec  Outbound   Inbound\n\
         {:>5}  {:>5}   {:>5}  {:>5}   {}   {} {}    {}\n",
        report.options.unit.for_bytes().name(),
        8,
        0,
        0,
        0,
        left(report.round_trip_us, 6, 3),
        left(report.transaction_rate, 6, 3),
        left(outbound, 6, 3),
        left(inbound, 6, 3),
    );
}

/// Throughput of the requests, and of the responses.
fn throughputs(options: &Options, transactions_per_s: f64) -> [f64; 2] {
    let unit = options.unit.for_bytes();
    [options.request, options.response]
        .map(|bytes| unit.of(transactions_per_s * f64::from(bytes), 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Asked, parse};

    #[test]
    fn each_direction_has_the_throughput_of_its_messages() {
        let words = "-t TCP_RR -- -r 125,1250".split(' ');
        let words: Vec<String> = words.map(str::to_string).collect();
        let Asked::Test(options) = parse(&words).unwrap() else {
            panic!("{words:?}");
        };
        assert!(options.unit.counts_transactions());
        assert_eq!(throughputs(&options, 1000.0), [1.0, 10.0], "Mbit/s");
    }
}
