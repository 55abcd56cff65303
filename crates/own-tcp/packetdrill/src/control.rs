//! Control messages of recvmsg, in the kernel's layout.

use crate::calls::Report;

/// Buffer for control messages, and its used part.
pub struct Control<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> Control<'a> {
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, used: 0 }
    }

    /// Bytes used.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Adds TCP_CM_INQ.
    pub fn left(&mut self, bytes: i32) {
        self.add(libc::SOL_TCP, TCP_CM_INQ, &bytes.to_ne_bytes());
    }

    pub fn report(&mut self, report: Report, is_v4: bool) {
        let error = match report {
            Report::Copied { first, last } => {
                extended_error(0, ORIGIN_ZEROCOPY, CODE_ZEROCOPY_COPIED, first, last)
            }
            Report::Stamp { what, key, at_us } => {
                let mut stamps = [0_u8; 48];
                let seconds = (at_us / 1_000_000) as i64;
                let nanoseconds = (at_us % 1_000_000 * 1000) as i64;
                stamps[..8].copy_from_slice(&seconds.to_ne_bytes());
                stamps[8..16].copy_from_slice(&nanoseconds.to_ne_bytes());
                self.add(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &stamps);
                extended_error(libc::ENOMSG, ORIGIN_TIMESTAMPING, 0, what, key)
            }
        };
        // An address follows that is not filled in: a `sockaddr_in` or `sockaddr_in6`.
        let (level, kind, address) = if is_v4 {
            (libc::SOL_IP, libc::IP_RECVERR, 16)
        } else {
            (libc::SOL_IPV6, libc::IPV6_RECVERR, 28)
        };
        let mut data = error.to_vec();
        data.resize(error.len() + address, 0);
        self.add(level, kind, &data);
    }

    /// Adds a message; nothing if there is no room for it.
    fn add(&mut self, level: i32, kind: i32, data: &[u8]) {
        let len = HEADER + data.len();
        let end = self.used + len.next_multiple_of(8);
        let Some(to) = self.room.get_mut(self.used..end) else {
            return;
        };
        to[..8].copy_from_slice(&len.to_ne_bytes());
        to[8..12].copy_from_slice(&level.to_ne_bytes());
        to[12..16].copy_from_slice(&kind.to_ne_bytes());
        to[HEADER..len].copy_from_slice(data);
        self.used = end;
    }
}

/// `struct sock_extended_err`.
fn extended_error(errno: i32, origin: u8, code: u8, info: u32, data: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&errno.to_ne_bytes());
    (bytes[4], bytes[6]) = (origin, code);
    bytes[8..12].copy_from_slice(&info.to_ne_bytes());
    bytes[12..].copy_from_slice(&data.to_ne_bytes());
    bytes
}

/// Bytes of a `struct cmsghdr`.
const HEADER: usize = 16;
const TCP_CM_INQ: i32 = 36;
const ORIGIN_TIMESTAMPING: u8 = 4;
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_ZEROCOPY_COPIED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_room_is_left_out() {
        let mut room = [0; 24];
        let mut control = Control::new(&mut room);
        control.left(9);
        assert_eq!(control.len(), 24);
        control.left(10);
        assert_eq!(control.len(), 24);
        assert_eq!(room[..8], 20_usize.to_ne_bytes());
        assert_eq!(room[16..20], 9_i32.to_ne_bytes());
    }
}
