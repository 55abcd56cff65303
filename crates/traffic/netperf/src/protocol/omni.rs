//! Messages of an omni test: the request, netserver's set-up, and its results (netperf's `nettest_bsd.h`,
//! structs `omni_request_struct`, `omni_response_struct`, `omni_results_struct`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Message, Reader, Writer, kind};

/// Bits of [`Request::flags`] and [`Response::flags`].
pub mod flag {
    /// Sets TCP_NODELAY.
    pub const NO_DELAY: u32 = 0x0000_0001;
    /// Makes a connection for each transaction.
    pub const CONNECT_TEST: u32 = 0x0000_0004;
    /// Asks for CPU figures.
    pub const MEASURE_CPU: u32 = 0x0000_0008;
    /// SO_DONTROUTE is set without this bit. The same bit also asks for the name of the congestion control.
    pub const ROUTING_ALLOWED: u32 = 0x0000_0020;
    /// TCP Fast Open.
    pub const FASTOPEN: u32 = 0x0000_0800;
    /// TCP_DEFER_ACCEPT.
    pub const DEFER_ACCEPT: u32 = 0x0000_8000;
    /// The socket of UDP is connected to netperf.
    pub const CONNECTED: u32 = 0x0000_4000;
    /// SO_KEEPALIVE.
    pub const KEEPALIVE: u32 = 0x8000_0000;
}

/// Direction in which netserver sends (`NETPERF_XMIT`).
pub const SENDS: u32 = 2;
/// Direction in which netserver receives (`NETPERF_RECV`).
pub const RECEIVES: u32 = 4;

/// Value of `socket_type` for a stream (`NST_STREAM`).
pub const STREAM_SOCKET: u32 = 1;
/// Value of `socket_type` for datagrams (`NST_DGRAM`).
pub const DATAGRAM_SOCKET: u32 = 2;
/// Value of `protocol` for TCP.
pub const TCP: u32 = 6;
/// Value of `protocol` for UDP.
pub const UDP: u32 = 17;

/// Request of a test: words with numbers, followed by text (`OMNI_REQUEST_CONV_CUTOFF`).
#[derive(Debug, Clone, PartialEq)]
#[allow(
    missing_docs,
    reason = "the names are netperf's, the doubtful ones are told"
)]
pub struct Request {
    /// Bytes, −1 for the system's default, like all sizes of buffers.
    pub send_buf_size: i32,
    /// Bytes of a call, −1 for the size of the socket buffer.
    pub send_size: i32,
    pub request_size: i32,
    pub recv_buf_size: i32,
    pub receive_size: i32,
    pub response_size: i32,
    pub flags: u32,
    /// Seconds. Negative for bytes of a stream, or for transactions.
    pub test_length: i32,
    /// Port of netserver, 0 for any.
    pub data_port: u32,
    /// Address family: 4, 6, or 0 for any.
    pub ipfamily: u32,
    pub socket_type: u32,
    pub protocol: u32,
    /// Bits [`SENDS`] and [`RECEIVES`], from netserver's view.
    pub direction: u32,
    pub interval_burst: u32,
    pub interval_usecs: u32,
    /// Address of netserver if one is asked for, else zeros. An IPv4 address is in the first four bytes. The
    /// words of an IPv6 address are byte-swapped, because netperf swaps bytes that are in network order
    /// already.
    pub netserver_ip: [u8; 16],
    /// Priority, −1 for none.
    pub socket_prio: i32,
    /// Type of service, −1 for none.
    pub socket_tos: i32,
    pub cong_control: String,
    pub fill_file: String,
}

impl Default for Request {
    /// Stream to netserver for ten seconds, with the system's defaults.
    fn default() -> Request {
        Request {
            send_buf_size: -1,
            send_size: -1,
            request_size: -1,
            recv_buf_size: -1,
            receive_size: -1,
            response_size: -1,
            flags: flag::ROUTING_ALLOWED,
            test_length: 10,
            data_port: 0,
            ipfamily: 4,
            socket_type: STREAM_SOCKET,
            protocol: TCP,
            direction: RECEIVES,
            interval_burst: 0,
            interval_usecs: 0,
            netserver_ip: [0; 16],
            socket_prio: -1,
            socket_tos: -1,
            cong_control: String::new(),
            fill_file: String::new(),
        }
    }
}

/// Alignment of buffers in netperf's requests: any.
const ALIGNMENT: u32 = 8;

impl Request {
    /// Makes a message. `cpu` is the CPU on which netserver must run, −1 for any.
    pub fn message(&self, cpu: i32) -> Message {
        let mut message = Message::new(kind::OMNI, cpu);
        let dirty = u32::MAX;
        Writer::new(&mut message.body)
            .i32(self.send_buf_size)
            .i32(self.send_size)
            .u32(ALIGNMENT)
            .u32(0) // send_offset
            .u32(0) // send_width
            .i32(self.request_size)
            .i32(self.recv_buf_size)
            .i32(self.receive_size)
            .u32(ALIGNMENT)
            .u32(0) // recv_offset
            .u32(0) // recv_width
            .i32(self.response_size)
            .u32(self.flags)
            .f32(0.0) // cpu_rate
            .i32(self.test_length)
            .u32(0) // so_rcvavoid
            .u32(0) // so_sndavoid
            .u32(dirty) // send_dirty_count
            .u32(dirty) // recv_dirty_count
            .u32(dirty) // recv_clean_count
            .u32(self.data_port)
            .u32(self.ipfamily)
            .u32(self.socket_type)
            .u32(self.protocol)
            .u32(self.direction)
            .u32(0) // netperf_port
            .u32(self.interval_burst)
            .u32(self.interval_usecs)
            .bytes(&[0; 16]) // netperf_ip
            .bytes(&self.netserver_ip)
            .i32(self.socket_prio)
            .i32(self.socket_tos)
            .text(&self.cong_control, 16)
            .text(&self.fill_file, 32);
        message
    }

    /// Reads a message. Any bytes are accepted; the values may make no sense.
    pub fn of(message: &Message) -> Request {
        let mut from = Reader::new(&message.body);
        let (send_buf_size, send_size) = (from.i32(), from.i32());
        from.skip(3);
        let (request_size, recv_buf_size, receive_size) = (from.i32(), from.i32(), from.i32());
        from.skip(3);
        let (response_size, flags) = (from.i32(), from.u32());
        from.skip(1);
        let test_length = from.i32();
        from.skip(5);
        let (data_port, ipfamily) = (from.u32(), from.u32());
        let (socket_type, protocol, direction) = (from.u32(), from.u32(), from.u32());
        from.skip(1);
        let (interval_burst, interval_usecs) = (from.u32(), from.u32());
        from.skip(4);
        let netserver_ip = from.bytes(16).try_into().expect("sixteen were taken");
        Request {
            send_buf_size,
            send_size,
            request_size,
            recv_buf_size,
            receive_size,
            response_size,
            flags,
            test_length,
            data_port,
            ipfamily,
            socket_type,
            protocol,
            direction,
            interval_burst,
            interval_usecs,
            netserver_ip,
            socket_prio: from.i32(),
            socket_tos: from.i32(),
            cong_control: from.text(16).to_string(),
            fill_file: from.text(32).to_string(),
        }
    }
}

/// Bytes of an address for [`Request::netserver_ip`].
pub fn address_bytes(address: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => {
            for (to, from) in bytes
                .chunks_exact_mut(4)
                .zip(address.octets().chunks_exact(4))
            {
                to.copy_from_slice(from);
                to.reverse();
            }
        }
    }
    bytes
}

/// Address of the given family in these bytes. `None` if no address is asked for.
pub fn address_of(bytes: &[u8; 16], is_v6: bool) -> Option<IpAddr> {
    let mut octets = *bytes;
    if !is_v6 {
        let [a, b, c, d, ..] = octets;
        let address = Ipv4Addr::new(a, b, c, d);
        return (!address.is_unspecified()).then_some(address.into());
    }
    octets.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    let address = Ipv6Addr::from(octets);
    (!address.is_unspecified()).then_some(address.into())
}

/// Set-up of netserver.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are netperf's")]
pub struct Response {
    pub recv_buf_size: i32,
    pub receive_size: i32,
    pub send_buf_size: i32,
    pub send_size: i32,
    pub flags: u32,
    /// Port for the data connection.
    pub data_port: u32,
    pub socket_prio: i32,
    pub socket_tos: i32,
}

impl Response {
    /// Makes a message.
    pub fn message(&self) -> Message {
        let mut message = Message::new(kind::OMNI + 1, 0);
        Writer::new(&mut message.body)
            .i32(self.recv_buf_size)
            .i32(self.receive_size)
            .i32(1) // recv_width
            .i32(self.send_buf_size)
            .i32(self.send_size)
            .i32(1) // send_width
            .u32(self.flags)
            .f32(0.0) // cpu_rate: /proc/stat needs none
            .u32(0) // test_length
            .u32(0) // so_rcvavoid
            .u32(0) // so_sndavoid
            .u32(self.data_port)
            .u32(0) // interval_burst
            .u32(0) // interval_usecs
            .u32(0) // cpu_frequency
            .u32(0) // security_info
            .i32(self.socket_prio)
            .i32(self.socket_tos);
        message
    }

    /// Reads a message.
    pub fn of(message: &Message) -> Response {
        let mut from = Reader::new(&message.body);
        let (recv_buf_size, receive_size) = (from.i32(), from.i32());
        from.skip(1);
        let (send_buf_size, send_size) = (from.i32(), from.i32());
        from.skip(1);
        let flags = from.u32();
        from.skip(4);
        let data_port = from.u32();
        from.skip(4);
        Response {
            recv_buf_size,
            receive_size,
            send_buf_size,
            send_size,
            flags,
            data_port,
            socket_prio: from.i32(),
            socket_tos: from.i32(),
        }
    }
}

/// Results of netserver.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are netperf's")]
pub struct Results {
    pub bytes_received: u64,
    pub recv_calls: u32,
    /// Value of SO_RCVBUF at the end.
    pub recv_buf_size: i32,
    pub bytes_sent: u64,
    pub send_calls: u32,
    /// Value of SO_SNDBUF at the end.
    pub send_buf_size: i32,
    pub trans_received: u32,
    /// Duration in seconds.
    pub elapsed_time: f32,
    /// Utilization of all CPUs together, percent.
    pub cpu_util: f32,
    pub cpu_percent_user: f32,
    pub cpu_percent_system: f32,
    pub cpu_percent_iowait: f32,
    pub cpu_percent_irq: f32,
    pub cpu_percent_swintr: f32,
    pub cpu_method: u32,
    pub num_cpus: u32,
    pub peak_cpu_id: i32,
    pub peak_cpu_util: f32,
    pub transport_retrans: i32,
    pub cong_control: String,
}

impl Results {
    /// Makes a message. netserver does not change the kind from that of [`Response`].
    pub fn message(&self) -> Message {
        let mut message = Message::new(kind::OMNI + 1, 0);
        let halves = |count: u64| ((count >> 32) as u32, count as u32);
        let (received, sent) = (halves(self.bytes_received), halves(self.bytes_sent));
        Writer::new(&mut message.body)
            .u32(received.0)
            .u32(received.1)
            .u32(self.recv_calls)
            .i32(self.recv_buf_size)
            .u32(sent.0)
            .u32(sent.1)
            .u32(self.send_calls)
            .i32(self.send_buf_size)
            .u32(0) // failed_sends: of UDP
            .u32(self.trans_received)
            .f32(self.elapsed_time)
            .f32(self.cpu_util)
            .f32(self.cpu_percent_user)
            .f32(self.cpu_percent_system)
            .f32(self.cpu_percent_iowait)
            .f32(self.cpu_percent_irq)
            .f32(self.cpu_percent_swintr)
            .f32(0.0) // serv_dem: netperf reckons it
            .u32(self.cpu_method)
            .u32(self.num_cpus)
            .i32(self.peak_cpu_id)
            .f32(self.peak_cpu_util)
            .u32(0) // vendor
            .u32(0) // device
            .u32(0) // subvendor
            .u32(0) // subdevice
            .i32(self.transport_retrans)
            .bytes(&[0; NAMES]) // ifname, driver, version, firmware, bus, ifslot
            .text(&self.cong_control, 16);
        message
    }

    /// Reads a message.
    pub fn of(message: &Message) -> Results {
        let mut from = Reader::new(&message.body);
        let whole = |from: &mut Reader<'_>| u64::from(from.u32()) << 32 | u64::from(from.u32());
        let bytes_received = whole(&mut from);
        let (recv_calls, recv_buf_size) = (from.u32(), from.i32());
        let bytes_sent = whole(&mut from);
        let (send_calls, send_buf_size) = (from.u32(), from.i32());
        from.skip(1);
        let (trans_received, elapsed_time) = (from.u32(), from.f32());
        let [util, user, system, iowait, irq, swintr] = std::array::from_fn(|_| from.f32());
        from.skip(1);
        let (cpu_method, num_cpus) = (from.u32(), from.u32());
        let (peak_cpu_id, peak_cpu_util) = (from.i32(), from.f32());
        from.skip(4);
        let transport_retrans = from.i32();
        from.bytes(NAMES);
        Results {
            bytes_received,
            recv_calls,
            recv_buf_size,
            bytes_sent,
            send_calls,
            send_buf_size,
            trans_received,
            elapsed_time,
            cpu_util: util,
            cpu_percent_user: user,
            cpu_percent_system: system,
            cpu_percent_iowait: iowait,
            cpu_percent_irq: irq,
            cpu_percent_swintr: swintr,
            cpu_method,
            num_cpus,
            peak_cpu_id,
            peak_cpu_util,
            transport_retrans,
            cong_control: word(&from.text(16)),
        }
    }
}

/// Name without characters that have a meaning in a shell, in CSV, or in `eval` of `-k`.
fn word(name: &str) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.replace(|c| !is_of_name(c), "?")
}

/// Number of bytes of the names of interface and driver, which are empty since 2.7.
const NAMES: usize = 16 + 4 * 32 + 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let request = Request {
            send_size: 1 << 20,
            test_length: -100,
            direction: SENDS | RECEIVES,
            netserver_ip: *b"0123456789abcdef",
            socket_tos: 0xb8,
            cong_control: "cubic".into(),
            fill_file: "x".repeat(31),
            ..Request::default()
        };
        let message = request.message(3);
        assert_eq!(message.aside, 3);
        assert_eq!(Request::of(&message), request);
        let response = Response {
            data_port: 40_000,
            recv_buf_size: 131_072,
            socket_tos: 1,
            ..Response::default()
        };
        assert_eq!(Response::of(&response.message()), response);
        let results = Results {
            bytes_received: 5 << 32 | 7,
            cpu_util: 12.5,
            transport_retrans: 9,
            peak_cpu_id: -1,
            cong_control: "reno".into(),
            ..Results::default()
        };
        assert_eq!(Results::of(&results.message()), results);
    }

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["192.0.2.1", "2001:db8::7"] {
            let address: IpAddr = text.parse().unwrap();
            let bytes = address_bytes(address);
            assert_eq!(address_of(&bytes, address.is_ipv6()), Some(address));
        }
        assert_eq!(
            address_bytes("2001:db8::".parse().unwrap())[..4],
            [0xb8, 0x0d, 0x01, 0x20]
        );
        assert_eq!(address_of(&[0; 16], true), None);
    }

    #[test]
    fn text_follows_the_numbers_at_once() {
        let request = Request {
            cong_control: "bbr".into(),
            ..Request::default()
        };
        assert_eq!(request.message(-1).body[38 * 4..][..4], *b"bbr\0");
    }
}
