//! Address at which metrics are served.

use std::net::SocketAddr;

/// Parses an address such as `127.0.0.1:9464` or `[::1]:9464`, or a port of 127.0.0.1 (`9464`,
/// `:9464`).
pub fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    match port {
        Ok(port) => Ok(([127, 0, 0, 1], port).into()),
        Err(_) => text
            .parse()
            .map_err(|_| "an address such as 127.0.0.1:9464, or a port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_on_loopback_unless_told_otherwise() {
        for text in ["9464", ":9464", "127.0.0.1:9464"] {
            assert_eq!(listen_address(text), Ok(([127, 0, 0, 1], 9464).into()));
        }
        assert!(listen_address("0.0.0.0:9464").is_ok());
        assert!(listen_address("localhost").is_err());
    }
}
