//! Socket options as choices of a connection.

use std::io;

use tcpcost_tcp::{Config, CongestionControl, Nagle};

use crate::error::{StackError, call};
use crate::stack::SocketOptions;

/// `config` with what `options` ask for. Sizes of buffers are the payload they hold, which is what
/// is left of the kernel's after it has doubled them; a fixed size ends their tuning.
///
/// # Errors
/// A congestion control other than `cubic` and `reno`; a buffer of 1 GiB or more.
pub fn config_for(config: &Config, options: &SocketOptions) -> Result<Config, StackError> {
    let size = |bytes: usize| {
        u32::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes < WINDOW_MAX)
            .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
            .map_err(call("a buffer of 1 GiB or more"))
    };
    let mut config = config.clone();
    if let Some(bytes) = options.send_buffer_bytes {
        config.send_buffer = size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        config.receive_buffer = size(bytes)?;
        config.receive_buffer_max = 0;
    }
    if options.nodelay {
        config.segmentation.nagle = Nagle::Off;
    }
    match options.congestion_control.as_deref() {
        None => {}
        Some("cubic") => config.congestion = CongestionControl::Cubic,
        Some("reno") => config.congestion = CongestionControl::NewReno,
        Some(other) => {
            return Err(StackError::CongestionControl {
                asked: other.to_string(),
                available: "cubic reno".to_string(),
                allowed: "cubic reno".to_string(),
                error: io::ErrorKind::Unsupported.into(),
            });
        }
    }
    Ok(config)
}

/// RFC 7323 §2.2: the largest window.
const WINDOW_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: SocketOptions) -> Result<Config, String> {
        config_for(&Config::default(), &options).map_err(|error| error.to_string())
    }

    #[test]
    fn no_options_change_nothing() {
        assert_eq!(check(SocketOptions::default()), Ok(Config::default()));
    }

    #[test]
    fn a_fixed_buffer_is_not_tuned() {
        let config = check(SocketOptions {
            receive_buffer_bytes: Some(5000),
            ..SocketOptions::default()
        })
        .unwrap();
        assert_eq!(
            (config.receive_buffer, config.receive_buffer_max),
            (5000, 0)
        );
    }

    #[test]
    fn what_it_does_not_have_is_said() {
        let error = check(SocketOptions {
            congestion_control: Some("bbr".into()),
            ..SocketOptions::default()
        });
        assert!(error.unwrap_err().contains("available: cubic reno"));
        assert!(
            check(SocketOptions {
                send_buffer_bytes: Some(1 << 30),
                ..SocketOptions::default()
            })
            .is_err()
        );
    }
}
