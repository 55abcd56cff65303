//! Limits of a netserver on what all clients get together, and on waiting for them.

use std::time::Duration;

/// Control connections at the same time.
pub const CONNECTIONS: usize = 1024;
/// Control connections of one network: enough for scripts that start hundreds of netperf at once.
pub const CONNECTIONS_EACH: usize = CONNECTIONS / 2;
/// Bytes of all buffers together.
pub const BUFFERS: usize = 1 << 30;
/// Bytes of all buffers of one network.
pub const BUFFERS_EACH: usize = BUFFERS / 2;
/// Bytes of one buffer, one request or one response.
pub const BUFFER: usize = 64 << 20;

/// Time until the first message is complete. Only a netperf that waits for the user to type a password
/// connects and is silent.
pub const FIRST_MESSAGE: Duration = Duration::from_secs(60);
/// Time until each further message is complete. The next repetition follows at once.
pub const NEXT_MESSAGE: Duration = Duration::from_secs(600);
/// Time until the data connection: netperf's `-s` waits between set-up and traffic.
pub const DATA_CONNECTION: Duration = Duration::from_secs(120);
/// Time after the end of a test that the other side ends, because data in its send buffer may take that long.
pub const BEYOND: Duration = Duration::from_secs(60);
/// Time after the end of a test with transactions. The last connection of TCP_CRR is not announced, and the
/// original does not read the responses in flight at the end. Same as netperf's PAD_TIME.
pub const BEYOND_TRANSACTIONS: Duration = Duration::from_secs(4);
/// Time without a byte, for tests that no clock ends.
pub const IDLE: Duration = Duration::from_secs(120);
/// Pause between a failed accept and the next.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// Listen backlog of connections.
pub const BACKLOG: i32 = 128;
