use std::io::Read;
use std::net::TcpListener;

use super::*;

/// Connections from these loopback addresses, in turn.
struct Clients {
    listener: TcpListener,
    connections: Connections,
}

impl Clients {
    fn new() -> Clients {
        Clients {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            connections: Connections::default(),
        }
    }

    fn connect(&self) -> (TcpStream, Option<Place>) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        let (served, _) = self.listener.accept().unwrap();
        (client, self.connections.place(&Arc::new(served)))
    }
}

fn has_ended(client: &mut TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    matches!(client.read(&mut [0]), Ok(0))
}

#[test]
fn the_idlest_connection_of_a_network_gives_way_and_a_running_test_does_not() {
    let clients = Clients::new();
    let mut all: Vec<_> = (0..CONNECTIONS_EACH).map(|_| clients.connect()).collect();
    let (first, second) = (all[0].1.as_ref().unwrap(), all[1].1.as_ref().unwrap());
    let running = first.running().unwrap();
    second.heard();
    let (_client, place) = clients.connect();
    assert!(place.is_some());
    let ended: Vec<usize> = (0..all.len())
        .filter(|&index| has_ended(&mut all[index].0))
        .collect();
    assert_eq!(ended, [2], "the first runs, the second was heard of");
    assert!(all[2].1.as_ref().unwrap().running().is_none(), "gave way");
    drop(running);
    let (_client, place) = clients.connect();
    assert!(place.is_some());
    assert!(has_ended(&mut all[3].0));
}

#[test]
fn where_tests_run_on_all_the_new_one_is_refused() {
    let clients = Clients::new();
    let all: Vec<_> = (0..CONNECTIONS_EACH).map(|_| clients.connect()).collect();
    let running = |(_, place): &(_, Option<Place>)| place.as_ref().unwrap().running().unwrap();
    let running: Vec<Running> = all.iter().map(running).collect();
    assert!(clients.connect().1.is_none());
    drop(running);
    assert!(clients.connect().1.is_some());
}

#[test]
fn buffers_of_a_test_that_does_not_run_give_way_and_one_network_has_half() {
    let clients = Clients::new();
    let (mut waits, place) = clients.connect();
    let place = place.unwrap();
    let _buffers = place.buffers(BUFFERS_EACH).unwrap();
    let (_client, next) = clients.connect();
    let next = next.unwrap();
    assert!(next.buffers(BUFFERS_EACH + 1).is_none(), "more than half");
    assert!(!has_ended(&mut waits));
    let buffers = next.buffers(1).unwrap();
    assert!(has_ended(&mut waits));
    let _running = next.running().unwrap();
    let (_client, last) = clients.connect();
    let last = last.unwrap();
    assert!(last.buffers(BUFFERS_EACH).is_none(), "of a running test");
    drop(buffers);
    assert!(last.buffers(BUFFERS_EACH).is_some());
}

#[test]
fn a_network_is_an_address_of_ipv4_or_64_bits_of_ipv6() {
    let of = |text: &str| network(text.parse().unwrap()).to_string();
    assert_eq!(of("192.0.2.7"), "192.0.2.7");
    assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
}
