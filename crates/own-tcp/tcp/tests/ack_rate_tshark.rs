//! Test of the ACK rate request with Wireshark's dissector, if it is installed: an independent
//! implementation of the draft's format.

use std::path::Path;
use std::process::Command;

use tcpcost_tcp::SeqNum;
use tcpcost_tcp::wire::{
    AckRate, Checksum, Flags, FourTuple, Options, Packet, Segment, Timestamps,
};

/// Bytes of a packet with this option.
fn packet(flags: Flags, ack_rate: AckRate) -> Vec<u8> {
    let path = FourTuple {
        local: "10.0.0.1:80".parse().unwrap(),
        remote: "10.0.0.2:4000".parse().unwrap(),
    };
    let segment = Segment {
        seq: SeqNum::new(7),
        flags,
        window: 1000,
        options: Options {
            mss: flags.contains(Flags::SYN).then_some(1460),
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ack_rate: Some(ack_rate),
            ..Options::default()
        },
        ..Segment::default()
    };
    let packet = Packet::emit(&path, segment, Checksum::Complete);
    packet.header.as_ref().to_vec()
}

/// Writes a capture file of raw IP packets.
fn write_pcap(path: &Path, packets: &[Vec<u8>]) {
    const RAW_IP: u32 = 101;
    let mut file = Vec::new();
    let mut words = |words: &[u32], bytes: &[u8]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        file.extend(bytes);
    };
    words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, RAW_IP], &[]);
    for packet in packets {
        let len = packet.len() as u32;
        words(&[0, 0, len, len], packet);
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn wireshark_reads_what_we_write() {
    if Command::new("tshark").arg("--version").output().is_err() {
        tcpcost_testbed::skip("no tshark");
        return;
    }
    let rates = [1, 8, 127, 0];
    let mut packets = vec![packet(Flags::SYN, AckRate::ANNOUNCED)];
    packets.extend(rates.map(|rate| packet(Flags::ACK, AckRate::request(rate))));
    let name = format!("tcpcost-ack-rate-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(name);
    write_pcap(&path, &packets);
    let ran = Command::new("tshark")
        .arg("-r")
        .arg(&path)
        .args(["-T", "fields", "-E", "separator=/s"])
        .args(["-e", "tcp.options.experimental.exid"])
        .args(["-e", "tcp.options.tarr.rate", "-e", "_ws.malformed"])
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let found = String::from_utf8(ran.stdout).unwrap();
    let lines: Vec<&str> = found.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        ["0x00ac", "0x00ac 1", "0x00ac 8", "0x00ac 127", "0x00ac 0"],
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
