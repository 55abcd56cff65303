//! A transfer in memory by smoltcp, for bench/stacks: `stacks-smoltcp segments|segments-summed|units
//! SEGMENTS`. Two interfaces of IP packets, half a megabyte of buffer at each end, 64 KiB at a call of
//! the application, packets' memory used again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

/// Packets on their way, and memory for more.
#[derive(Default)]
struct Wire {
    packets: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

type Shared = Rc<RefCell<Wire>>;

struct End {
    arriving: Shared,
    leaving: Shared,
    mtu: usize,
    summed: bool,
}

impl Device for End {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Leaving;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving)> {
        let packet = self.arriving.borrow_mut().packets.pop_front()?;
        Some((
            Arrived(packet, self.arriving.clone()),
            Leaving(self.leaving.clone()),
        ))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving> {
        let room = self.leaving.borrow().packets.len() < PACKETS;
        room.then(|| Leaving(self.leaving.clone()))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        if !self.summed {
            let mut none = ChecksumCapabilities::ignored();
            // As the others: the header of IP always has one.
            none.ipv4 = Checksum::Both;
            capabilities.checksum = none;
        }
        capabilities
    }
}

struct Arrived(Vec<u8>, Shared);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(&self.0);
        self.1.borrow_mut().spare.push(self.0);
        result
    }
}

struct Leaving(Shared);

impl TxToken for Leaving {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut packet = self.0.borrow_mut().spare.pop().unwrap_or_default();
        // What is longer keeps its bytes: nothing is written twice.
        packet.resize(len, 0);
        let result = fill(&mut packet);
        self.0.borrow_mut().packets.push_back(packet);
        result
    }
}

struct Host {
    end: End,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Host {
    fn new(mut end: End, address: [u8; 4]) -> Self {
        let mut interface =
            Interface::new(Config::new(HardwareAddress::Ip), &mut end, Instant::ZERO);
        interface.update_ip_addrs(|all| {
            let own = IpCidr::new(
                IpAddress::v4(address[0], address[1], address[2], address[3]),
                24,
            );
            all.push(own).expect("there is room for one");
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self {
            end,
            interface,
            sockets,
            socket,
        }
    }

    fn poll(&mut self, now: Instant) {
        self.interface.poll(now, &mut self.end, &mut self.sockets);
    }

    fn tcp(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (mtu, summed) = match arguments.get(1).map(String::as_str) {
        Some("segments") => (1500, false),
        Some("segments-summed") => (1500, true),
        Some("units") => (65_535, false),
        _ => panic!("usage: stacks-smoltcp segments|segments-summed|units SEGMENTS"),
    };
    let segments: usize = arguments
        .get(2)
        .and_then(|text| text.parse().ok())
        .expect("a number of segments");
    let bytes = segments * 1448;
    let (there, back) = (Shared::default(), Shared::default());
    let end = |arriving: &Shared, leaving: &Shared| End {
        arriving: arriving.clone(),
        leaving: leaving.clone(),
        mtu,
        summed,
    };
    let mut client = Host::new(end(&back, &there), [10, 0, 0, 1]);
    let mut server = Host::new(end(&there, &back), [10, 0, 0, 2]);
    server.tcp().listen(80).expect("it is fresh");
    let (socket, interface) = (client.socket, &mut client.interface);
    let to = (IpAddress::v4(10, 0, 0, 2), 80);
    client
        .sockets
        .get_mut::<Socket>(socket)
        .connect(interface.context(), to, 40_000)
        .expect("it is fresh");
    let (source, mut sink) = (vec![7; 65_536], vec![0; 65_536]);
    let (mut written, mut read, mut us) = (0, 0, 0);
    while read < bytes {
        us += 50;
        let now = Instant::from_micros(us);
        while written < bytes && client.tcp().can_send() {
            let left = (bytes - written).min(source.len());
            written += client
                .tcp()
                .send_slice(&source[..left])
                .expect("it is open");
        }
        client.poll(now);
        server.poll(now);
        while server.tcp().can_recv() {
            read += server.tcp().recv_slice(&mut sink).expect("it is open");
        }
        server.poll(now);
    }
}

const BUFFER: usize = 512 << 10;
/// More than a window has.
const PACKETS: usize = 1024;
