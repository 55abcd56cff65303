//! The first bytes of a connection in both directions: the trial's token and the connection's
//! index.
//!
//! 16 bytes of the trial's random token are followed by the connection's index as 4 bytes,
//! big-endian. The server answers with the same bytes, so the client knows which server it has
//! reached.

/// A trial's random token. It keeps strangers out of a measurement; it is no authentication.
pub type Token = [u8; TOKEN_BYTES];

pub(crate) const TOKEN_BYTES: usize = 16;
pub(crate) const HELLO_BYTES: usize = TOKEN_BYTES + 4;

pub(crate) fn encode(token: &Token, index: u32) -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..TOKEN_BYTES].copy_from_slice(token);
    hello[TOKEN_BYTES..].copy_from_slice(&index.to_be_bytes());
    hello
}

/// Index of the connection; `None` if the token is another.
pub(crate) fn decode(token: &Token, hello: &[u8; HELLO_BYTES]) -> Option<u32> {
    let (theirs, index) = hello.split_first_chunk::<TOKEN_BYTES>()?;
    (theirs == token).then(|| index.try_into().map(u32::from_be_bytes).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_back_and_another_trials_is_not() {
        let hello = encode(&[7; 16], 29_999);
        assert_eq!(decode(&[7; 16], &hello), Some(29_999));
        assert_eq!(decode(&[8; 16], &hello), None);
    }
}
