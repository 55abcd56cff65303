//! Tests of the readers: every format gives the same result, pieces give the result of the whole,
//! and no input makes a reader panic.

mod common;

use std::io::{Read, Write};

use common::{CLIENT, Packet, SERVER, Script, datagram, pcap, pcapng, told, told_of};
use proptest::prelude::*;
use tcpcost_trace::{CaptureFormat, Segment, read};

fn exchange() -> Vec<Packet> {
    let mut script = Script::open();
    for round in 0..40 {
        script.after(10).data(CLIENT, round * 2920, 1460);
        script.after(1).data(CLIENT, round * 2920 + 1460, 1460);
        script.after(90).ack(SERVER, (round + 1) * 2920);
    }
    script.after(5).fin(CLIENT, 116_800, 0);
    script.after(5).fin(SERVER, 0, 116_801);
    script.packets
}

#[test]
fn every_form_and_compression_tells_the_same() {
    let packets = exchange();
    let plain = pcap(&packets, false);
    let expected = told(&plain);
    assert!(expected.1);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&plain).unwrap();
    let zstd =
        ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let compress = |part: &[u8]| {
        ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest)
    };
    let (first, second) = plain.split_at(plain.len() / 3);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], &[9; 4]].concat();
    let frames = [
        &skippable[..],
        &compress(first),
        &skippable,
        &compress(second),
    ]
    .concat();
    let mut lz4_frames = Vec::new();
    for part in [first, second] {
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(part).unwrap();
        lz4_frames.extend(frame.finish().unwrap());
    }
    for (name, file) in [
        ("zstd in frames", frames),
        ("lz4 in frames", lz4_frames),
        ("big-endian pcap", pcap(&packets, true)),
        ("pcapng", pcapng(&packets, false, None)),
        ("big-endian pcapng", pcapng(&packets, true, None)),
        ("gzip", gz.finish().unwrap()),
        ("lz4", lz4.finish().unwrap()),
        ("zstd", zstd),
    ] {
        assert_eq!(told(&file), expected, "{name}");
    }
}

#[test]
fn stamps_in_ns_are_read_and_drops_that_pcapng_tells() {
    let packets = &exchange()[..1];
    let mut file = pcap(packets, false);
    file[..4].copy_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
    file[28..32].copy_from_slice(&7u32.to_le_bytes());
    let mut at = None;
    let (reading, _) = read(&file[..], &mut |segment: &Segment| at = segment.at_ns);
    assert_eq!((at, reading.form), (Some(7), Some(CaptureFormat::Pcap)));
    let (reading, outcome) = read(&pcapng(packets, true, Some(12))[..], &mut |_: &Segment| ());
    outcome.unwrap();
    assert_eq!(
        (reading.dropped_by_capture, reading.form),
        (Some(12), Some(CaptureFormat::Pcapng))
    );
}

/// Reader that returns its bytes a few at a time, as a pipe may.
struct Pipe<'a>(&'a [u8], usize);

impl Read for Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(into.len()).min(self.0.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn a_pipe_that_gives_little_at_a_time_tells_the_same() {
    for file in [pcap(&exchange(), true), pcapng(&exchange(), false, Some(3))] {
        let mut expected = Vec::new();
        read(&file[..], &mut |segment: &Segment| expected.push(*segment))
            .1
            .unwrap();
        for pace in [1, 3, 1000] {
            let mut found = Vec::new();
            read(Pipe(&file, pace), &mut |segment: &Segment| {
                found.push(*segment)
            })
            .1
            .unwrap();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_file_that_ends_early_says_where_and_what_was_read_stands() {
    let packets = exchange();
    let file = pcap(&packets, false);
    let mut seen = 0;
    let (reading, outcome) = read(&file[..file.len() - 1], &mut |_: &Segment| seen += 1);
    let last = 16 + datagram(packets.last().unwrap()).len();
    assert_eq!(
        outcome.unwrap_err().to_string(),
        format!("at byte {}: ends within a packet", file.len() - last)
    );
    assert_eq!(
        (seen, reading.packets),
        (packets.len() - 1, packets.len() as u64 - 1)
    );
    for (nonsense, says) in [
        (&b""[..], "at byte 0: empty"),
        (
            &[0, 1, 2, 3, 4],
            "at byte 0: neither pcap, pcapng nor tcpdump's text: begins with 00010203",
        ),
        (
            b"hello, world\n",
            "at byte 0: a text without a TCP segment as tcpdump prints it",
        ),
        (&file[..10], "at byte 0: ends within the header of the file"),
    ] {
        let (_, outcome) = read(nonsense, &mut |_: &Segment| ());
        assert_eq!(outcome.unwrap_err().to_string(), says);
    }
}

proptest! {
    #[test]
    fn a_file_split_at_any_packet_tells_what_the_whole_does(at in 0usize..125) {
        let packets = exchange();
        let at = at.min(packets.len());
        let (first, second) = packets.split_at(at);
        let whole = told(&pcap(&packets, false));
        // Pieces may even be of different formats.
        prop_assert_eq!(&whole, &told_of(&[&pcap(first, true), &pcap(second, false)]));
        prop_assert_eq!(&whole, &told_of(&[&pcapng(first, false, None), &pcap(second, true)]));
    }

    #[test]
    fn arbitrary_bytes_never_panic(head in 0usize..6, bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let heads: [&[u8]; 6] = [
            &[],
            &[0xd4, 0xc3, 0xb2, 0xa1],
            &[0x0a, 0x0d, 0x0d, 0x0a],
            &[0x28, 0xb5, 0x2f, 0xfd],
            &[0x04, 0x22, 0x4d, 0x18],
            &[0x1f, 0x8b, 8],
        ];
        told(&[heads[head], &bytes].concat());
    }

    #[test]
    fn a_changed_byte_never_panics(form in 0usize..5, at in any::<prop::sample::Index>(), to in any::<u8>(), more in any::<prop::sample::Index>()) {
        let packets = exchange();
        let text = include_bytes!("data/jones2005_trace_ack_avoidance.txt");
        let mut file = match form {
            0 => pcap(&packets, false),
            1 => pcap(&packets, true),
            2 => pcapng(&packets, false, Some(1)),
            3 => pcapng(&packets, true, None),
            _ => text.to_vec(),
        };
        let (one, other) = (at.index(file.len()), more.index(file.len()));
        file[one] = to;
        file[other] = file[other].wrapping_add(to);
        told(&file);
    }

    #[test]
    fn any_line_of_text_never_panics(line in "(IP )?[A-Z0-9.:]{1,8} > [A-Z0-9.:]{1,8}: (Flags \\[[SFRP.]{0,3}\\], |[SP.]{1,2} )[a-z0-9:(), \\[\\]{}<>]{0,80}") {
        told(line.as_bytes());
    }

    #[test]
    fn any_segments_never_panic(numbers in proptest::collection::vec((0usize..2, any::<u8>(), any::<u32>(), any::<u32>(), 0u32..60_000, any::<u16>(), 0u64..1_000_000), 0..200)) {
        let packets: Vec<Packet> = numbers
            .into_iter()
            .map(|(from, flags, seq, ack, payload, window, at_us)| Packet {
                at_us, from, flags, seq, ack, payload, window, client_port: 9, ..Packet::default()
            })
            .collect();
        let (_, whole) = told(&pcap(&packets, false));
        prop_assert!(whole);
    }
}
