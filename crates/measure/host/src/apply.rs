//! Applies the settings of a cell to a device.
//!
//! Every change has the same five steps: read the former value; stop if it is already right; note
//! the former value in the journal; write; read back. At the end everything is read once more,
//! because a later change may undo an earlier one (turning sg off turns tso off).
//!
//! [`Journal::put_back`] restores the former values between cells, also for an end's own veth. A
//! namespace of our own needs only a journal in memory; the host's devices need one on disk.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use tcpcost_knobs::{
    DeviceName, DeviceOwner, DeviceSettings, KernelNameError, KnobError, Segmentation,
};

use crate::channels::{Channels, Rss};
use crate::error::SystemError;
use crate::ethtool::OFFLOADS;
use crate::irq;
use crate::journal::Journal;
use crate::link;
use crate::qdisc::Tbf;
use crate::setting::Setting;
use crate::sysctl;

/// Reason why a cell's settings are not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Knob that is not available here: the cell is skipped and the reason recorded.
    #[error(transparent)]
    Unsupported(#[from] KnobError),
    /// Other error of the system.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Applies `settings` to `device` and to the sysctls of this network namespace.
///
/// A bottleneck, a qdisc and quickack are unsupported on a device that is not the bed's own,
/// because all traffic of the host uses its route and qdisc. After an error the settings are partly
/// applied: [`Journal::put_back`] restores the former values.
///
/// # Errors
/// See [`ApplyError`].
pub fn apply(
    settings: &DeviceSettings,
    device: &DeviceName,
    peer: IpAddr,
    owner: DeviceOwner,
    journal: &mut Journal,
) -> Result<(), ApplyError> {
    let mut wanted = wanted(settings, device, peer)?;
    if let Some(refused) = wanted.iter().find_map(|setting| refuse(setting, owner)) {
        return Err(refused.into());
    }
    for setting in &wanted {
        make(setting, journal)?;
    }
    if let Some(cpus) = &settings.irq_cpus {
        // Not earlier: a device's interrupts change with its channels.
        let setting = interrupts(device, cpus)?;
        make(&setting, journal)?;
        wanted.push(setting);
    }
    for setting in &wanted {
        check(setting)?;
    }
    Ok(())
}

/// Steers the receive work of `device` to these CPUs; an empty list turns steering off. The change
/// is noted, and [`Journal::put_back`] restores it.
///
/// # Errors
/// Unsupported on the loopback, and in an unprivileged user namespace.
pub fn steer(
    cpus: &[usize],
    device: &DeviceName,
    owner: DeviceOwner,
    journal: &mut Journal,
) -> Result<(), ApplyError> {
    let mut cpus = cpus.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let device = device.clone();
    let setting = Setting::Steering { device, cpus };
    if let Some(refused) = refuse(&setting, owner) {
        return Err(refused.into());
    }
    make(&setting, journal)
}

fn interrupts(device: &DeviceName, cpus: &[usize]) -> Result<Setting, ApplyError> {
    let irqs = irq::of_device(Path::new("/sys"), device).map_err(unsupported("irq_cpus"))?;
    Ok(Setting::Interrupts {
        device: device.clone(),
        placement: irq::in_turn(&irqs, cpus),
    })
}

/// Converts an error of a knob that happened before its setting was made.
fn unsupported(knob: &str) -> impl FnOnce(SystemError) -> ApplyError {
    move |error| match error.is_unsupported() {
        true => KnobError::new(knob, error.to_string()).into(),
        false => ApplyError::System(error),
    }
}

fn make(setting: &Setting, journal: &mut Journal) -> Result<(), ApplyError> {
    let refused = |error: SystemError| {
        if error.is_unsupported() {
            let knob = setting.knob();
            let reason = match setting {
                Setting::Sysctl { name, value } => {
                    sysctl::refusal(sysctl::root(), name, value, &error)
                }
                _ => error.to_string(),
            };
            KnobError { knob, reason }.into()
        } else {
            ApplyError::System(error)
        }
    };
    let former = setting.now().map_err(refused)?;
    if former.is_same(setting) {
        return Ok(());
    }
    journal.note(former)?;
    setting.write().map_err(refused)?;
    check(setting)
}

fn check(setting: &Setting) -> Result<(), ApplyError> {
    let now = setting.now()?;
    if now.is_same(setting) {
        return Ok(());
    }
    let reason = format!("asked for {setting}, the kernel made it {now}");
    Err(KnobError::new(setting.knob(), reason).into())
}

/// Error if a device of this owner cannot have the setting.
fn refuse(setting: &Setting, owner: DeviceOwner) -> Option<KnobError> {
    // Settings that affect all traffic of the host.
    let is_of_bed = matches!(
        setting,
        Setting::Bottleneck { .. } | Setting::Quickack { .. } | Setting::Qdisc { .. }
    );
    let is_of_device = matches!(
        setting,
        Setting::Steering { .. }
            | Setting::ThreadedNapi { .. }
            | Setting::Ethtool { .. }
            | Setting::Channels { .. }
            | Setting::Rss { .. }
            | Setting::Interrupts { .. }
    );
    let reason = match owner {
        DeviceOwner::Loopback if is_of_bed || is_of_device => {
            "only in the netns bed: other programs use the host's loopback, too"
        }
        DeviceOwner::Host if is_of_bed => {
            "only in the netns bed: other programs use the host's device, too"
        }
        _ => return None,
    };
    Some(KnobError::new(setting.knob(), reason))
}

/// Settings to make, in their order. Each is there once: a single offload or gso_max_segs overrides
/// what the segmentation regime sets.
fn wanted(
    settings: &DeviceSettings,
    device: &DeviceName,
    peer: IpAddr,
) -> Result<Vec<Setting>, ApplyError> {
    let DeviceSettings {
        mtu,
        segmentation,
        offloads,
        gso_max_segs,
        gso_max_bytes,
        gro_max_bytes,
        threaded_napi,
        ethtool,
        irq_cpus: _, // Not known before the others are set.
        qdisc,
        bottleneck_bits_per_s,
        bottleneck_queue_bytes,
        quickack,
        ack_filter: _, // No setting of the host: a program of the trial.
        sysctls,
    } = settings;
    let device = || device.clone();
    let mut wanted = Vec::new();
    wanted.extend(mtu.map(|bytes| {
        let device = device();
        Setting::Mtu { device, bytes }
    }));
    let switches = switches(*segmentation, offloads).into_iter();
    wanted.extend(switches.map(|(name, on)| Setting::Offload {
        device: device(),
        name: name.to_string(),
        on,
    }));
    let per_mss = (*segmentation == Some(Segmentation::PerMss)).then_some(1);
    wanted.extend(gso_max_segs.or(per_mss).map(|segments| {
        let device = device();
        Setting::GsoMaxSegs { device, segments }
    }));
    if let &Some(bytes) = gso_max_bytes {
        wanted.push(gso_max_size(device(), bytes)?);
    }
    if let &Some(bytes) = gro_max_bytes {
        wanted.push(gro_max_size(device(), bytes)?);
    }
    wanted.extend(threaded_napi.map(|on| {
        let device = device();
        Setting::ThreadedNapi { device, on }
    }));
    // adaptive_rx is turned off first, because the driver chooses rx_usecs while it is on. Channels
    // come before RSS, which names their queues. The order of the names gives both.
    for (name, &number) in ethtool {
        wanted.push(ethtool_number(device(), name, number)?);
    }
    if qdisc.is_some() {
        let (device, kind) = (device(), qdisc.clone());
        wanted.push(Setting::Qdisc { device, kind });
    }
    for (name, value) in sysctls {
        let unsupported =
            |error: KernelNameError| KnobError::new(format!("sysctl.{name}"), error.to_string());
        wanted.push(Setting::Sysctl {
            name: name.parse().map_err(unsupported)?,
            value: sysctl::normal(value),
        });
    }
    wanted.extend(quickack.map(|on| {
        let device = device();
        Setting::Quickack { device, peer, on }
    }));
    if let &Some(rate) = bottleneck_bits_per_s {
        let gso_max_size = match gso_max_bytes {
            Some(bytes) => *bytes,
            None => link::read(&device())?.gso_max_size,
        };
        let tbf = Some(Tbf::new(rate, *bottleneck_queue_bytes, gso_max_size));
        let device = device();
        wanted.push(Setting::Bottleneck { device, tbf });
    }
    Ok(wanted)
}

fn gso_max_size(device: DeviceName, bytes: u32) -> Result<Setting, ApplyError> {
    let has_own_ipv4_limit = link::read(&device)?.gso_ipv4_max_size.is_some();
    if bytes > GSO_LEGACY_MAX_SIZE && !has_own_ipv4_limit {
        let reason = "beyond 65536 bytes IPv4 needs gso_ipv4_max_size, of Linux 6.3";
        return Err(KnobError::new("gso_max_size", reason).into());
    }
    Ok(Setting::GsoMaxSize {
        device,
        bytes,
        ipv4_bytes: has_own_ipv4_limit.then_some(bytes),
    })
}

fn gro_max_size(device: DeviceName, bytes: u32) -> Result<Setting, SystemError> {
    let has_own_ipv4_limit = link::read(&device)?.gro_ipv4_max_size.is_some();
    Ok(Setting::GroMaxSize {
        device,
        bytes,
        ipv4_bytes: has_own_ipv4_limit.then_some(bytes),
    })
}

fn ethtool_number(device: DeviceName, name: &str, number: u32) -> Result<Setting, ApplyError> {
    Ok(match name {
        "channels" => Setting::Channels {
            channels: Channels::for_device(&device, number).map_err(unsupported(name))?,
            device,
        },
        "rss_queues" => Setting::Rss {
            device,
            table: Rss::Even(number),
        },
        _ => Setting::Ethtool {
            device,
            name: name.to_string(),
            number,
        },
    })
}

/// Offloads of a segmentation regime, overridden by single ones, in the order of [`OFFLOADS`].
fn switches(
    segmentation: Option<Segmentation>,
    offloads: &BTreeMap<&'static str, bool>,
) -> Vec<(&'static str, bool)> {
    let mut switches: BTreeMap<&str, bool> = regime(segmentation).iter().copied().collect();
    switches.extend(offloads);
    let in_order = OFFLOADS.iter();
    in_order
        .filter_map(|&name| Some((name, *switches.get(name)?)))
        .collect()
}

/// Offloads of a segmentation regime. `per-mss` has none: gso_max_segs 1 suffices, whichever
/// component would split.
fn regime(segmentation: Option<Segmentation>) -> &'static [(&'static str, bool)] {
    match segmentation {
        None | Some(Segmentation::PerMss) => &[],
        Some(Segmentation::SoftwareGso) => &[("tso", false), ("gso", true)],
        Some(Segmentation::Tso) => &[
            ("tx_checksum", true),
            ("sg", true),
            ("tso", true),
            ("gso", true),
        ],
    }
}

/// Limit for IPv4 on kernels without a limit of its own (linux/netdevice.h).
const GSO_LEGACY_MAX_SIZE: u32 = 65536;

#[cfg(test)]
mod tests {
    use super::*;

    fn lo() -> DeviceName {
        "lo".parse().unwrap()
    }

    fn words(settings: &DeviceSettings) -> Vec<String> {
        let peer = IpAddr::from([10, 0, 0, 2]);
        let wanted = wanted(settings, &lo(), peer).unwrap();
        wanted.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn offloads_are_set_in_the_order_that_tso_needs_and_override_the_regime() {
        let settings = DeviceSettings {
            segmentation: Some(Segmentation::Tso),
            offloads: [("gro", true), ("sg", false)].into(),
            ..DeviceSettings::default()
        };
        let expected = ["tx_checksum on", "sg off", "tso on", "gso on", "gro on"];
        assert_eq!(
            words(&settings),
            expected.map(|word| format!("{word} of lo"))
        );
    }

    #[test]
    fn per_mss_is_gso_max_segs_unless_that_is_given() {
        let mut settings = DeviceSettings {
            segmentation: Some(Segmentation::PerMss),
            ..DeviceSettings::default()
        };
        assert_eq!(words(&settings), ["gso_max_segs 1 of lo"]);
        settings.gso_max_segs = Some(2);
        assert_eq!(words(&settings), ["gso_max_segs 2 of lo"]);
    }

    #[test]
    fn the_hosts_loopback_gets_no_bottleneck_quickack_or_steering() {
        let peer = IpAddr::from([127, 0, 0, 1]);
        let mut journal = Journal::in_memory();
        let bottleneck = DeviceSettings {
            bottleneck_bits_per_s: Some(1 << 30),
            ..DeviceSettings::default()
        };
        let quickack = DeviceSettings {
            quickack: Some(true),
            ..DeviceSettings::default()
        };
        for (settings, name) in [(bottleneck, "bottleneck"), (quickack, "quickack")] {
            let error =
                apply(&settings, &lo(), peer, DeviceOwner::Loopback, &mut journal).unwrap_err();
            assert!(matches!(error, ApplyError::Unsupported(error) if error.knob == name));
        }
        let error = steer(&[0], &lo(), DeviceOwner::Loopback, &mut journal).unwrap_err();
        assert!(matches!(error, ApplyError::Unsupported(error) if error.knob == "steering"));
    }

    #[test]
    fn asking_for_nothing_does_nothing() {
        assert_eq!(words(&DeviceSettings::default()), [""; 0]);
    }
}
