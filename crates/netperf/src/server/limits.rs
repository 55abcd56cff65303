//! What a netserver gives to all of its clients together, and how long it waits for them.

use std::time::Duration;

/// Control connections at a time.
pub const CONNECTIONS: usize = 1024;
/// Control connections of one network: as many as scripts that start hundreds of netperf at once need.
pub const CONNECTIONS_EACH: usize = CONNECTIONS / 2;
/// Bytes of all buffers together.
pub const BUFFERS: usize = 1 << 30;
/// Bytes of all buffers of one network.
pub const BUFFERS_EACH: usize = BUFFERS / 2;
/// Bytes of one buffer, one request or one response.
pub const BUFFER: usize = 64 << 20;

/// For the first message to come whole: nothing connects and is silent, but netperf that waits for a password nobody types.
pub const FIRST_MESSAGE: Duration = Duration::from_secs(60);
/// For each further one: a repetition follows at once.
pub const NEXT_MESSAGE: Duration = Duration::from_secs(600);
/// For the data connection: netperf's `-s` waits between set-up and traffic.
pub const DATA_CONNECTION: Duration = Duration::from_secs(120);
/// Beyond the time of a test that the other side ends: what is in its send buffer may take that long.
pub const BEYOND: Duration = Duration::from_secs(60);
/// The same for transactions: the last connection of TCP_CRR is not told, and the original does not read the responses that are
/// on their way at the end. netperf's PAD_TIME.
pub const BEYOND_TRANSACTIONS: Duration = Duration::from_secs(4);
/// Without a byte, of tests that no clock ends.
pub const IDLE: Duration = Duration::from_secs(120);
/// Between an accept that failed and the next.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Connections that wait to be taken.
pub const BACKLOG: i32 = 128;
