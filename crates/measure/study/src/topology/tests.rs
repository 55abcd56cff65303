use super::*;
use tcpcost_knobs::DeviceOwner;

fn of(pairs: &[(&str, &str)]) -> Topology {
    Topology::of(Bed::Netns, &knobs(pairs)).unwrap()
}

fn error_of(bed: Bed, knobs: &Knobs) -> String {
    Topology::of(bed, knobs).unwrap_err().to_string()
}

fn knobs(pairs: &[(&str, &str)]) -> Knobs {
    let mut knobs = Knobs::default();
    for (name, text) in pairs {
        knobs.set(name, text).unwrap();
    }
    knobs
}

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

#[test]
fn a_pair_is_two_hosts_and_one_link() {
    let pair = of(&[]);
    let devices: Vec<&str> = pair
        .names()
        .flat_map(|host| pair.ports(host))
        .map(|(_, port, _)| port.device.as_str())
        .collect();
    assert_eq!(devices, ["tc-client", "tc-server"]);
    assert_eq!(pair.side(HostName::CLIENT), Some(Side::Connects));
    assert_eq!(pair.side(HostName::SERVER), Some(Side::Listens));
    assert!(pair.routes(HostName::CLIENT).is_empty());
    let address = pair.address_of(HostName::SERVER, HostName::CLIENT);
    assert_eq!(address, Some([10, 0, 0, 2].into()));
}

#[test]
fn in_a_star_each_client_has_a_link_to_the_server() {
    let star = of(&[("topology", "star"), ("clients", "3"), ("ip", "v6")]);
    let server: Vec<String> = star
        .ports(HostName::SERVER)
        .map(|(_, port, far)| format!("{} {} {}", port.device, port.address, far.device))
        .collect();
    assert_eq!(
        server,
        [
            "tc-client1 fd00::2 tc-client1",
            "tc-client2 fd00:0:0:1::2 tc-client2",
            "tc-client3 fd00:0:0:2::2 tc-client3",
        ]
    );
    assert_eq!(star.times(HostName::SERVER), 3);
    assert_eq!(star.times(name("client2")), 1);
    assert_eq!(star.members(name("clients")).len(), 3);
    assert_eq!(star.members(name("client2")), [name("client2")]);
    assert!(star.members(HostName::RELAY).is_empty());
    let address = star.address_of(HostName::SERVER, name("client3"));
    assert_eq!(address.unwrap().to_string(), "fd00:0:0:2::2");
}

#[test]
fn a_wire_with_delay_is_each_link_of_a_star_and_of_a_chain() {
    let kinds = |set: &[(&str, &str)]| {
        let links = of(set).links;
        links.iter().map(|link| link.kind).collect::<Vec<_>>()
    };
    let star = ("topology", "star");
    assert_eq!(
        kinds(&[star, ("clients", "2"), ("delay", "1ms")]),
        [LinkKind::Wire; 2]
    );
    assert_eq!(
        kinds(&[star, ("clients", "2"), ("client2.loss", "1%")]),
        [LinkKind::Wire; 2]
    );
    let chain = ("topology", "chain");
    assert_eq!(kinds(&[chain, ("relay.delay", "1ms")]), [LinkKind::Wire; 2]);
    assert_eq!(kinds(&[chain]), [LinkKind::Veth; 2]);
    let ours = knobs(&[chain, ("relay_mode", "user"), ("delay", "1ms")]);
    let refused = ours
        .available_at(HostName::CLIENT, DeviceOwner::Bed)
        .unwrap_err();
    assert!(
        refused.reason.contains("a relay by our own TCP"),
        "{refused:?}"
    );
}

#[test]
fn a_relay_by_our_tcp_has_a_tap_to_each_side_and_knobs_of_our_tcp() {
    let set = [("topology", "chain"), ("relay_mode", "user")];
    let chain = of(&set);
    let kinds: Vec<LinkKind> = chain.links.iter().map(|link| link.kind).collect();
    assert_eq!(kinds, [LinkKind::Tap; 2]);
    let stacks: Vec<StackKind> = chain.hosts.iter().map(|host| host.stack).collect();
    assert_eq!(
        stacks,
        [StackKind::Kernel, StackKind::User, StackKind::Kernel]
    );
    assert_eq!(chain.relays, [HostName::RELAY]);
    let knobs = knobs(&[set[0], set[1], ("relay.ack_policy", "on-read")]);
    assert_eq!(
        knobs.available_at(HostName::RELAY, DeviceOwner::Loopback),
        Ok(())
    );
    assert_eq!(
        error_of(Bed::Netns, &self::knobs(&[set[0], ("relay.stack", "user")])),
        "relay.stack: the host in the middle has our TCP by relay_mode = \"user\""
    );
}

#[test]
fn in_a_chain_the_ends_reach_each_other_through_the_middle() {
    let chain = of(&[("topology", "chain")]);
    let route = |host, to: [u8; 4], via: [u8; 4]| {
        let expected = Route {
            to: to.into(),
            prefix: 30,
            via: via.into(),
        };
        assert_eq!(chain.routes(host), [expected]);
    };
    route(HostName::CLIENT, [10, 0, 1, 0], [10, 0, 0, 2]);
    route(HostName::SERVER, [10, 0, 0, 0], [10, 0, 1, 1]);
    assert!(chain.routes(HostName::RELAY).is_empty());
    assert!(chain.forwards(HostName::RELAY));
    assert_eq!(chain.side(HostName::RELAY), None);
    let address = chain.address_of(HostName::SERVER, HostName::CLIENT);
    assert_eq!(address, Some([10, 0, 1, 2].into()));
}

#[test]
fn what_no_host_can_have_is_told() {
    let error = |pairs| error_of(Bed::Netns, &knobs(pairs));
    let unknown = error(&[("relay.mtu", "1500B")]);
    assert_eq!(
        unknown,
        "relay.mtu: no host is called relay here; there are client, server"
    );
    let both = error(&[
        ("placement", "same-cpu"),
        ("client.cpus", "[0]"),
        ("server.cpus", "[1]"),
    ]);
    assert!(both.starts_with("placement: "), "{both}");
    let knobs = knobs(&[("topology", "chain")]);
    assert_eq!(
        error_of(Bed::Loopback, &knobs),
        "topology: chain is of the netns bed, not of loopback"
    );
}

#[test]
fn one_thread_has_two_ends_of_one_process_and_of_one_tcp() {
    let of = |bed, pairs| Topology::of(bed, &knobs(pairs)).unwrap().takes_turns();
    assert_eq!(of(Bed::Netns, &[]), Ok(()));
    assert_eq!(of(Bed::Loopback, &[]), Ok(()));
    let ours = [("client.stack", "user"), ("server.stack", "user")];
    assert_eq!(of(Bed::Memory, &ours), Ok(()));
    for (bed, pairs) in [
        (Bed::Netns, &[("topology", "chain")][..]),
        (Bed::Netns, &[("topology", "star"), ("clients", "3")]),
        (Bed::Netns, &[("delay", "1ms")]),
        (Bed::Netns, &[("client.cpus", "[0, 1]")]),
        (Bed::Tap, &[("server.stack", "user")]),
    ] {
        assert!(of(bed, pairs).is_err(), "{pairs:?}");
    }
}
