//! Applies the settings of a cell to a device.
//!
//! Every change has the same five steps: read the former value; stop if it is already right; note
//! the former value in the journal; write; read back. At the end everything is read once more,
//! because a later change may undo an earlier one (turning sg off turns tso off).
//!
//! [`Journal::put_back`] restores the former values between cells, also for an end's own veth. A
//! namespace of our own needs only a journal in memory; the host's devices need one on disk.

use std::net::IpAddr;

use tcpcost_knobs::{DeviceName, DeviceOwner, DeviceSettings, KernelNameError, Value, find};

use crate::device_knobs::in_order;
use crate::error::SystemError;
use crate::journal::Journal;
use crate::setting::Setting;
use crate::sysctl;

/// Reason why a cell's settings are not applied.
#[derive(Debug)]
pub enum ApplyError {
    /// Knob that is not available here: the cell is skipped and the reason recorded.
    Unsupported {
        /// Name of the knob in study files.
        knob: String,
        /// Reason, in one line.
        reason: String,
    },
    /// Other error of the system.
    System(SystemError),
}

impl std::fmt::Display for ApplyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApplyError::Unsupported { knob, reason } => write!(f, "{knob}: {reason}"),
            ApplyError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<SystemError> for ApplyError {
    fn from(error: SystemError) -> ApplyError {
        ApplyError::System(error)
    }
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
    for &knob in settings.values.keys() {
        let refused = find(knob).and_then(|row| row.refused_by(owner));
        if let Some(reason) = refused {
            let (knob, reason) = (knob.to_string(), reason.to_string());
            return Err(ApplyError::Unsupported { knob, reason });
        }
    }
    let mut made = Vec::new();
    for (knob, setting) in in_order(device, peer, settings) {
        let setting = Setting::Device(setting.map_err(unsupported(knob))?);
        make(&setting, journal)?;
        made.push(setting);
    }
    for (name, value) in &settings.sysctls {
        let unsupported = |error: KernelNameError| ApplyError::Unsupported {
            knob: format!("sysctl.{name}"),
            reason: error.to_string(),
        };
        let setting = Setting::Sysctl {
            name: name.parse().map_err(unsupported)?,
            value: sysctl::normal(value),
        };
        make(&setting, journal)?;
        made.push(setting);
    }
    made.iter().try_for_each(check)
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
    let settings = DeviceSettings {
        values: [("steering", Value::Cpus(cpus.to_vec()))].into(),
        ..DeviceSettings::default()
    };
    let no_peer = IpAddr::from([0, 0, 0, 0]);
    apply(&settings, device, no_peer, owner, journal)
}

/// Converts an error of a knob's setting.
fn unsupported(knob: &str) -> impl FnOnce(SystemError) -> ApplyError {
    move |error| match error.is_unsupported() {
        true => ApplyError::Unsupported {
            knob: knob.to_string(),
            reason: error.to_string(),
        },
        false => ApplyError::System(error),
    }
}

fn make(setting: &Setting, journal: &mut Journal) -> Result<(), ApplyError> {
    let refused = |error: SystemError| match setting {
        Setting::Sysctl { name, value } if error.is_unsupported() => ApplyError::Unsupported {
            knob: setting.knob(),
            reason: sysctl::refusal(sysctl::root(), name, value, &error),
        },
        _ => unsupported(&setting.knob())(error),
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
    Err(ApplyError::Unsupported {
        knob: setting.knob(),
        reason: format!("asked for {setting}, the kernel made it {now}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lo() -> DeviceName {
        "lo".parse().unwrap()
    }

    #[test]
    fn the_hosts_loopback_gets_no_bottleneck_quickack_or_steering() {
        let peer = IpAddr::from([127, 0, 0, 1]);
        let mut journal = Journal::in_memory();
        for (name, value) in [
            ("bottleneck", Value::BitsPerS(1 << 30)),
            ("quickack", Value::Switch(true)),
        ] {
            let values = [(name, value)].into();
            let settings = DeviceSettings {
                values,
                ..DeviceSettings::default()
            };
            let error =
                apply(&settings, &lo(), peer, DeviceOwner::Loopback, &mut journal).unwrap_err();
            assert!(matches!(error, ApplyError::Unsupported { knob, .. } if knob == name));
        }
        let error = steer(&[0], &lo(), DeviceOwner::Loopback, &mut journal).unwrap_err();
        assert!(matches!(error, ApplyError::Unsupported { knob, .. } if knob == "steering"));
    }
}
