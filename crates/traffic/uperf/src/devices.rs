//! Packets and bytes of network devices, which uperf prints for a run (/proc/net/dev).

use std::io;
use std::time::Instant;

use crate::print::{Printer, decimal};

/// Counts since boot of each device: bytes and packets received, bytes and packets sent.
pub struct Devices {
    at: Instant,
    devices: Vec<(String, [u64; 4])>,
}

impl Devices {
    /// Reads the counts.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn read() -> io::Result<Devices> {
        Ok(Devices {
            at: Instant::now(),
            devices: parse(&std::fs::read_to_string("/proc/self/net/dev")?),
        })
    }

    /// Prints the rates since `before` of all devices that had packets.
    pub fn print_since(&self, before: &Devices, printer: &mut Printer<'_>) -> io::Result<()> {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-9);
        printer.title("Netstat statistics for this run")?;
        let titles = ["Nic", "opkts/s", "ipkts/s", "obits/s", "ibits/s"];
        let [nic, out, into, out_bits, in_bits] = titles;
        printer.text(&format!(
            "{nic:<5}  {out:>10}  {into:>10}  {out_bits:>11}  {in_bits:>11}\n"
        ))?;
        for (name, now) in &self.devices {
            let first = before.devices.iter().find(|(other, _)| other == name);
            let Some((_, first)) = first else { continue };
            let rates: [f64; 4] = std::array::from_fn(|place| {
                now[place].saturating_sub(first[place]) as f64 / seconds
            });
            let [in_bytes, in_packets, out_bytes, out_packets] = rates;
            if in_packets == 0.0 && out_packets == 0.0 {
                continue;
            }
            printer.text(&format!(
                "{name:<5}  {out_packets:10.0}  {in_packets:10.0}  {} {}\n",
                decimal(out_bytes * 8.0, 11, true),
                decimal(in_bytes * 8.0, 11, true),
            ))?;
        }
        printer.line()
    }
}

fn parse(text: &str) -> Vec<(String, [u64; 4])> {
    let lines = text.lines().skip(2);
    let device = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts
            .split_whitespace()
            .map_while(|count| count.parse().ok())
            .collect();
        let of = |place: usize| counts.get(place).copied();
        Some((name.trim().to_string(), [of(0)?, of(1)?, of(8)?, of(9)?]))
    };
    lines.filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_kernels() {
        let text = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    lo: 1 2 0 0 0 0 0 0 9 10 0 0 0 0 0 0\n  bad: 1\n";
        assert_eq!(parse(text), [("lo".to_string(), [1, 2, 9, 10])]);
    }
}
