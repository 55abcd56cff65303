//! Fast Open option of SYNs (RFC 7413 §4.1.1), also in its experimental form (RFC 6994).

/// Request for a cookie, or a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastOpen {
    bytes: [u8; COOKIE_MAX],
    len: u8,
    /// True for the older form, kind 254 with an identifier, instead of kind 34. The answer has the
    /// same form.
    pub experimental: bool,
}

impl FastOpen {
    /// Request for a cookie.
    pub const REQUEST: Self = Self {
        bytes: [0; COOKIE_MAX],
        len: 0,
        experimental: false,
    };

    /// Request for a cookie in the older, experimental form.
    pub const EXPERIMENTAL_REQUEST: Self = Self {
        experimental: true,
        ..Self::REQUEST
    };

    /// Makes a cookie; `None` unless it has 4 to 16 bytes and an even number of them.
    pub fn cookie(bytes: &[u8]) -> Option<Self> {
        if !matches!(bytes.len(), 4..=COOKIE_MAX) || !bytes.len().is_multiple_of(2) {
            return None;
        }
        let mut cookie = Self::REQUEST;
        cookie.bytes[..bytes.len()].copy_from_slice(bytes);
        cookie.len = bytes.len() as u8;
        Some(cookie)
    }

    /// Returns this cookie in the form of `asked`.
    pub(crate) fn in_form_of(self, asked: &Self) -> Self {
        Self {
            experimental: asked.experimental,
            ..self
        }
    }

    /// Bytes of the cookie; empty for a request.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// True for a request.
    pub fn is_request(&self) -> bool {
        self.len == 0
    }

    /// Finds the option among the options of a SYN; `None` if it is missing or malformed.
    pub(super) fn read(mut options: &[u8]) -> Option<Self> {
        while let [kind, after @ ..] = options {
            match (*kind, after) {
                (END, _) => return None,
                (NOP, _) => options = after,
                (kind, [len, ..]) => {
                    let (option, rest) = options.split_at_checked(usize::from(*len))?;
                    match (kind, option.get(2..)?) {
                        (FAST_OPEN, body) => return Self::of(body, false),
                        (EXPERIMENT, [0xf9, 0x89, body @ ..]) => return Self::of(body, true),
                        _ => options = rest,
                    }
                }
                _ => return None,
            }
        }
        None
    }

    fn of(body: &[u8], experimental: bool) -> Option<Self> {
        let found = if body.is_empty() {
            Self::REQUEST
        } else {
            Self::cookie(body)?
        };
        Some(Self {
            experimental,
            ..found
        })
    }

    /// Writes the option, with padding, at `at` in `to`, if there is room. Returns the end of the
    /// options.
    pub(super) fn emit(&self, to: &mut [u8], at: usize) -> usize {
        let head: &[u8] = if self.experimental {
            &[EXPERIMENT, 0, 0xf9, 0x89]
        } else {
            &[FAST_OPEN, 0]
        };
        let len = head.len() + self.as_bytes().len();
        let end = at + len.next_multiple_of(4);
        let Some(room) = to.get_mut(at..end) else {
            return at;
        };
        room.fill(NOP);
        room[..head.len()].copy_from_slice(head);
        room[1] = len as u8;
        room[head.len()..len].copy_from_slice(self.as_bytes());
        end
    }
}

const COOKIE_MAX: usize = 16;
const END: u8 = 0;
const NOP: u8 = 1;
const FAST_OPEN: u8 = 34;
const EXPERIMENT: u8 = 254;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_found() {
        let cookie = FastOpen::cookie(&[1, 2, 3, 4, 5, 6]).unwrap();
        for wanted in [FastOpen::REQUEST, cookie] {
            for experimental in [false, true] {
                let wanted = FastOpen {
                    experimental,
                    ..wanted
                };
                let mut options = [NOP; 40];
                let end = wanted.emit(&mut options, 4);
                assert_eq!(end % 4, 0);
                assert_eq!(FastOpen::read(&options[..end]), Some(wanted));
            }
        }
    }

    #[test]
    fn a_cookie_of_an_odd_length_or_a_wrong_one_is_none() {
        assert_eq!(FastOpen::read(&[34, 5, 1, 2, 3]), None);
        assert_eq!(FastOpen::read(&[34, 4, 1, 2]), None);
        assert_eq!(FastOpen::read(&[34, 9, 1, 2]), None);
        assert_eq!(FastOpen::read(&[34]), None);
        assert_eq!(FastOpen::cookie(&[0; 18]), None);
    }
}
