//! Echo server over TAP: start `tap_echo` as root, then `ip addr add 10.88.0.1/24 dev tap0; ip link
//! set tap0 up; nc 10.88.0.2 7`.
#![allow(clippy::disallowed_methods, reason = "a driver is where time is read")]

use std::collections::VecDeque;
use std::time::Instant;

use tcpcost_link::{Device, Layer, Offloads, Tap};
use tcpcost_stack::{Slabs, Wire};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{Config, Connection, Endpoint, Pool, ReadError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut tap = Tap::open("tap%d", Layer::Ethernet, Offloads::ALL)?;
    tap.answer_for("10.88.0.2".parse()?);
    println!("echo on 10.88.0.2 port 7 over {}", tap.name());
    let mut secret = [0; 16];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
    let pool = Pool::default();
    let (config, now) = (Config::default(), Instant::now());
    let mut endpoint = Endpoint::new(config.clone(), pool.clone(), secret, Checksum::Partial, now);
    endpoint.listen(7, 100, config)?;
    let (mut slabs, mut arrived, mut out) = (Slabs(pool), VecDeque::new(), VecDeque::new());
    loop {
        let now = Instant::now();
        tap.receive(&mut slabs, &mut arrived, 64, now)?;
        arrived
            .drain(..)
            .for_each(|Wire(packet)| endpoint.on_packet(packet, now));
        endpoint.on_timeout(now);
        while let Some(port) = endpoint.poll_acceptable() {
            while endpoint.accept(port).is_some() {}
        }
        while let Some(id) = endpoint.poll_ready() {
            if endpoint.apply(id, |connection| echo(connection, now)) == Some(false) {
                endpoint.release(id, now);
            }
        }
        out.extend(std::iter::from_fn(|| endpoint.poll_packet(now).map(Wire)));
        tap.send(&mut out, now)?;
        tap.wait(endpoint.next_timeout().map(|at| at.duration_since(now)))?;
    }
}

/// Writes received data back without copying. True if more may follow.
fn echo(connection: &mut Connection, now: Instant) -> bool {
    while connection.writable() > 0 {
        match connection.read_piece(connection.writable(), now) {
            Ok(piece) => drop(connection.write_piece(piece)),
            Err(error) => return error == ReadError::Empty,
        }
    }
    true
}
