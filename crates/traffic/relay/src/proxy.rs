//! The PROXY protocol, versions 1 and 2 (haproxy's doc/proxy-protocol.txt): a header before the
//! first byte that names the client, for servers that would otherwise see the relay's address.
//!
//! Fields after the addresses (TLVs) are skipped, not passed on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of the header that is written. Both versions are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Both ends of a connection, as the writer of the header saw them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Address of the client.
    pub source: SocketAddr,
    /// Address that the client connected to.
    pub destination: SocketAddr,
}

/// Result of parsing the bytes that arrived so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// A header.
    Header {
        /// Bytes of the whole header, up to 65,551 in version 2. Fields after the addresses may not
        /// have arrived yet.
        length: usize,
        /// Ends of the connection. `None` if the sender speaks for itself (LOCAL), or does not say
        /// (UNKNOWN).
        ends: Option<Ends>,
    },
    /// No header.
    Malformed,
}

/// Parses a header of either version at the beginning of `bytes`; at most 107 bytes are looked at.
pub fn parse(bytes: &[u8]) -> Parsed {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, other)| byte == other);
    if begins(SIGNATURE) && !bytes.is_empty() {
        parse_v2(bytes)
    } else if begins(b"PROXY ") {
        parse_v1(bytes)
    } else {
        Parsed::Malformed
    }
}

fn parse_v1(bytes: &[u8]) -> Parsed {
    let line = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = line.windows(2).position(|two| two == b"\r\n") else {
        return match bytes.len() < V1_MAX {
            true => Parsed::Incomplete,
            false => Parsed::Malformed,
        };
    };
    let length = end + 2;
    let Ok(line) = str::from_utf8(&line[..end]) else {
        return Parsed::Malformed;
    };
    let mut words = line.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Parsed::Header { length, ends: None };
    }
    let mut ends = || {
        let mut ip = || words.next()?.parse::<IpAddr>().ok();
        let (source, destination) = (ip()?, ip()?);
        let mut port = || port_of_text(words.next()?);
        let (from, to) = (port()?, port()?);
        let is_v4 = match family? {
            "TCP4" => true,
            "TCP6" => false,
            _ => return None,
        };
        let fits = |ip: IpAddr| ip.is_ipv4() == is_v4;
        (fits(source) && fits(destination) && words.next().is_none()).then_some(Ends {
            source: (source, from).into(),
            destination: (destination, to).into(),
        })
    };
    match ends() {
        Some(ends) => Parsed::Header {
            length,
            ends: Some(ends),
        },
        None => Parsed::Malformed,
    }
}

/// Parses a port: digits alone, and no leading zero (section 2.1 of the specification).
fn port_of_text(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_decimal && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

fn parse_v2(bytes: &[u8]) -> Parsed {
    let Some((head, rest)) = bytes.split_at_checked(V2_HEAD) else {
        return Parsed::Incomplete;
    };
    let (version, family) = (head[12], head[13]);
    let told_bytes = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if version & 0xf0 != 0x20 || version & 0x0f > 1 {
        return Parsed::Malformed;
    }
    let length = V2_HEAD + told_bytes;
    let addresses_bytes = match (version & 0x0f, family) {
        (1, V2_TCP4) => 12,
        (1, V2_TCP6) => 36,
        // LOCAL, or an unknown family, which the specification says to skip.
        _ => return Parsed::Header { length, ends: None },
    };
    if told_bytes < addresses_bytes {
        return Parsed::Malformed;
    }
    let Some(told) = rest.get(..addresses_bytes) else {
        return Parsed::Incomplete;
    };
    let port = |at: usize| Some(u16::from_be_bytes(told.get(at..at + 2)?.try_into().ok()?));
    let v4 = |at: usize| {
        let octets: [u8; 4] = told.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(octets)))
    };
    let v6 = |at: usize| {
        let octets: [u8; 16] = told.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(octets)))
    };
    let ends = |source: Option<IpAddr>, destination: Option<IpAddr>, ports: usize| {
        Some(Ends {
            source: (source?, port(ports)?).into(),
            destination: (destination?, port(ports + 2)?).into(),
        })
    };
    let ends = match family {
        V2_TCP4 => ends(v4(0), v4(4), 8),
        _ => ends(v6(0), v6(16), 32),
    };
    Parsed::Header { length, ends }
}

/// Writes a header. Without ends, or with ends of two families, the header says UNKNOWN.
pub fn header(version: ProxyVersion, ends: Option<Ends>) -> Vec<u8> {
    let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    let pair = ends.map(|ends| (canonical(ends.source), canonical(ends.destination)));
    let same = pair.filter(|(source, destination)| source.0.is_ipv4() == destination.0.is_ipv4());
    match version {
        ProxyVersion::V1 => match same {
            None => b"PROXY UNKNOWN\r\n".to_vec(),
            Some(((source, from), (destination, to))) => {
                let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                format!("PROXY {family} {source} {destination} {from} {to}\r\n").into_bytes()
            }
        },
        ProxyVersion::V2 => {
            let mut header = SIGNATURE.to_vec();
            let mut told = Vec::new();
            let family = match same {
                None => 0x00,
                Some(((source, from), (destination, to))) => {
                    for ip in [source, destination] {
                        match ip {
                            IpAddr::V4(ip) => told.extend(ip.octets()),
                            IpAddr::V6(ip) => told.extend(ip.octets()),
                        }
                    }
                    told.extend(from.to_be_bytes());
                    told.extend(to.to_be_bytes());
                    if source.is_ipv4() { V2_TCP4 } else { V2_TCP6 }
                }
            };
            // Command PROXY; LOCAL is for the relay's own connections.
            header.extend([0x21, family, 0, told.len() as u8]);
            header.extend(told);
            header
        }
    }
}

/// Limit of the bytes that [`parse`] needs at once: a line of version 1 (version 2 needs fewer).
pub const SEEN_MAX: usize = V1_MAX;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V1_MAX: usize = 107;
const V2_HEAD: usize = 16;
const V2_TCP4: u8 = 0x11;
const V2_TCP6: u8 = 0x21;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(source: &str, destination: &str) -> Option<Ends> {
        Some(Ends {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        })
    }

    #[test]
    fn what_is_written_is_read_and_every_part_of_it_is_incomplete() {
        let pairs = [
            ends("192.0.2.1:1000", "198.51.100.1:443"),
            ends("[2001:db8::1]:1", "[2001:db8::2]:65535"),
            None,
        ];
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            for pair in pairs {
                let mut bytes = header(version, pair);
                let length = bytes.len();
                for part in 0..length {
                    assert_eq!(parse(&bytes[..part]), Parsed::Incomplete, "{part}");
                }
                bytes.extend(b"data");
                assert_eq!(parse(&bytes), Parsed::Header { length, ends: pair });
            }
        }
    }

    #[test]
    fn mixed_families_are_unknown_and_mapped_addresses_are_ipv4() {
        let mapped = ends("[::ffff:192.0.2.1]:1", "198.51.100.1:2");
        assert_eq!(
            header(ProxyVersion::V1, mapped),
            b"PROXY TCP4 192.0.2.1 198.51.100.1 1 2\r\n"
        );
        let mixed = ends("[2001:db8::1]:1", "198.51.100.1:2");
        assert_eq!(header(ProxyVersion::V1, mixed), b"PROXY UNKNOWN\r\n");
    }

    #[test]
    fn what_is_no_header_is_told_at_once() {
        let long = [b"PROXY TCP4 ".to_vec(), vec![b'1'; 200]].concat();
        let cases: [&[u8]; 14] = [
            b"GET / HTTP/1.1\r\n",
            b"PROXY TCP4 1.2.3.4 ::1 1 2\r\n",
            b"PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 0111 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 +22\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 00\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 -0\r\n",
            b"PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0b",
            b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            &long,
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        ];
        for bytes in cases {
            assert_eq!(parse(bytes), Parsed::Malformed, "{bytes:?}");
        }
    }

    #[test]
    fn the_addresses_are_enough_whatever_comes_after_them() {
        let pair = ends("[2001:db8::1]:1", "[2001:db8::2]:65535");
        let mut bytes = header(ProxyVersion::V2, pair);
        bytes[14..16].copy_from_slice(&[0xff, 0xff]);
        let length = V2_HEAD + 65_535;
        assert!(bytes.len() <= SEEN_MAX);
        assert_eq!(parse(&bytes), Parsed::Header { length, ends: pair });
        bytes.pop();
        assert_eq!(parse(&bytes), Parsed::Incomplete);
        // Command LOCAL.
        bytes[12] = 0x20;
        assert_eq!(parse(&bytes), Parsed::Header { length, ends: None });
        let zero = b"PROXY TCP4 1.2.3.4 1.2.3.4 0 65535\r\n";
        assert!(matches!(parse(zero), Parsed::Header { ends: Some(_), .. }));
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(mut bytes: Vec<u8>, signed: bool, told: Vec<u8>) {
            if signed {
                bytes = [SIGNATURE, &bytes, &told].concat();
            }
            let seen = &bytes[..bytes.len().min(SEEN_MAX)];
            prop_assert_eq!(parse(&bytes), parse(seen), "more was looked at");
        }
    }
}
