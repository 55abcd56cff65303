//! TCP Fast Open (RFC 7413): cookies that listeners issue, and cookies received from servers.
//!
//! A cookie is the SipHash-2-4 of the two addresses, as in Linux, so that hosts with the same key
//! accept each other's cookies. Not implemented: expiry of cookies (replace the key instead), and
//! the record of paths that drop the option.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Endpoint;
use super::secret::siphash_with;
use crate::connection::{Known, OPTION_BYTES_MAX};
use crate::wire::{FastOpen, FourTuple, Segment};

#[derive(Default)]
pub(super) struct FastOpens {
    /// Keys for cookies: the first issues, all are accepted.
    keys: Vec<[u8; 16]>,
    known: HashMap<IpAddr, Known>,
}

impl Endpoint {
    /// Sets the keys: cookies are issued with the first and accepted with any. Without keys,
    /// listeners accept data with a SYN only where no cookie is required.
    pub fn set_fast_open_keys(&mut self, keys: &[[u8; 16]]) {
        self.fast_opens.keys = keys.to_vec();
    }

    /// Number of bytes that a SYN to `remote` can carry; `None` if no cookie is known for it.
    pub fn syn_payload_max(&self, remote: IpAddr) -> Option<u32> {
        let mss = u32::from(self.configs.for_address(remote).mss);
        let known = self
            .known(remote)
            .filter(|known| !known.cookie.is_request())?;
        Some(known.mss.min(mss).saturating_sub(OPTION_BYTES_MAX))
    }

    /// Forgets all cookies received from servers.
    pub fn forget_cookies(&mut self) {
        self.fast_opens.known.clear();
    }

    pub(super) fn known(&self, remote: IpAddr) -> Option<Known> {
        self.fast_opens.known.get(&remote).copied()
    }

    /// Stores the cookie that a SYN-ACK may have brought to a connection of ours.
    #[cold]
    pub(super) fn learn_cookie(&mut self, index: u32) {
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        let remote = FourTuple::from(slot.path).remote.ip();
        let Some(known) = slot.connection.take_cookie() else {
            return;
        };
        let places = &mut self.fast_opens.known;
        if places.len() >= KNOWN_MAX && !places.contains_key(&remote) {
            // Removes any entry. That server costs one more round trip next time.
            if let Some(other) = places.keys().next().copied() {
                places.remove(&other);
            }
        }
        let new = places.entry(remote).or_insert(known);
        new.mss = known.mss;
        if !known.cookie.is_request() || new.cookie.is_request() {
            new.cookie = known.cookie;
        }
    }

    /// Decides about the Fast Open option and the data of a SYN to a listener.
    pub(super) fn judge_fast_open(&self, path: &FourTuple, syn: &Segment) -> FastOpenVerdict {
        let Some(listener) = self.listeners.at(path.local) else {
            return FastOpenVerdict::Ordinary(None);
        };
        let choices = &listener.configs.for_address(path.remote.ip()).fast_open;
        let room = listener.fast_open < usize::from(choices.accept_max);
        let data = !syn.payload.is_empty();
        if choices.accept_max == 0 {
            return FastOpenVerdict::Ordinary(None);
        }
        let asked = syn.fast_open.as_deref();
        if choices.accept_without_cookie && data {
            return if room {
                FastOpenVerdict::Take(None)
            } else {
                FastOpenVerdict::Ordinary(None)
            };
        }
        let Some(asked) = asked else {
            return FastOpenVerdict::Ordinary(None);
        };
        let mut valid = self
            .fast_opens
            .keys
            .iter()
            .filter_map(|key| cookie(key, path));
        let Some(newest) = valid.next() else {
            return FastOpenVerdict::Ordinary(None);
        };
        let answer = Some(Box::new(newest.in_form_of(asked)));
        if !room {
            return FastOpenVerdict::Ordinary(None);
        }
        if asked.as_bytes() == newest.as_bytes() {
            return FastOpenVerdict::Take(None);
        }
        if valid.any(|older| older.as_bytes() == asked.as_bytes()) {
            return FastOpenVerdict::Take(answer);
        }
        FastOpenVerdict::Ordinary(answer)
    }
}

/// Decision about a SYN, with the cookie to send in the answer.
pub(super) enum FastOpenVerdict {
    /// Opens a connection without the SYN's data, which the client sends again.
    Ordinary(Option<Box<FastOpen>>),
    /// Accepts the SYN's data at once.
    Take(Option<Box<FastOpen>>),
}

/// Returns the cookie for a client at `path.remote`; `None` if the addresses are of different
/// families.
fn cookie(key: &[u8; 16], path: &FourTuple) -> Option<FastOpen> {
    let hash = match (path.remote.ip(), path.local.ip()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            siphash_with(key, &[client.octets(), server.octets()].concat())
        }
        (IpAddr::V6(client), IpAddr::V6(server)) => {
            siphash_with(key, &[client.octets(), server.octets()].concat())
        }
        _ => return None,
    };
    FastOpen::cookie(&hash.to_le_bytes())
}

/// Limit of servers whose cookies are kept.
const KNOWN_MAX: usize = 1024;
