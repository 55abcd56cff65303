//! Situation that rules are tested on: counts of an interval, settings of the host, prices.

use std::collections::BTreeMap;

use tcpcost_counts::{Environment, Source};

use crate::causes::Counts;
use crate::prices::PriceList;

/// Settings of a host's port and of its connections, by the names of knobs and sysctls as in study files:
/// `tso` is `on`, `net.ipv4.tcp_autocorking` is `1`. A setting that was not read is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// Settings of a port as it was read back.
    pub fn of(port: &Environment) -> Settings {
        let mut settings = Settings::default();
        let word = |on: bool| if on { "on" } else { "off" };
        settings.set("device", &port.device);
        settings.set("mtu", port.mtu);
        settings.set("segmentation", &port.segmentation);
        for (name, on) in &port.offloads {
            settings.set(name, word(*on));
        }
        settings.set("gso_max_segs", port.gso_max_segs);
        settings.set("gso_max_size", port.gso_max_size);
        if let Some(bytes) = port.gro_max_size {
            settings.set("gro_max_size", bytes);
        }
        if let Some(on) = port.threaded_napi {
            settings.set("threaded_napi", word(on));
        }
        settings.set("qdisc", &port.qdisc);
        let has_quickack = port.route.contains(" quickack 1");
        settings.set("quickack", word(has_quickack));
        if let Some(mask) = &port.rps_cpus {
            let is_off = mask.chars().all(|digit| "0,".contains(digit));
            settings.set("rps", word(!is_off));
        }
        for (name, value) in &port.sysctls {
            settings.set(name, value);
        }
        if let Some(nic) = &port.nic {
            settings.set("driver", &nic.driver);
            for (name, value) in &nic.ethtool {
                settings.set(name, value);
            }
        }
        // The sysctl is the default of new connections.
        let default = port.sysctls.get("net.ipv4.tcp_congestion_control");
        if let Some(name) = port.congestion_control.as_ref().or(default) {
            settings.set("congestion_control", name);
        }
        for (name, value) in &port.connection {
            settings.set(name, value);
        }
        settings
    }

    /// Sets a value.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_string(), value.to_string());
    }

    /// Value of a setting; `None` if it was not read.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// First word of a setting as a number; `None` if it was not read or is no number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.split(' ').next()?.parse().ok()
    }

    /// All settings.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Situation of a host while a workload ran.
pub struct Situation<'a> {
    /// Counts of the interval.
    pub source: &'a dyn Source,
    /// Counts of causes in the same interval.
    pub counts: Counts,
    /// Length of the interval, ns.
    pub duration_ns: f64,
    /// CPU time of the workload in the interval, ns: its tasks, and softirqs and interrupts for its
    /// sockets. `None` if it was not measured, or is not of the same sockets as the counts.
    pub measured_ns: Option<f64>,
    /// Units of work in the interval: the cost is per unit. `None` if they were not counted.
    pub units: Option<f64>,
    /// True if the counts are of both ends of the connections: over loopback, or of all hosts of a trial.
    pub has_both_ends: bool,
    /// Settings of the host.
    pub settings: Settings,
    /// Release of the kernel (major, minor); `None` if it is unknown.
    pub kernel: Option<(u32, u32)>,
    /// Prices of this host, or the reason why there are none that apply.
    pub prices: Result<&'a PriceList, String>,
}

impl<'a> Situation<'a> {
    /// Situation by counts alone. The other fields are for the caller.
    pub fn of(source: &'a dyn Source, duration_ns: f64) -> Situation<'a> {
        Situation {
            source,
            counts: Counts::of(source),
            duration_ns,
            measured_ns: None,
            units: None,
            has_both_ends: false,
            settings: Settings::default(),
            kernel: None,
            prices: Err("no prices of this host".to_string()),
        }
    }

    /// Prices, if there are any that apply.
    pub(super) fn list(&self) -> Option<&'a PriceList> {
        self.prices.as_ref().ok().copied()
    }

    /// Share of some causes in the priced cost; `None` without prices or without a count.
    pub(super) fn share(&self, of: &[crate::Cause]) -> Option<f64> {
        let list = self.list()?;
        let whole = list.cost_ns(&self.counts);
        let some: Option<f64> = of
            .iter()
            .map(|&cause| Some(list.price(cause)?.ns * self.counts.get(cause)?))
            .sum();
        some.filter(|_| whole > 0.0).map(|some| some / whole)
    }
}

/// Release of a kernel from the text of `uname -r`: `6.18.44-cloud` is (6, 18).
pub fn release(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}
