//! The control connection to a netserver, which may be started for the test.

use std::io::{self, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::Failure;
use crate::bed;
use crate::net::socket::{SocketOptions, data_socket};
use crate::options::{Family, Host, Options};
use crate::protocol::{Message, UNKNOWN_TEST, WRONG_PASSPHRASE, kind};
use crate::started::{Started, own_program};

/// Connection to a netserver that answers.
pub struct Control {
    stream: TcpStream,
    /// Name or address under which the user asked for it.
    pub name: String,
    is_first: bool,
    has_passphrase: bool,
    _started: Option<Started>,
}

/// Limit on the time of a connect.
const CONNECT: Duration = Duration::from_secs(20);
/// Limit on the time of an answer after the test: netperf's two minutes.
const ANSWER: Duration = Duration::from_secs(120);
/// Limit on waiting for netserver's close.
const END: Duration = Duration::from_secs(10);

impl Control {
    /// Connects, and sends the passphrase if there is one.
    ///
    /// # Errors
    /// 255: there is no such host, or no netserver answers there.
    pub fn connect(options: &Options) -> Result<Control, Failure> {
        let (name, address, started) = match &options.host {
            Host::At(name) => (name.clone(), None, None),
            Host::Ssh(host) => {
                let mut command = Command::new("ssh");
                command.arg(host).arg("tcpcost netserver -D -s -e -p 0");
                let (started, address) = start(command, &format!("ssh {host}"))?;
                (host.clone(), Some(address), Some(started))
            }
            Host::Bed => {
                let (started, address) = bed::start(options.family == Some(Family::V6))?;
                (address.ip().to_string(), Some(address), Some(started))
            }
            Host::Namespace(name, address) => {
                let mut command = within(name)?;
                command.args(["netserver", "-D", "-e", "-p", "0", "-L", address]);
                let (started, address) = start(command, &format!("netns {name}"))?;
                (address.ip().to_string(), Some(address), Some(started))
            }
        };
        let addresses = match address {
            Some(address) => vec![address],
            None => resolve(&name, options.port, options.family)?,
        };
        let stream = addresses
            .iter()
            .map(|address| connect(*address, options))
            .reduce(|first, next| first.or(next))
            .expect("there is one address at least")
            .map_err(|error| no_netserver(&name, addresses[0].port(), &error))?;
        let mut control = Control {
            stream,
            name,
            is_first: true,
            has_passphrase: options.passphrase.is_some(),
            _started: started,
        };
        if let Some(passphrase) = &options.passphrase {
            let mut message = Message::new(kind::PASSPHRASE, -1);
            let fits = passphrase.len().min(message.body.len() - 1);
            message.body[..fits].copy_from_slice(&passphrase.as_bytes()[..fits]);
            control.send(&message)?;
        }
        Ok(control)
    }

    /// Address of netserver.
    pub fn peer(&self) -> Result<SocketAddr, Failure> {
        self.stream.peer_addr().map_err(|error| self.lost(&error))
    }

    /// Socket of the connection.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        Ok(self.stream.try_clone()?.into())
    }

    /// Sends a request.
    pub fn send(&mut self, message: &Message) -> Result<(), Failure> {
        message
            .send(&mut self.stream)
            .map_err(|error| self.lost(&error))
    }

    /// Receives an answer, within two minutes and `beyond`.
    ///
    /// # Errors
    /// 255: netserver refuses, or is gone.
    pub fn answer(&mut self, beyond: Duration) -> Result<Message, Failure> {
        let mut source = InTime {
            stream: &self.stream,
            until: Instant::now() + ANSWER + beyond,
        };
        let answer = Message::receive(&mut source)
            .map_err(|error| self.lost(&error))?
            .ok_or_else(|| self.ended())?;
        self.is_first = false;
        match answer.aside {
            0 => Ok(answer),
            UNKNOWN_TEST => Err(Failure::remote(
                "netserver does not know omni tests (netperf older than 2.5, or built without)",
            )),
            WRONG_PASSPHRASE if self.has_passphrase => {
                Err(Failure::remote("netserver refuses the passphrase (-Z)"))
            }
            WRONG_PASSPHRASE => Err(Failure::remote("netserver wants a passphrase (-Z WORD)")),
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                Err(Failure::remote(format!(
                    "netserver refuses the test: {error}"
                )))
            }
        }
    }

    fn lost(&self, error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::WouldBlock => Failure::remote("netserver does not answer any more"),
            // netserver closed before it had read all: the original does so after a wrong passphrase.
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
                if self.is_first && self.has_passphrase =>
            {
                self.ended()
            }
            _ => Failure::remote(format!(
                "the control connection to netserver is lost: {error}"
            )),
        }
    }

    /// Error for a closed connection. Only the first answer may be missing because of a passphrase.
    fn ended(&self) -> Failure {
        let (when, why) = match (self.is_first, self.has_passphrase) {
            (true, false) => ("an answer", ": does it want a passphrase (-Z)?"),
            (true, true) => ("an answer", ": does it want another passphrase (-Z)?"),
            (false, _) => ("its results", ": see its log"),
        };
        Failure::remote(format!(
            "netserver ended the connection without {when}{why}"
        ))
    }

    /// Closes our direction and waits until netserver has closed, too.
    pub fn close(self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = Message::receive(&mut InTime {
            stream: &self.stream,
            until: Instant::now() + END,
        });
    }
}

/// Reads a connection until a deadline, so that a peer that sends a byte now and then cannot delay us.
struct InTime<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for InTime<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

/// Error that names what to start, and where.
fn no_netserver(name: &str, port: u16, error: &io::Error) -> Failure {
    let error = match error.kind() {
        io::ErrorKind::WouldBlock => "no answer within 20 s".to_string(),
        _ => error.to_string(),
    };
    let port_option = match port {
        12865 => String::new(),
        port => format!(" -p {port}"),
    };
    Failure::remote(format!(
        "no netserver at {name} port {port}: {error}; start one there: tcpcost netserver{port_option} -L ADDRESS, or netserver{port_option}"
    ))
}

/// Addresses of a host, of the given family.
///
/// # Errors
/// 255: there are none.
pub fn resolve(name: &str, port: u16, family: Option<Family>) -> Result<Vec<SocketAddr>, Failure> {
    let is_wanted = |address: &SocketAddr| match family {
        None => true,
        Some(Family::V4) => address.is_ipv4(),
        Some(Family::V6) => address.is_ipv6(),
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let addresses = (bare, port)
        .to_socket_addrs()
        .map_err(|error| Failure::remote(format!("{name}: {error}")))?;
    let addresses: Vec<SocketAddr> = addresses.filter(is_wanted).collect();
    match addresses.is_empty() {
        true => Err(Failure::remote(format!(
            "{name}: no address of that family"
        ))),
        false => Ok(addresses),
    }
}

/// Local address of the same family as `like`. The wildcard address if no host is given.
pub fn local_address(host: Option<&str>, port: u16, like: IpAddr) -> Result<SocketAddr, Failure> {
    let (any, family): (IpAddr, _) = match like {
        IpAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED.into(), Family::V4),
        IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED.into(), Family::V6),
    };
    match host {
        None => Ok(SocketAddr::new(any, port)),
        Some(host) => Ok(resolve(host, port, Some(family))?[0]),
    }
}

fn connect(to: SocketAddr, options: &Options) -> io::Result<TcpStream> {
    let local = local_address(options.local_host.as_deref(), options.local_port, to.ip())
        .map_err(io::Error::other)?;
    let socket = data_socket(local, &SocketOptions::default())?;
    let fd = socket.as_fd();
    set_socket_timeout(fd, Timeout::Send, Some(CONNECT))?;
    rustix::net::connect(fd, &to).map_err(|error| match error {
        // Error of a connect whose timeout has expired.
        rustix::io::Errno::INPROGRESS => io::ErrorKind::WouldBlock.into(),
        error => io::Error::from(error),
    })?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Command for tcpcost in a namespace, given by a name of ip-netns or the id of a process in it.
fn within(name: &str) -> Result<Command, Failure> {
    let path = tcpcost_host::namespace::path(name);
    if let Err(error) = std::fs::metadata(&path) {
        return Err(Failure::remote(format!(
            "network namespace {name}: {path}: {error}"
        )));
    }
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={path}"))
        .arg("--")
        .arg(own_program()?);
    Ok(command)
}

/// Starts a netserver that prints its address and ends with its input.
fn start(command: Command, what: &str) -> Result<(Started, SocketAddr), Failure> {
    let failed =
        |error: io::Error| Failure::remote(format!("start a netserver through {what}: {error}"));
    let mut started = Started::new(command).map_err(failed)?;
    let address = started.address().map_err(failed)?;
    Ok((started, address))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn bytes_of_an_answer_that_come_too_late_are_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"ab").unwrap();
        let mut source = InTime {
            stream: &stream,
            until: Instant::now() + ANSWER,
        };
        let mut byte = [0];
        assert_eq!(source.read(&mut byte).unwrap(), 1);
        source.until = Instant::now();
        let error = source.read(&mut byte).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
