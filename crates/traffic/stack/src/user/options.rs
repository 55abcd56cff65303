//! Socket options as settings of a connection.

use tcpcost_tcp::{Config, CongestionControl, Nagle};

use crate::error::StackError;
use crate::stack::SocketOptions;

/// Applies `options` to `config`. Buffer sizes are the payload that they hold, which is what the
/// kernel's buffers hold after doubling; a fixed size ends their tuning.
///
/// # Errors
/// A congestion control other than `cubic` and `reno`; a buffer of 1 GiB or more; MPTCP.
pub fn config_for(config: &Config, options: &SocketOptions) -> Result<Config, StackError> {
    let size = |option, bytes: usize| {
        let small = u32::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes < WINDOW_MAX);
        small.ok_or_else(|| StackError::Unsupported {
            option,
            reason: "a buffer of our TCP is smaller than 1 GiB".to_string(),
        })
    };
    if options.mptcp {
        return Err(StackError::Unsupported {
            option: "protocol",
            reason: "our TCP has one path".to_string(),
        });
    }
    let mut config = config.clone();
    if let Some(bytes) = options.send_buffer_bytes {
        config.send_buffer = size("send_buffer", bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        config.receive_buffer = size("receive_buffer", bytes)?;
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
            return Err(StackError::Unsupported {
                option: "congestion_control",
                reason: format!("our TCP has \"cubic\" and \"reno\", not \"{other}\""),
            });
        }
    }
    Ok(config)
}

/// Largest window (RFC 7323 §2.2).
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
        let error = error.unwrap_err();
        assert_eq!(
            error,
            "congestion_control: our TCP has \"cubic\" and \"reno\", not \"bbr\""
        );
        assert!(
            check(SocketOptions {
                send_buffer_bytes: Some(1 << 30),
                ..SocketOptions::default()
            })
            .is_err()
        );
    }
}
