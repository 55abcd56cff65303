//! Tests of which knob affects which end, by the rows.

use super::*;
use crate::KNOBS;

fn owner(owned: bool) -> DeviceOwner {
    match owned {
        true => DeviceOwner::Bed,
        false => DeviceOwner::Loopback,
    }
}

fn knobs(pairs: &[(&str, &str)]) -> Knobs {
    let mut knobs = Knobs::default();
    for (name, text) in pairs {
        knobs.set(name, text).unwrap();
    }
    knobs
}

#[test]
fn needs_name_rows_and_values_of_theirs() {
    for row in KNOBS {
        for need in row.needs {
            let is_value = |row: &Knob, word: &str| {
                let mut one = Knobs::default();
                one.set(row.name, word).is_ok()
            };
            assert!(
                need.when.iter().all(|word| is_value(row, word)),
                "{}",
                row.name
            );
            for term in need.any_of {
                let other = find(term.knob).unwrap_or_else(|| panic!("{}", term.knob));
                if let Required::OneOf(words) | Required::NoneOf(words) = term.required {
                    assert!(
                        words.iter().all(|word| is_value(&other, word)),
                        "{}",
                        row.name
                    );
                }
            }
            assert!(
                !need.any_of.is_empty() || !need.why.is_empty(),
                "{}",
                row.name
            );
        }
    }
}

#[test]
fn each_choice_of_our_tcp_is_of_one_row_and_a_knob_of_an_end_belongs_to_an_end() {
    let mut seen = Vec::new();
    for row in KNOBS {
        match row.applies_to {
            AppliesTo::Link(_, user) | AppliesTo::Tcp(_, user) => {
                if let UserSupport::Supported(which) = user {
                    assert!(!seen.contains(&which), "{which:?} twice");
                    seen.push(which);
                }
                let is_of_both = ["steering", "carrier"].contains(&row.name);
                assert!(row.per_end || is_of_both, "{}", row.name);
            }
            AppliesTo::Workload => assert!(!row.per_end, "{}", row.name),
            AppliesTo::Host => {}
        }
    }
}

#[test]
fn what_a_stack_cannot_have_is_told_with_its_end() {
    let check = |pairs: &[(&str, &str)], owned, expected: &str| {
        let error = knobs(pairs)
            .available_at(HostName::CLIENT, owner(owned))
            .unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with(expected), "{said}\n{expected}");
    };
    let user = ("client.stack", "user");
    check(
        &[("tail_split", "split")],
        true,
        "client.tail_split: the kernel's is fixed",
    );
    check(
        &[("quickack", "on")],
        false,
        "client.quickack: only for a bed's own device",
    );
    check(
        &[("steering", "on")],
        false,
        "steering: only for a bed's own device",
    );
    check(
        &[("ack_policy", "exactly")],
        true,
        "client.ack_policy: the kernel's TCP has no policy \"exactly\"",
    );
    check(
        &[("ack_policy", "every")],
        false,
        "client.ack_policy: only for a bed's own device",
    );
    check(
        &[("workload", "crr"), ("ack_delay", "40ms")],
        true,
        "client.ack_delay: only for connections that stay open",
    );
    check(
        &[("ack_policy", "every"), ("gro", "on")],
        true,
        "client.gro: needs ack_policy other than \"every\"",
    );
    check(
        &[user, ("tso", "off")],
        true,
        "client.tso: offloads, routes",
    );
    check(
        &[user, ("sysctl.net.ipv4.tcp_ecn", "1")],
        true,
        "client.sysctl.net.ipv4.tcp_ecn: ",
    );
    check(
        &[user, ("comp_sack_nr", "8")],
        true,
        "client.comp_sack_nr: needs ack_policy = \"linux-like\"",
    );
    check(
        &[user, ("send_with", "splice")],
        true,
        "send_with: our TCP sends by it as by \"sendfile\"",
    );
    check(
        &[("stack", "user"), ("steering", "off")],
        false,
        "steering: ",
    );
}

#[test]
fn what_it_can_have_and_what_leaves_things_alone_is_not_told() {
    let check = |pairs: &[(&str, &str)], owned| {
        knobs(pairs)
            .available_at(HostName::CLIENT, owner(owned))
            .unwrap();
    };
    let user = ("client.stack", "user");
    check(
        &[
            ("tail_split", "keep"),
            ("pacing", "off"),
            ("window_growth", "bytes"),
        ],
        true,
    );
    check(
        &[("ack_policy", "linux-like"), ("comp_sack_nr", "8")],
        false,
    );
    check(
        &[
            ("quickack", "leave"),
            ("super_segment", "default"),
            ("bottleneck", "none"),
        ],
        false,
    );
    check(&[("server.tail_split", "split")], true);
    // Its peer, with the kernel's TCP, is steered.
    check(&[user, ("steering", "on")], false);
    // This end only receives.
    check(
        &[user, ("workload", "maerts"), ("send_with", "splice")],
        false,
    );
}

#[test]
fn the_choices_of_our_tcp_are_what_is_set_at_its_end() {
    let knobs = knobs(&[
        ("ack_policy", "avoidance"),
        ("client.ack_delay", "50ms"),
        ("server.mtu", "9000"),
        ("pacing", "default"),
    ]);
    let at = |end| {
        knobs
            .user_choices(end)
            .map(|(which, _)| which)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        at(HostName::CLIENT),
        [UserKnob::AckPolicy, UserKnob::AckDelay]
    );
    assert_eq!(at(HostName::SERVER), [UserKnob::Mtu, UserKnob::AckPolicy]);
}

#[test]
fn a_wire_joins_all_but_the_loopback_and_a_relay_by_our_tcp() {
    let delay = ("delay", "1ms");
    let reason = |pairs: &[(&str, &str)], owned| {
        let error = knobs(pairs)
            .available_at(HostName::CLIENT, owner(owned))
            .err();
        error.map(|error| error.to_string())
    };
    assert_eq!(reason(&[delay], true), None);
    for ours in ["client.stack", "server.stack", "stack"] {
        assert_eq!(reason(&[delay, (ours, "user")], true), None, "{ours}");
    }
    let refused = |pairs: &[(&str, &str)], owned| {
        let said = reason(pairs, owned).unwrap();
        assert!(
            said.starts_with("client.delay: a wire with delay and loss joins"),
            "{said}"
        );
    };
    refused(&[delay], false);
    let chain = ("topology", "chain");
    assert_eq!(reason(&[delay, chain], true), None);
    refused(&[delay, chain, ("relay_mode", "user")], true);
    // netem belongs to the kernel, and supports less.
    let netem = ("carrier", "netem");
    assert_eq!(reason(&[delay, netem], true), None);
    let said = reason(&[delay, netem, ("jitter", "1ms")], true).unwrap();
    assert!(
        said.starts_with("carrier: jitter lets packets overtake"),
        "{said}"
    );
    let said = reason(&[delay, netem, ("stack", "user")], true).unwrap();
    assert!(
        said.starts_with("carrier: netem is between two ends"),
        "{said}"
    );
}

#[test]
fn a_hosts_own_device_has_what_is_the_devices_and_nothing_that_would_stop_others() {
    let reason = |pairs: &[(&str, &str)]| {
        let available = knobs(pairs).available_at(HostName::CLIENT, DeviceOwner::Host);
        available.err().map(|error| error.reason)
    };
    for pair in [
        ("mtu", "9000B"),
        ("gro", "on"),
        ("threaded_napi", "on"),
        ("rx_ring", "512"),
        ("channels", "4"),
        ("rss_queues", "2"),
    ] {
        assert_eq!(reason(&[pair]), None, "{pair:?}");
    }
    for pair in [
        ("bottleneck", "1Gbit"),
        ("qdisc", "fq"),
        ("quickack", "on"),
        ("delay", "1ms"),
    ] {
        assert!(reason(&[pair]).is_some(), "{pair:?}");
    }
    let loopback = knobs(&[("rx_ring", "512")]);
    assert!(
        loopback
            .available_at(HostName::CLIENT, DeviceOwner::Loopback)
            .is_err()
    );
}
