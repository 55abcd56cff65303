//! The tests of `-t`, a row each (docs/dev/add-a-row.md says how to add one).

use super::{Direction, Transport};

/// Properties of one test.
#[derive(Debug, PartialEq, Eq)]
pub struct Test {
    /// Name for `-t`.
    pub name: &'static str,
    /// Name in the first line of the output. `None` if the line names the direction instead.
    pub banner: Option<&'static str>,
    /// Protocol of the payload. A test without a direction may have another by its options.
    pub transport: Transport,
    /// Direction of the payload. `None` if the options after `--` set it; such a test has the
    /// columns of omni output.
    pub direction: Option<Direction>,
    /// True if each transaction has a connection of its own.
    pub is_connect_test: bool,
    /// True if the payload is sent by sendfile(2).
    pub sends_file: bool,
    /// True if the output reports the first burst (`-b`) and, at `-v 2`, the round-trip time.
    pub reports_round_trips: bool,
}

/// A stream to netserver.
const STREAM: Test = Test {
    name: "TCP_STREAM",
    banner: Some("MIGRATED TCP STREAM TEST"),
    transport: Transport::Tcp,
    direction: Some(Direction::Send),
    is_connect_test: false,
    sends_file: false,
    reports_round_trips: false,
};

/// All tests, the default first.
pub static TESTS: &[Test] = &[
    STREAM,
    Test {
        name: "TCP_MAERTS",
        banner: Some("MIGRATED TCP MAERTS TEST"),
        direction: Some(Direction::Receive),
        ..STREAM
    },
    Test {
        name: "TCP_SENDFILE",
        banner: Some("TCP SENDFILE TEST"),
        sends_file: true,
        ..STREAM
    },
    Test {
        name: "TCP_RR",
        banner: Some("MIGRATED TCP REQUEST/RESPONSE TEST"),
        direction: Some(Direction::Both),
        reports_round_trips: true,
        ..STREAM
    },
    Test {
        name: "TCP_CRR",
        banner: Some("MIGRATED TCP Connect/Request/Response TEST"),
        direction: Some(Direction::Both),
        is_connect_test: true,
        ..STREAM
    },
    Test {
        name: "UDP_STREAM",
        banner: Some("MIGRATED UDP STREAM TEST"),
        transport: Transport::Udp,
        ..STREAM
    },
    Test {
        name: "UDP_RR",
        banner: Some("MIGRATED UDP REQUEST/RESPONSE TEST"),
        transport: Transport::Udp,
        direction: Some(Direction::Both),
        reports_round_trips: true,
        ..STREAM
    },
    Test {
        name: "OMNI",
        banner: None,
        direction: None,
        ..STREAM
    },
];

impl Test {
    /// Returns the test with this name.
    pub fn named(name: &str) -> Option<&'static Test> {
        TESTS.iter().find(|test| test.name == name)
    }

    /// Returns the names of all tests, joined by commas.
    pub fn names() -> String {
        let names: Vec<_> = TESTS.iter().map(|test| test.name).collect();
        names.join(", ")
    }
}
