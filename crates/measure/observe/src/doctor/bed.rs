//! Checks of the parts of a `netns` bed: a veth pair, and the qdisc tbf for a bottleneck. Both are
//! made in a namespace that ends with its thread.

use super::{Check, kernel};
use tcpcost_host::error::{SystemError, remedy};
use tcpcost_host::qdisc::{self, Tbf};
use tcpcost_host::{link, namespace};

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

struct Kind {
    name: &'static str,
    option: &'static str,
    consequence: &'static str,
}

/// Checks both parts. `config` decides if this process may not make a namespace.
pub fn checks(config: Option<&str>) -> [Check; 2] {
    match tried() {
        Some((veth, tbf)) => [VETH.by_trial(&veth), TBF.by_trial(&tbf)],
        None => [VETH.by_config(config), TBF.by_config(config)],
    }
}

type Tried = Result<(), SystemError>;

/// Makes both parts in a new namespace. `None` if this process may not make one.
fn tried() -> Option<(Tried, Tried)> {
    let thread = std::thread::spawn(|| {
        namespace::enter_new().ok()?;
        let thread_id = u32::try_from(rustix::thread::gettid().as_raw_pid()).ok()?;
        // A rate that is never reached, on a loopback without traffic.
        let tbf = Tbf::new(1_000_000_000, 1 << 20, 65536);
        Some((
            link::create_veth("tcpcost0", "tcpcost1", thread_id),
            qdisc::set_tbf("lo", tbf),
        ))
    });
    thread.join().ok().flatten()
}

impl Kind {
    fn by_trial(&self, trial: &Tried) -> Check {
        match trial {
            Ok(()) => Check::ok(self.name, "made and removed in a namespace"),
            Err(error) => self.missing(error.to_string()),
        }
    }

    fn by_config(&self, config: Option<&str>) -> Check {
        match config.map(|config| kernel::has(config, self.option)) {
            Some(true) => Check::ok(self.name, format!("{} is set; not tried", self.option)),
            Some(false) => self.missing(format!("{} is not set", self.option)),
            None => Check::degraded(
                self.name,
                "not tried, because privileges are missing",
                "it is not known whether the kernel has it",
                remedy(),
            ),
        }
    }

    fn missing(&self, found: String) -> Check {
        Check::missing(
            self.name,
            found,
            self.consequence,
            format!(
                "use a kernel with {}, and its module installed",
                self.option
            ),
        )
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
        let check = TBF.by_trial(&Err(refusal));
        assert_eq!(check.verdict, Verdict::Missing);
        assert!(check.found.contains("set tbf"), "{check:?}");
    }

    #[test]
    fn trying_moves_nobody() {
        let before = namespace::inode().unwrap();
        let _ = tried();
        assert_eq!(namespace::inode().unwrap(), before);
    }
}
