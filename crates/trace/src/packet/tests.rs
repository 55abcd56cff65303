use super::*;

/// IPv4 and TCP headers with these options before a payload of `payload` bytes.
fn ipv4_tcp(options: &[u8], payload: u16) -> Vec<u8> {
    let header = 20 + options.len();
    let total = (20 + header) as u16 + payload;
    let mut ip = vec![0x45, 0];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    ip.extend([
        0x30,
        0x39,
        0,
        80,
        0,
        0,
        0,
        5,
        0,
        0,
        0,
        9,
        (header as u8 / 4) << 4,
        0x18,
        1,
        0,
        0,
        0,
        0,
        0,
    ]);
    ip.extend(options);
    ip
}

fn read(link: Link, frame: &[u8]) -> (Option<Segment>, Skipped) {
    let mut skipped = Skipped::default();
    let wire = frame.len() as u32 + 1000;
    (segment(link, frame, wire, 1, &mut skipped), skipped)
}

fn framed(before: &[u8], ip: &[u8]) -> Vec<u8> {
    [before, ip].concat()
}

#[test]
fn every_link_type_leads_to_the_same_segment() {
    let ip = ipv4_tcp(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], 1000);
    let (expected, _) = read(Link::Raw, &ip);
    let segment = expected.unwrap();
    assert_eq!((segment.payload, segment.ip_octets), (1000, 1052));
    assert_eq!(segment.options.timestamps, Some((1, 2)));
    assert_eq!((segment.source.port, segment.destination.port), (12345, 80));
    let ether = [0; 12];
    for (link, before) in [
        (Link::Ethernet, [&ether[..], &[8, 0]].concat()),
        (
            Link::Ethernet,
            [&ether[..], &[0x81, 0, 0, 5, 8, 0]].concat(),
        ),
        (
            Link::Ethernet,
            [&ether[..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat(),
        ),
        (Link::Null, vec![2, 0, 0, 0]),
        // Packet type neither in nor out: broadcast.
        (Link::Cooked1, [&[0, 1][..], &[0; 12], &[8, 0]].concat()),
        (Link::Cooked2, [&[8, 0][..], &[0; 18]].concat()),
        (
            Link::Ethernet,
            [&ether[..], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]].concat(),
        ),
        (
            Link::Ethernet,
            [&ether[..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 99, 0, 0x21]].concat(),
        ),
        (
            Link::Ethernet,
            [&ether[..], &[0x89, 3, 0, 1], &ether, &[8, 0]].concat(),
        ),
        (
            Link::Fddi,
            [&[0x54][..], &ether, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
        ),
        (
            Link::Ethernet,
            [&ether[..], &[0, 99, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
        ),
        (Link::Ppp, vec![0xff, 3, 0, 0x21]),
        (Link::Ppp, vec![0x21]),
        (
            Link::Wireless,
            [&[0x88, 1][..], &[0; 24], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
        ),
        (
            Link::Radiotap,
            [
                &[0, 0, 8, 0, 0, 0, 0, 0, 8, 2][..],
                &[0; 22],
                &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
            ]
            .concat(),
        ),
        (
            Link::NetfilterLog,
            vec![2, 0, 0, 0, 8, 0, 1, 0, 0, 8, 1, 0, 0x30, 4, 9, 0],
        ),
        (Link::InfiniBand, [&[0; 40][..], &[8, 0, 0, 0]].concat()),
        (Link::InfiniBand, vec![8, 0, 0, 0]),
    ] {
        let (found, skipped) = read(link, &framed(&before, &ip));
        assert_eq!((found, skipped.total()), (expected, 0), "{link:?}");
    }
}

#[test]
fn tunnels_are_looked_into_and_named() {
    let ip = ipv4_tcp(&[], 1000);
    let plain = read(Link::Raw, &ip).0.unwrap();
    let ethernet = [&[0; 12][..], &[8, 0]].concat();
    let udp = |port: u16, rest: &[u8]| [&[9, 9][..], &port.to_be_bytes(), &[0; 4], rest].concat();
    let vxlan = udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet].concat());
    let geneve = udp(
        6081,
        &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 9, 9, 9, 0][..], &ethernet].concat(),
    );
    let gtp = udp(
        2152,
        &[0x34, 255, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0],
    );
    let erspan = [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1][..], &[0; 8], &ethernet].concat();
    for (tunnel, protocol, between) in [
        (Tunnel::Ipip, 4, vec![]),
        (Tunnel::Gre, 47, vec![0x20, 0, 8, 0, 0, 0, 0, 7]),
        (
            Tunnel::Gre,
            47,
            [&[0, 0, 0x65, 0x58][..], &ethernet].concat(),
        ),
        (
            Tunnel::Gre,
            47,
            vec![
                0x30, 0x81, 0x88, 0x0b, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x21,
            ],
        ),
        (Tunnel::Erspan, 47, erspan),
        (Tunnel::Vxlan, 17, vxlan),
        (Tunnel::Geneve, 17, geneve),
        (Tunnel::GtpU, 17, gtp),
    ] {
        let mut outer = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        outer.extend([192, 168, 0, 1, 192, 168, 0, 2]);
        outer.extend(&between);
        outer.extend(&ip);
        let length = outer.len() as u16 + 1000;
        outer[2..4].copy_from_slice(&length.to_be_bytes());
        let (found, skipped) = read(Link::Raw, &outer);
        let named = Segment {
            tunnel: Some(tunnel),
            ..plain
        };
        assert_eq!((found, skipped.total()), (Some(named), 0), "{tunnel:?}");
    }
    // IPv6 in IPv4, and an authentication header in IPv4.
    let mut six = vec![0x60, 0, 0, 0, 0, 20 + 50, 6, 64];
    six.extend([0; 32]);
    six.extend(&ip[20..]);
    let mut outer = ipv4_tcp(&[], 0)[..20].to_vec();
    outer[9] = 41;
    let found = read(Link::Raw, &framed(&outer, &six)).0.unwrap();
    assert_eq!((found.payload, found.tunnel), (50, Some(Tunnel::SixInFour)));
    let mut authenticated = ip[..20].to_vec();
    authenticated[9] = 51;
    authenticated.extend([6, 4]);
    authenticated.extend([0; 22]);
    authenticated.extend(&ip[20..]);
    let length = 20 + 24 + 20 + 1000u16;
    authenticated[2..4].copy_from_slice(&length.to_be_bytes());
    let found = read(Link::Raw, &authenticated).0.unwrap();
    assert_eq!(
        (found.payload, found.tunnel),
        (1000, Some(Tunnel::AuthenticationHeader))
    );
}

#[test]
fn extension_headers_are_passed_over_and_fragments_counted() {
    let tcp = &ipv4_tcp(&[], 0)[20..];
    let mut ip = vec![0x60, 0, 0, 0, 0, 8 + 8 + 20 + 50, 0, 64];
    ip.extend([0; 32]);
    ip.extend([44, 0, 0, 0, 0, 0, 0, 0]);
    ip.extend([6, 0, 0, 0, 0, 0, 0, 9]);
    let cut = ip.len();
    ip.extend(tcp);
    assert_eq!(read(Link::Raw, &ip).0.unwrap().payload, 50);
    ip[cut - 5] = 1;
    assert_eq!(read(Link::Raw, &ip).1.fragments, 1);
}

#[test]
fn the_first_fragment_of_a_tunnels_packet_tells_what_is_within_and_others_do_not() {
    let inner = ipv4_tcp(&[], 1400);
    let mut outer = vec![0x45, 0, 5, 0xdc, 0, 9, 0x20, 0, 64, 4, 0, 0];
    outer.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    let segment = read(Link::Raw, &framed(&outer, &inner)).0.unwrap();
    assert_eq!(
        (segment.payload, segment.tunnel),
        (1400, Some(Tunnel::Ipip))
    );
    // The second fragment begins in the middle of the packet, whatever its bytes look like.
    outer[7] = 0xb9;
    assert_eq!(read(Link::Raw, &framed(&outer, &inner)).0, None);
    // A fragment of TCP itself is skipped: the length of its payload is unknown.
    outer[7] = 0;
    outer[9] = 6;
    let (none, skipped) = read(Link::Raw, &framed(&outer, &inner[20..]));
    assert_eq!((none, skipped.fragments), (None, 1));

    let mut outer = vec![0x60, 0, 0, 0, 5, 0xdc, 44, 64];
    outer.extend([0; 32]);
    outer.extend([4, 0, 0, 1, 0, 0, 0, 9]);
    let segment = read(Link::Raw, &framed(&outer, &inner)).0.unwrap();
    assert_eq!(
        (segment.payload, segment.tunnel),
        (1400, Some(Tunnel::Ipip))
    );
    outer[43] = 0xb9;
    let (none, skipped) = read(Link::Raw, &framed(&outer, &inner));
    assert_eq!((none, skipped.fragments), (None, 1));
}

#[test]
fn a_snap_length_that_cuts_the_options_is_noticed_and_one_that_cuts_headers_skips() {
    let ip = ipv4_tcp(&[2, 4, 5, 180, 1, 3, 3, 7], 0);
    assert!(read(Link::Raw, &ip).0.unwrap().options.complete);
    let cut = read(Link::Raw, &ip[..44]).0.unwrap();
    assert!(!cut.options.complete);
    let (none, skipped) = read(Link::Raw, &ip[..39]);
    assert_eq!((none, skipped.headers_cut), (None, 1));
}

#[test]
fn a_length_field_of_zero_means_the_length_on_the_wire() {
    // BIG TCP: a super-segment of 190 wire segments, cut by a snap length of 96 to its headers.
    const PAYLOAD: u32 = 190 * 1448;
    let big = |link, frame: &[u8], headers: u32| {
        let mut skipped = Skipped::default();
        let wire = frame.len() as u32 + PAYLOAD;
        let segment = segment(link, frame, wire, 1, &mut skipped).unwrap();
        assert_eq!((segment.payload, skipped.total()), (PAYLOAD, 0));
        assert_eq!(segment.ip_octets, headers + PAYLOAD);
    };
    let mut ip = ipv4_tcp(&[], 0);
    ip[2..4].fill(0);
    big(Link::Raw, &ip, 40);
    let vlan = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 5, 8, 0];
    big(Link::Ethernet, &framed(&vlan, &ip), 40);
    // IPv6, with the jumbo payload option (RFC 2675), and without it, as newer kernels send.
    let tcp = &ip[20..];
    let mut jumbo = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    jumbo.extend([0; 32]);
    let mut bare = jumbo.clone();
    jumbo.extend([6, 0, 0xc2, 4]);
    jumbo.extend((PAYLOAD + 28).to_be_bytes());
    bare[6] = 6;
    big(Link::Raw, &framed(&jumbo, tcp), 68);
    big(Link::Raw, &framed(&bare, tcp), 60);
}
