//! Forms in which a capture may come: cut, with short snap lengths, one direction, doubled, tunnelled. A form changes the
//! segments of a whole capture, so that what the whole shows is the truth about what the form shows.

use std::net::IpAddr;
use tcpcost_trace::{
    Analysis, Endpoint, Host, Report, Segment, Settings, Sink, Tunnel, Wait, flag, read,
};

/// Form of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Whole,
    /// Begun when a third, or two thirds, of the packets had passed.
    BegunAt(usize),
    /// Ended when a third, or two thirds, of the packets had passed.
    EndedAt(usize),
    /// Cut after this many bytes of an Ethernet frame.
    Snap(usize),
    /// Packets of the client, or of the server, alone.
    OneWay(usize),
    /// Each packet twice, as on `-i any` of a bridge: with a lower hop limit, or without any difference.
    Doubled,
    DoubledAlike,
    Tunnelled,
    /// Each packet twice: as it is and in a tunnel, as on `-i any` of a tunnel's end; or in two tunnels, one after the other.
    BesideTunnel,
    TwoTunnels,
    Ipv6,
    DoubledIpv6,
}

pub const FORMS: [Form; 18] = [
    Form::Whole,
    Form::BegunAt(1),
    Form::BegunAt(2),
    Form::EndedAt(1),
    Form::EndedAt(2),
    Form::Snap(54),
    Form::Snap(66),
    Form::Snap(96),
    Form::OneWay(0),
    Form::OneWay(1),
    Form::Doubled,
    Form::DoubledAlike,
    Form::Tunnelled,
    Form::BesideTunnel,
    Form::TwoTunnels,
    Form::Ipv6,
    Form::DoubledIpv6,
    Form::BegunAt(0),
];

/// Segments of a capture.
pub fn segments(file: &[u8]) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut keep = |segment: &Segment| segments.push(*segment);
    read(file, &mut keep).1.unwrap();
    segments
}

impl Form {
    /// The capture in this form. `BegunAt(0)`: without the packets that carry SYN.
    pub fn of(self, whole: &[Segment]) -> Vec<Segment> {
        let part = |thirds: usize| whole.len() * thirds / 3;
        let each = |change: &dyn Fn(&Segment) -> Segment| whole.iter().map(change).collect();
        match self {
            Form::Whole => whole.to_vec(),
            Form::BegunAt(0) => {
                let rest = whole.iter().filter(|segment| !segment.any(flag::SYN));
                rest.copied().collect()
            }
            Form::BegunAt(thirds) => whole[part(thirds)..].to_vec(),
            Form::EndedAt(thirds) => whole[..part(thirds)].to_vec(),
            Form::Snap(bytes) => each(&|segment| snapped(segment, bytes)),
            Form::OneWay(end) => {
                let client = whole[0].source;
                let is_of = |segment: &&Segment| (segment.source == client) == (end == 0);
                whole.iter().filter(is_of).copied().collect()
            }
            Form::Doubled => twice(whole, &|copy| {
                copy.hop_limit = copy.hop_limit.saturating_sub(1)
            }),
            Form::DoubledAlike => twice(whole, &|_| {}),
            Form::Tunnelled => each(&|segment| in_tunnel(segment, Tunnel::Gre)),
            Form::BesideTunnel => twice(whole, &|copy| copy.tunnel = Some(Tunnel::Gre)),
            Form::TwoTunnels => {
                let first: Vec<Segment> = each(&|segment| in_tunnel(segment, Tunnel::Vxlan));
                twice(&first, &|copy| copy.tunnel = Some(Tunnel::Gre))
            }
            Form::Ipv6 => each(&ipv6),
            Form::DoubledIpv6 => {
                let first: Vec<Segment> = each(&ipv6);
                twice(&first, &|copy| {
                    copy.hop_limit = copy.hop_limit.saturating_sub(1)
                })
            }
        }
    }

    /// Packets of the whole that this form leaves out at the start.
    pub fn without(self, whole: &[Segment]) -> usize {
        match self {
            Form::BegunAt(0) => {
                let of_syn = whole.iter().rposition(|segment| segment.any(flag::SYN));
                of_syn.map_or(0, |last| last + 1)
            }
            Form::BegunAt(thirds) => whole.len() * thirds / 3,
            _ => 0,
        }
    }
}

/// Each segment, and 20 µs later its copy, which `change` makes different.
fn twice(of: &[Segment], change: &dyn Fn(&mut Segment)) -> Vec<Segment> {
    let copies = |segment: &Segment| {
        let mut copy = *segment;
        copy.at_ns = copy.at_ns.map(|at| at + 20_000);
        change(&mut copy);
        [*segment, copy]
    };
    let mut all: Vec<Segment> = of.iter().flat_map(copies).collect();
    all.sort_by_key(|segment| segment.at_ns);
    all
}

fn in_tunnel(segment: &Segment, tunnel: Tunnel) -> Segment {
    Segment {
        tunnel: Some(tunnel),
        ..*segment
    }
}

/// The segment in IPv6: longer addresses, a longer header, no id.
fn ipv6(segment: &Segment) -> Segment {
    let host = |end: Endpoint| match end.host {
        Host::Address(IpAddr::V4(address)) => Endpoint {
            host: address.to_ipv6_mapped().into(),
            ..end
        },
        _ => end,
    };
    Segment {
        source: host(segment.source),
        destination: host(segment.destination),
        ip_id: 0,
        ip_octets: segment.ip_octets + 20,
        ..*segment
    }
}

/// A segment whose frame was cut after this many bytes: an Ethernet, an IPv4 and a TCP header have 54.
fn snapped(segment: &Segment, bytes: usize) -> Segment {
    let mut cut = *segment;
    let left = bytes.saturating_sub(54);
    let options = &mut cut.options;
    let stamps = if options.timestamps.is_some() { 12 } else { 0 };
    let is_syn = segment.any(flag::SYN);
    let needed = match (is_syn, options.sack_blocks) {
        (true, _) => 20,
        (false, 0) => stamps,
        (false, blocks) => stamps + 4 + 8 * usize::from(blocks),
    };
    if left >= needed {
        return cut;
    }
    options.complete = false;
    (options.sack_blocks, options.sack) = (0, Default::default());
    options.window_scale = None;
    if is_syn || left < stamps {
        options.timestamps = None;
    }
    if left < 6 {
        (options.mss, options.sack_permitted) = (None, false);
    }
    cut
}

/// Report of these segments.
pub fn report(segments: &[Segment]) -> Report {
    let mut analysis = Analysis::new(Settings::default());
    for segment in segments {
        analysis.segment(segment);
    }
    let reading = tcpcost_trace::Reading {
        packets: segments.len() as u64,
        ..Default::default()
    };
    analysis.into_report("own", &reading, Ok(())).0
}

/// Time that passed in the rest of a capture after its first `without` packets, by what was waited for, as the whole shows it.
pub fn waits_of_rest(whole: &[Segment], without: usize) -> Vec<(Wait, u64)> {
    let [all, before] = [whole.len(), without].map(|packets| report(&whole[..packets]).waits);
    let rest = |wait: Wait| (wait, all.of(wait).saturating_sub(before.of(wait)));
    Wait::ALL.map(rest).into()
}

/// Kinds of findings that tell of a wait.
pub fn kinds_of(wait: Wait) -> &'static [&'static str] {
    match wait {
        Wait::Network => &["round_trips"],
        Wait::ServerApplication => &["server_application"],
        Wait::ClientApplication => &["client_application"],
        Wait::Idle => &[],
        Wait::SynTimeout => &["syn_retransmissions"],
        Wait::LossFast | Wait::LossTimeout | Wait::LossProbe => &["loss"],
        Wait::ReceiverWindow => &["receiver_window"],
        Wait::CongestionWindow => &["congestion_window", "queueing"],
        Wait::DelayedAck => &["delayed_ack_stalls"],
        Wait::Paced => &["paced", "queueing"],
        Wait::HeldUp => &["sender_held_up"],
        Wait::Unclear => &["sender_or_path"],
        Wait::UnclearAnswer => &["path_or_application"],
        Wait::Reordering => &["needless_retransmissions"],
        Wait::Unanswered => &["unanswered_requests"],
        Wait::Stopped => &["stopped_answers"],
        Wait::Undelivered => &["undelivered_data"],
        Wait::FinUnanswered => &["unanswered_fins"],
    }
}

/// Kinds of findings that say that the cause cannot be told.
pub const NOT_TOLD: [&str; 3] = ["sender_or_path", "path_or_application", "none"];

/// Verdict on a first finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Honest,
    Wrong,
}

/// Weight of a wait in the order of findings, halves.
fn weight(wait: Wait) -> u64 {
    match wait {
        Wait::Network
        | Wait::CongestionWindow
        | Wait::Paced
        | Wait::Unclear
        | Wait::UnclearAnswer => 2,
        _ => 3,
    }
}

/// Findings about a sender that has more to send: which of them is right depends on the place, on the whole connection's
/// losses and on its round trips.
const OF_SENDERS: [&str; 7] = [
    "congestion_window",
    "queueing",
    "paced",
    "sender_or_path",
    "loss",
    "needless_retransmissions",
    "round_trips",
];

/// Findings that something was not done until the capture ended.
const FAILURES: [&str; 5] = [
    "failed_handshakes",
    "unanswered_requests",
    "stopped_answers",
    "undelivered_data",
    "unanswered_fins",
];

/// Judges the first finding of a form of a capture. `expected`: what may come first for the whole.
pub fn judge(form: Form, whole: &[Segment], first: &str, expected: &[&str]) -> Verdict {
    if matches!(form, Form::EndedAt(_)) {
        // Packets that passed are told as before; those that did not pass yet are no failure.
        let is_failure = FAILURES.contains(&first) && !expected.contains(&first);
        return if is_failure {
            Verdict::Wrong
        } else {
            Verdict::Right
        };
    }
    let rest = waits_of_rest(whole, form.without(whole));
    let busy = rest.iter().filter(|(wait, _)| *wait != Wait::Idle);
    let busy = busy.map(|(wait, ns)| (wait, ns * weight(*wait)));
    let most = busy.clone().map(|(_, ns)| ns).max().unwrap_or(0);
    let mut leads = busy.filter(|(_, ns)| *ns > 0 && *ns >= most / 2);
    let is_lead = leads.any(|(wait, _)| {
        let kinds = kinds_of(*wait);
        let is_of_sender = kinds.iter().any(|kind| OF_SENDERS[..6].contains(kind));
        let is_same = is_of_sender && OF_SENDERS.contains(&first) && expected.contains(&first);
        kinds.contains(&first) || is_same
    });
    let is_cut = matches!(form, Form::BegunAt(_));
    let is_expected = expected.contains(&first) && (!is_cut || first == "resets");
    // Data that were never delivered were lost.
    let is_lost = first == "loss" && expected.contains(&"undelivered_data") && form != Form::Whole;
    // Without options, or without one direction, a loss and an overtaken packet look the same, and the finding says so.
    let is_either = first == "loss"
        && expected.contains(&"needless_retransmissions")
        && matches!(form, Form::Snap(54 | 66) | Form::OneWay(_));
    if is_expected || is_lead || is_lost || is_either {
        Verdict::Right
    } else if form != Form::Whole && NOT_TOLD.contains(&first) {
        Verdict::Honest
    } else {
        Verdict::Wrong
    }
}
