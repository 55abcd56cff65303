//! The server's part of SOCKS 5 (RFC 1928) up to the address: CONNECT without authentication.
//!
//! Not here: BIND, UDP ASSOCIATE, SOCKS 4, passwords. Names are resolved on this side.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use tcpcost_tcp::Ended;
use tcpcost_tcp::wire::Unreachable;

/// Reads what a client says until it has said where to; answers all but that.
///
/// # Errors
/// Of the stream; a client that speaks something else, or asks for what there is not: it was told.
pub fn destination(
    stream: &mut (impl Read + Write),
    fits: impl Fn(&SocketAddr) -> bool,
) -> io::Result<SocketAddr> {
    let [version, methods] = read(stream)?;
    if version != VERSION {
        return Err(refused("not SOCKS 5"));
    }
    let mut offered = vec![0; methods.into()];
    stream.read_exact(&mut offered)?;
    if !offered.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_METHOD])?;
        return Err(refused("no method of authentication that there is"));
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION])?;
    let [version, command, _, kind] = read(stream)?;
    if version != VERSION {
        return Err(refused("not SOCKS 5"));
    }
    let name = match kind {
        IPV4 => IpAddr::from(Ipv4Addr::from(read(stream)?)).to_string(),
        IPV6 => IpAddr::from(Ipv6Addr::from(read(stream)?)).to_string(),
        NAME => {
            let [len] = read(stream)?;
            let mut name = vec![0; len.into()];
            stream.read_exact(&mut name)?;
            String::from_utf8(name).unwrap_or_default()
        }
        _ => {
            stream.write_all(&reply(BAD_ADDRESS))?;
            return Err(refused("an unknown kind of address"));
        }
    };
    let port = u16::from_be_bytes(read(stream)?);
    if command != CONNECT {
        stream.write_all(&reply(BAD_COMMAND))?;
        return Err(refused("a command that there is not"));
    }
    let found = (name.as_str(), port).to_socket_addrs();
    match found
        .ok()
        .and_then(|mut found| found.find(|found| fits(found)))
    {
        Some(address) => Ok(address),
        None => {
            stream.write_all(&reply(HOST_UNREACHABLE))?;
            Err(refused("a host that cannot be reached"))
        }
    }
}

/// What a client hears about its connection.
pub fn outcome(outcome: Result<(), Option<Ended>>) -> Vec<u8> {
    let code = match outcome {
        Ok(()) => SUCCEEDED,
        Err(Some(Ended::Refused)) => REFUSED,
        Err(Some(Ended::Unreachable(Unreachable::Network))) => NETWORK_UNREACHABLE,
        Err(Some(Ended::Unreachable(_) | Ended::TimedOut)) => HOST_UNREACHABLE,
        Err(_) => FAILED,
    };
    reply(code).to_vec()
}

/// With an address of no meaning: clients that connect do not look at it.
fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
// Replies of RFC 1928 §6.
const SUCCEEDED: u8 = 0;
const FAILED: u8 = 1;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const BAD_COMMAND: u8 = 7;
const BAD_ADDRESS: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client says, and what it hears.
    struct Client<'a>(&'a [u8], Vec<u8>);

    impl Read for Client<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Client<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn check(says: &[u8], address: Option<&str>, hears: &[u8]) {
        let mut client = Client(says, Vec::new());
        let found = destination(&mut client, |_| true).ok();
        assert_eq!(
            found,
            address.map(|address| address.parse().unwrap()),
            "{says:?}"
        );
        assert_eq!(client.1, hears, "{says:?}");
    }

    #[test]
    fn a_client_says_where_to_by_number_or_name() {
        let greeted: &[u8] = &[5, 0];
        check(
            &[5, 2, 2, 0, 5, 1, 0, 1, 10, 0, 0, 1, 0, 80],
            Some("10.0.0.1:80"),
            greeted,
        );
        let mut six = vec![5, 1, 0, 5, 1, 0, 4];
        six.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 187]);
        check(&six, Some("[fd00::1]:443"), greeted);
        let mut name = vec![5, 1, 0, 5, 1, 0, 3, 9];
        name.extend(b"127.0.0.1");
        name.extend([0, 80]);
        check(&name, Some("127.0.0.1:80"), greeted);
    }

    #[test]
    fn what_there_is_not_is_refused_in_its_words() {
        check(&[4, 1, 0, 80, 10, 0, 0, 1, 0], None, &[]);
        check(&[5, 1, 2], None, &[5, 0xff]);
        let bind = [5, 1, 0, 5, 2, 0, 1, 10, 0, 0, 1, 0, 80];
        check(&bind, None, &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
        check(
            &[5, 1, 0, 5, 1, 0, 9],
            None,
            &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0],
        );
        for cut in 0..7 {
            let whole = [5, 1, 0, 5, 1, 0, 1, 10];
            let mut client = Client(&whole[..cut], Vec::new());
            assert!(destination(&mut client, |_| true).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_refused_connection_is_told_as_such() {
        assert_eq!(outcome(Ok(()))[..2], [5, 0]);
        assert_eq!(outcome(Err(Some(Ended::Refused)))[..2], [5, 5]);
        assert_eq!(outcome(Err(None))[..2], [5, 1]);
    }
}
