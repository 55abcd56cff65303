//! Checks of the parts of a bed between namespaces: a veth pair, the qdisc tbf for a bottleneck, and a TAP. All
//! are made in a namespace that ends with its thread.

use super::{Check, kernel};
use tcpcost_host::error::{SystemError, remedy};
use tcpcost_host::qdisc::{self, Tbf};
use tcpcost_host::{link, namespace};
use tcpcost_link::{Layer, Offloads, Tap, TapError};

const VETH: Kind = Kind {
    name: "veth",
    option: "CONFIG_VETH",
    consequence: "netns beds cannot be made, only loopback",
};
const TBF: Kind = Kind {
    name: "qdisc_tbf",
    option: "CONFIG_NET_SCH_TBF",
    consequence: "bed.bottleneck is not available",
};
const TAP: Kind = Kind {
    name: "tap",
    option: "CONFIG_TUN",
    consequence: "our TCP has no path to the kernel's (tap beds, peer, relay --mode user), and no wire of ours has a delay or loss (netem may)",
};

struct Kind {
    name: &'static str,
    option: &'static str,
    consequence: &'static str,
}

/// Reason why a part cannot be made.
#[derive(Debug)]
struct Refusal {
    /// Words of the system.
    found: String,
    /// Advice, if the error tells the cause.
    advice: Option<&'static str>,
}

impl From<SystemError> for Refusal {
    fn from(error: SystemError) -> Refusal {
        Refusal {
            found: error.to_string(),
            advice: None,
        }
    }
}

impl From<TapError> for Refusal {
    fn from(error: TapError) -> Refusal {
        Refusal {
            advice: error.remedy(),
            found: format!("{}: {}", error.tried, error.inner),
        }
    }
}

/// Checks all parts. `config` decides if this process may not make a namespace.
pub fn checks(config: Option<&str>) -> [Check; 3] {
    match tried() {
        Some([veth, tbf, tap]) => [VETH.by_trial(veth), TBF.by_trial(tbf), TAP.by_trial(tap)],
        None => [
            VETH.by_config(config),
            TBF.by_config(config),
            match Tap::check_device() {
                Ok(()) => TAP.by_config(config),
                Err(error) => TAP.missing(error.into()),
            },
        ],
    }
}

/// Makes all parts in a new namespace. `None` if this process may not make one.
fn tried() -> Option<[Result<(), Refusal>; 3]> {
    let thread = std::thread::spawn(|| {
        namespace::enter_new().ok()?;
        let thread_id = u32::try_from(rustix::thread::gettid().as_raw_pid()).ok()?;
        // A rate that is never reached, on a loopback without traffic.
        let tbf = Tbf::new(1_000_000_000, 1 << 20, 65536);
        let tap = Tap::open("tcpcost2", Layer::Ethernet, Offloads::ALL);
        Some([
            link::create_veth("tcpcost0", "tcpcost1", thread_id).map_err(Refusal::from),
            qdisc::set_tbf("lo", tbf).map_err(Refusal::from),
            tap.map(drop).map_err(Refusal::from),
        ])
    });
    thread.join().ok().flatten()
}

impl Kind {
    fn by_trial(&self, trial: Result<(), Refusal>) -> Check {
        match trial {
            Ok(()) => Check::ok(self.name, "made and removed in a namespace"),
            Err(refusal) => self.missing(refusal),
        }
    }

    fn by_config(&self, config: Option<&str>) -> Check {
        match config.map(|config| kernel::has(config, self.option)) {
            Some(true) => Check::ok(self.name, format!("{} is set; not tried", self.option)),
            Some(false) => self.missing(Refusal {
                found: format!("{} is not set", self.option),
                advice: None,
            }),
            None => Check::degraded(
                self.name,
                "not tried, because privileges are missing",
                "it is not known whether the kernel has it",
                remedy(),
            ),
        }
    }

    fn missing(&self, refusal: Refusal) -> Check {
        let advice = refusal.advice.map(String::from).unwrap_or_else(|| {
            format!(
                "use a kernel with {}, and its module installed",
                self.option
            )
        });
        Check::missing(self.name, refusal.found, self.consequence, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn where_nothing_can_be_tried_the_configuration_answers() {
        let config = "CONFIG_VETH=m\n# CONFIG_NET_SCH_TBF is not set\n";
        assert_eq!(VETH.by_config(Some(config)).verdict, Verdict::Ok);
        assert_eq!(TBF.by_config(Some(config)).verdict, Verdict::Missing);
        assert_eq!(TBF.by_config(None).verdict, Verdict::Degraded);
    }

    #[test]
    fn a_refusal_keeps_the_kernels_words() {
        let refusal = SystemError::new("set tbf", std::io::Error::from_raw_os_error(libc::ENOENT));
        let check = TBF.by_trial(Err(refusal.into()));
        assert_eq!(check.verdict, Verdict::Missing);
        assert!(check.found.contains("set tbf"), "{check:?}");
    }

    #[test]
    fn a_remedy_that_the_error_tells_comes_before_the_general_one() {
        let refused = |error| {
            let inner = std::io::Error::from_raw_os_error(error);
            let tried = "open /dev/net/tun";
            TAP.by_trial(Err(TapError { tried, inner }.into()))
        };
        let absent = refused(libc::ENOENT);
        assert!(absent.advice.unwrap().contains("--device /dev/net/tun"));
        assert!(!absent.found.contains("--device"), "{}", absent.found);
        assert!(refused(libc::EIO).advice.unwrap().contains("CONFIG_TUN"));
    }

    #[test]
    fn trying_moves_nobody() {
        let before = namespace::inode().unwrap();
        let _ = tried();
        assert_eq!(namespace::inode().unwrap(), before);
    }
}
