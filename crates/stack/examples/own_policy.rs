//! An ACK policy of one's own, live: as root `cargo run -p tcpcost-stack --example own_policy`, then `curl -T FILE http://10.99.0.2/`.
//! Says of each upload how many segments an ACK stood for. A number as argument ends it after so many uploads.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_stack::{SocketOptions, Stack, UserStack};
use tcpcost_tcp::{
    AckDecision, AckPolicy, AckRule, Arrival, Config, OwnAckPolicy, OwnAcks, ReadError,
};

/// After 1, 2, 4, … segments, 64 at most; when they stop coming, from 1 again.
#[derive(Clone, Copy, Debug)]
struct Doubling {
    doublings: u32,
    unacked: u32,
}

static DOUBLING: Doubling = Doubling {
    doublings: 0,
    unacked: 0,
};

impl OwnAcks for Doubling {
    fn rule(&self) -> Box<dyn AckRule> {
        Box::new(*self)
    }
}

impl AckRule for Doubling {
    fn on_segment(&mut self, arrival: &Arrival) -> AckDecision {
        self.unacked += arrival.wire_segments;
        if self.unacked < 1 << self.doublings {
            return AckDecision::By(arrival.now + Duration::from_millis(20));
        }
        self.doublings = 6.min(self.doublings + 1);
        AckDecision::Now
    }

    fn on_timer(&mut self) {
        self.doublings = 0;
    }

    fn on_sent(&mut self) {
        self.unacked = 0;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let uploads = std::env::args()
        .nth(1)
        .map_or(Ok(u32::MAX), |n| n.parse())?;
    let address = "10.99.0.2".parse()?;
    let mut tap = Tap::open("own0", Layer::Ethernet, Offloads::ALL)?;
    tap.answer_for(address);
    for words in ["address add 10.99.0.1/24 dev own0", "link set own0 up"] {
        Command::new("ip").args(words.split(' ')).status()?;
    }
    let ack = AckPolicy::Own(OwnAckPolicy(&DOUBLING));
    let config = Config {
        ack,
        ..Config::default()
    };
    let mut stack = UserStack::new(tap, &[address], &config, &SocketOptions::default())?;
    let listener = stack.listen((address, 80).into(), 16, 0)?;
    println!("now: curl -T FILE http://{address}/");
    for token in 1..=uploads {
        let conn = loop {
            match stack.accept(listener, token) {
                Ok((conn, _)) => break conn,
                Err(_) => stack.poll(None)?,
            };
        };
        let (mut is_answered, mut is_over) = (false, false);
        while !is_over {
            stack.poll(None)?;
            stack.with(conn, |connection, now| {
                while connection.read_piece(usize::MAX, now).is_ok() {}
                is_over = connection.read_piece(usize::MAX, now).err() != Some(ReadError::Empty);
                if !std::mem::replace(&mut is_answered, true) {
                    let _ = connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
                if is_over {
                    let counters = connection.counters();
                    println!(
                        "{} segments, {} ACKs",
                        counters.segments_received, counters.pure_acks_sent
                    );
                }
            });
        }
        stack.close(conn);
    }
    Ok(())
}
