//! Formats the first line of the output: the test, both ends, special options (netperf's `nettest_bsd.c`,
//! `print_top_test_header`).

use std::fmt::Write;
use std::net::SocketAddr;

use crate::options::Options;

/// The line. Unlike netperf's it has the address in whole behind the name.
pub fn banner(
    options: &Options,
    source: &str,
    local: SocketAddr,
    destination: &str,
    remote: SocketAddr,
) -> String {
    let name = match options.test.banner {
        Some(name) => name.to_string(),
        None => format!("OMNI {} TEST", options.direction_name()),
    };
    let family = |address: SocketAddr| match address {
        SocketAddr::V4(_) => "AF_INET",
        SocketAddr::V6(_) => "AF_INET6",
    };
    let mut line = format!(
        "{name} from {source} ({}) port {} {} to {destination} ({}) port {} {}",
        local.ip(),
        local.port(),
        family(local),
        remote.ip(),
        remote.port(),
        family(remote),
    );
    let confidence = options.confidence;
    if confidence.most > 1 {
        let _ = write!(
            line,
            " : +/-{:.3}% @ {:2}% conf. {}",
            confidence.width * 50.0,
            confidence.level,
            if confidence.on_result_only {
                " on result only"
            } else {
                ""
            }
        );
    }
    if options.nodelay {
        line += " : nodelay";
    }
    line += " : demo";
    if options.test.reports_round_trips {
        let _ = write!(line, " : first burst {}", options.burst);
    }
    if options.affinity.local.is_some() || options.affinity.remote.is_some() {
        line += " : cpu bind";
    }
    line + "\n"
}
