//! Names that become part of a path below /sys or /proc: of a network device, or of a sysctl.
//!
//! No text in a value of these types makes such a path lead elsewhere.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Name of a network device, as dev_valid_name of net/core/dev.c checks it: 1 to 15 bytes, no `/`,
/// `:`, white space or control character, neither `.` nor `..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

/// Name of a sysctl that a study may set: dotted, below `net.`, of letters, digits, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SysctlName(String);

/// Error for a text that is no such name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelNameError {
    /// Text that cannot be the name of a device.
    #[error("{0:?} is no name of a network device")]
    Device(String),
    /// Text that is no sysctl that a study may set.
    #[error("{0:?} is no sysctl that a study may set, such as net.ipv4.tcp_rmem")]
    Sysctl(String),
}

impl FromStr for DeviceName {
    type Err = KernelNameError;

    fn from_str(text: &str) -> Result<DeviceName, KernelNameError> {
        let plain = |c: char| c != '/' && c != ':' && !c.is_whitespace() && !c.is_control();
        let sound = (1..16).contains(&text.len()) && text != "." && text != "..";
        if !sound || !text.chars().all(plain) {
            return Err(KernelNameError::Device(text.to_string()));
        }
        Ok(DeviceName(text.to_string()))
    }
}

impl FromStr for SysctlName {
    type Err = KernelNameError;

    fn from_str(text: &str) -> Result<SysctlName, KernelNameError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let is_part = |part: &str| !part.is_empty() && part.chars().all(plain);
        let sound = text.starts_with("net.") && text.split('.').all(is_part);
        if !sound {
            return Err(KernelNameError::Sysctl(text.to_string()));
        }
        Ok(SysctlName(text.to_string()))
    }
}

macro_rules! text_of {
    ($($name:ident),+) => {$(
        impl TryFrom<String> for $name {
            type Error = KernelNameError;

            fn try_from(text: String) -> Result<$name, KernelNameError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )+};
}

text_of!(DeviceName, SysctlName);

impl AsRef<Path> for DeviceName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for sound in ["lo", "eth0.100", "enp3s0f1np1", "wlan\u{e4}", "..."] {
            assert_eq!(sound.parse::<DeviceName>().unwrap().to_string(), sound);
        }
        let devices = [
            "",
            ".",
            "..",
            "../../tmp/x",
            "a/b",
            "a:1",
            "a b",
            "a\n",
            "a234567890123456",
        ];
        for wrong in devices {
            assert!(wrong.parse::<DeviceName>().is_err(), "{wrong:?}");
            let text = serde_json::to_string(wrong).unwrap();
            assert!(
                serde_json::from_str::<DeviceName>(&text).is_err(),
                "{wrong:?}"
            );
        }
        for sound in ["net.ipv4.tcp_rmem", "net.ipv6.conf.tc-client.disable_ipv6"] {
            assert_eq!(sound.parse::<SysctlName>().unwrap().to_string(), sound);
        }
        let sysctls = [
            "kernel.core_pattern",
            "net",
            "net.",
            "net..x",
            "net/../x",
            "net.a/b",
            "net.x\0",
        ];
        for wrong in sysctls {
            assert!(wrong.parse::<SysctlName>().is_err(), "{wrong:?}");
            let text = serde_json::to_string(wrong).unwrap();
            assert!(
                serde_json::from_str::<SysctlName>(&text).is_err(),
                "{wrong:?}"
            );
        }
    }
}
