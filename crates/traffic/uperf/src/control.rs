//! Control connections of a master, and listeners of either end.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::Failure;
use crate::order::{Group, Kind};
use crate::strand::{Strand, apply};
use crate::wire::{self, Command, Goodbye, Hello};

/// Limit on a connect, and on an answer of a slave.
const PATIENCE: Duration = Duration::from_secs(20);
/// Limit on the last message of a slave (uperf's).
const GOODBYE: Duration = Duration::from_secs(15);

/// Control connection to a slave, for one group.
pub struct Slave {
    /// Number of the group.
    pub group: usize,
    pub host: String,
    pub stream: TcpStream,
    /// True if the slave waits for threads that are late for a transaction.
    pub waits: bool,
}

/// Connects to the slave of each group and host.
pub fn connect(groups: &[Group], port: u16) -> Result<Vec<Slave>, Failure> {
    let mut slaves = Vec::new();
    for (group, hosts) in groups.iter().map(Group::hosts).enumerate() {
        for host in hosts {
            let failed = |error: io::Error| {
                Failure(format!(
                    "Error connecting to {host}: {error}: is there a slave (uperf -s) at port {port}? Without one: tcpcost run PROFILE"
                ))
            };
            let addresses = (host.as_str(), port).to_socket_addrs().map_err(failed)?;
            let tried = addresses.map(|address| TcpStream::connect_timeout(&address, PATIENCE));
            let stream = tried.reduce(|first, next| first.or(next));
            let stream = stream.unwrap_or(Err(io::ErrorKind::NotFound.into()));
            let stream = stream.map_err(failed)?;
            let set = stream.set_read_timeout(Some(PATIENCE));
            set.and_then(|()| stream.set_nodelay(true))
                .map_err(failed)?;
            slaves.push(Slave {
                group,
                host,
                stream,
                waits: false,
            });
        }
    }
    Ok(slaves)
}

/// Listeners of a group's threads, and their ports. Empty if no thread accepts.
pub fn listeners(
    group: &Group,
    local: SocketAddr,
) -> io::Result<(Vec<Arc<TcpListener>>, Vec<u16>)> {
    let Some(accept) = group.flowops().find(|flowop| flowop.kind == Kind::Accept) else {
        return Ok((Vec::new(), Vec::new()));
    };
    let mut listeners = Vec::new();
    let listen = || -> io::Result<Arc<TcpListener>> {
        let address = SocketAddr::new(local.ip(), accept.port);
        let listener = TcpListener::bind(address)?;
        // Before the first connection, because it sets the window's scale.
        apply(listener.as_fd(), accept)?;
        listener.set_nonblocking(true)?;
        Ok(Arc::new(listener))
    };
    for _ in 0..group.threads {
        // A port that the profile names is that of all threads.
        let shared = listeners.first().filter(|_| accept.port != 0).cloned();
        listeners.push(shared.map_or_else(listen, Ok)?);
    }
    let ports = listeners
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()));
    let ports = ports.collect::<io::Result<Vec<u16>>>()?;
    Ok((listeners, ports))
}

impl Slave {
    fn failed(&self, error: &io::Error) -> Failure {
        Failure(format!(
            "Error while handshaking with {}: {error}",
            self.host
        ))
    }

    /// Says which protocols are used. Fails unless the slave agrees.
    pub fn greet(&mut self) -> Result<(), Failure> {
        let hello = Hello {
            phase: 1,
            protocols: std::array::from_fn(|number| u32::from(number == wire::TCP)),
            ..Hello::default()
        };
        let said = hello.send(&mut self.stream);
        match said.and_then(|()| wire::receive_welcome(&mut self.stream)) {
            Ok(Ok(waits)) => {
                self.waits = waits;
                Ok(())
            }
            Ok(Err(why)) => Err(Failure(format!("{} says: {why}", self.host))),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Sends a group, and exchanges the ports of both ends.
    pub fn place(&mut self, group: &Group, strands: &mut [Strand]) -> Result<(), Failure> {
        let peer = self
            .stream
            .peer_addr()
            .map_err(|error| self.failed(&error))?;
        let local = self
            .stream
            .local_addr()
            .map_err(|error| self.failed(&error))?;
        let (listeners, ports) = listeners(group, local).map_err(|error| self.failed(&error))?;
        let hello = Hello {
            phase: 2,
            ports: u32::try_from(ports.len()).unwrap_or(u32::MAX),
            ..Hello::default()
        };
        for (strand, listener) in strands.iter_mut().zip(listeners) {
            strand.listener = Some((listener, peer.ip()));
        }
        let stream = &mut self.stream;
        let said = hello
            .send(stream)
            .and_then(|()| wire::send_group(stream, &group.opposite(&self.host)))
            .and_then(|()| wire::send_ports(stream, &ports))
            .and_then(|()| wire::receive_group_ack(stream));
        let count = match said {
            Ok(Ok(count)) => count,
            Ok(Err(why)) => return Err(Failure(format!("{} says: {why}", self.host))),
            Err(error) => return Err(self.failed(&error)),
        };
        let theirs = wire::receive_ports(&mut self.stream, count.min(group.threads));
        let theirs = theirs.map_err(|error| self.failed(&error))?;
        for (strand, port) in strands.iter_mut().zip(theirs) {
            strand.ports.insert(self.host.clone(), port);
        }
        Ok(())
    }

    /// True if there is a message or the end of the connection, which there is only after an error.
    pub fn has_spoken(&self) -> bool {
        let set = self.stream.set_nonblocking(true);
        let peeked = set.and_then(|()| self.stream.peek(&mut [0]));
        let _ = self.stream.set_nonblocking(false);
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Asks for the slave's results.
    pub fn goodbye(&mut self) -> io::Result<Goodbye> {
        self.stream.set_read_timeout(Some(GOODBYE))?;
        Command::SendStats.send(&mut self.stream)?;
        Goodbye::receive(&mut self.stream)
    }
}
