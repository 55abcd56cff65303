//! TCP Fast Open (RFC 7413): cookies that a listener gives out, and those that it was given.
//!
//! A cookie is SipHash-2-4 of the two addresses, as in Linux, so that hosts with one key take each
//! other's. Not here: ageing of cookies (their key is changed), the record of paths that drop them.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Endpoint;
use super::secret::siphash_with;
use crate::connection::{Known, OPTION_BYTES_MAX};
use crate::wire::{FastOpen, FourTuple, Segment};

/// What an endpoint knows for it.
#[derive(Default)]
pub(super) struct FastOpens {
    /// The key of the cookies it gives out, and an older one whose cookies are still taken.
    keys: Vec<[u8; 16]>,
    known: HashMap<IpAddr, Known>,
}

impl Endpoint {
    /// From now on gives out cookies of the first of these keys, and takes those of all. Without any,
    /// listeners take no data with a SYN.
    pub fn set_fast_open_keys(&mut self, keys: &[[u8; 16]]) {
        self.fast_opens.keys = keys.to_vec();
    }

    /// Bytes that a SYN to this host can carry; none if there is no cookie for it.
    pub fn syn_payload_max(&self, remote: IpAddr) -> Option<u32> {
        let mss = u32::from(self.configs.for_address(remote).mss);
        let known = self
            .known(remote)
            .filter(|known| !known.cookie.is_request())?;
        Some(known.mss.min(mss).saturating_sub(OPTION_BYTES_MAX))
    }

    /// Forgets the cookies it was given.
    pub fn forget_cookies(&mut self) {
        self.fast_opens.known.clear();
    }

    pub(super) fn known(&self, remote: IpAddr) -> Option<Known> {
        self.fast_opens.known.get(&remote).copied()
    }

    /// The SYN-ACK of a connection of ours may have brought a cookie.
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
            // Whichever: one more round trip for somebody.
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

    /// What the Fast Open option of a SYN to a listener comes to.
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

/// What becomes of a SYN; with the cookie that its answer brings.
pub(super) enum FastOpenVerdict {
    /// It begins a connection as ever; its data comes again.
    Ordinary(Option<Box<FastOpen>>),
    /// Its data is taken at once.
    Take(Option<Box<FastOpen>>),
}

/// The cookie for a client at `path.remote`.
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

/// Servers whose cookies are kept.
const KNOWN_MAX: usize = 1024;
