//! Setting of the host that can be read and written: the unit of [`crate::apply`] and of the
//! [`crate::journal`].

use std::fmt;

use serde::{Deserialize, Serialize};
use tcpcost_knobs::{DeviceName, SysctlName};

use crate::device_knobs::DeviceSetting;
use crate::error::SystemError;
use crate::port::{self, Port};
use crate::sysctl;

/// Kind of setting, with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "setting")]
pub enum Setting {
    /// Knob of a device.
    Device(DeviceSetting),
    /// Value of a sysctl.
    Sysctl {
        /// Dotted name of the sysctl.
        name: SysctlName,
        /// Value, with white space as [`sysctl::normal`] makes it.
        value: String,
    },
    /// Device that is moved into another namespace.
    Port {
        /// Name of the device, here and there.
        device: DeviceName,
        /// State of the device.
        port: Port,
    },
}

impl Setting {
    /// Name of the knob in study files.
    pub fn knob(&self) -> String {
        match self {
            Setting::Device(setting) => setting.knob.clone(),
            Setting::Sysctl { name, .. } => format!("sysctl.{name}"),
            Setting::Port { .. } => "device".into(),
        }
    }

    /// Reads the current value: the same setting with that value.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn now(&self) -> Result<Setting, SystemError> {
        let mut now = self.clone();
        match &mut now {
            Setting::Device(setting) => setting.state = setting.now()?,
            Setting::Sysctl { name, value } => *value = sysctl::read(sysctl::root(), name)?,
            Setting::Port { device, port } => *port = port::read(device, &port.borrower)?,
        }
        Ok(now)
    }

    /// Writes the value. The kernel may accept a request and ignore it: compare with
    /// [`Setting::now`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write(&self) -> Result<(), SystemError> {
        match self {
            Setting::Device(setting) => setting.write(),
            Setting::Sysctl { name, value } => sysctl::set(sysctl::root(), name, value),
            Setting::Port { device, port } => port.put_back(device),
        }
    }

    /// True if two settings are the same except for the kernel's rounding.
    pub fn is_same(&self, other: &Setting) -> bool {
        match (self, other) {
            (Setting::Device(a), Setting::Device(b)) => a.is_same(b),
            _ => self == other,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Device(setting) => setting.fmt(f),
            Setting::Sysctl { name, value } => write!(f, "sysctl {name} = {value}"),
            Setting::Port { device, port } => {
                let addresses = port.addresses.iter();
                let addresses = addresses.map(|(address, prefix)| format!(" {address}/{prefix}"));
                let addresses: String = addresses.collect();
                match (port.is_here, port.is_up) {
                    (false, _) => write!(f, "{device} in another namespace"),
                    (true, true) => write!(f, "{device} here, up,{addresses}"),
                    (true, false) => write!(f, "{device} here, down,{addresses}"),
                }
            }
        }
    }
}
