//! Sysctls by their dotted names.
//!
//! As sysctl(8) has it: in `net.ipv4.conf.eth0/1.forwarding` the slash stands for a dot of the
//! device's name; a name whose first separator is a slash is taken as the path it is.

use std::path::{Path, PathBuf};

use crate::error::{SystemError, read_trimmed, write};

/// Where a sysctl is below `root`.
///
/// # Errors
/// A name that leads elsewhere: empty parts, `.` or `..`.
pub fn path(root: &Path, name: &str) -> Result<PathBuf, SystemError> {
    let slashed = match name.find(['.', '/']) {
        Some(first) if name.as_bytes()[first] == b'/' => name.to_string(),
        _ => name
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
    };
    if slashed
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."))
    {
        return Err(SystemError::strange(
            format!("sysctl {name:?}"),
            "not a name such as net.ipv4.tcp_rmem",
        ));
    }
    Ok(root.join(slashed))
}

/// Reads a sysctl, runs of white space as one space.
///
/// # Errors
/// ENOENT where the kernel, or this namespace, has none of this name.
pub fn read(root: &Path, name: &str) -> Result<String, SystemError> {
    let text = read_trimmed(&path(root, name)?)?;
    Ok(normal(&text))
}

/// Writes a sysctl. What the kernel made of it is to be read back.
///
/// # Errors
/// ENOENT, EINVAL for a value that it does not take, EACCES, EROFS.
pub fn set(root: &Path, name: &str, value: &str) -> Result<(), SystemError> {
    write(&path(root, name)?, value)
}

/// A value as it is compared: `4096\t131072 6291456` is `4096 131072 6291456`.
pub fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// /proc/sys: of /proc/sys/net every thread sees its own network namespace's.
pub fn root() -> &'static Path {
    Path::new("/proc/sys")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<&str>) {
        let found = path(Path::new("/r"), name).ok();
        assert_eq!(found, expected.map(|at| Path::new("/r").join(at)), "{name}");
    }

    #[test]
    fn dots_and_slashes_are_as_sysctl_has_them() {
        check("net.ipv4.tcp_rmem", Some("net/ipv4/tcp_rmem"));
        check(
            "net.ipv4.conf.eth0/1.forwarding",
            Some("net/ipv4/conf/eth0.1/forwarding"),
        );
        check(
            "net/ipv4/conf/eth0.1/forwarding",
            Some("net/ipv4/conf/eth0.1/forwarding"),
        );
    }

    #[test]
    fn a_name_cannot_leave_the_tree() {
        for name in [
            "",
            "net//x",
            "/etc/passwd",
            "net/../../etc/passwd",
            "net..x",
        ] {
            check(name, None);
        }
    }

    #[test]
    fn a_missing_sysctl_is_an_error_that_names_the_file_and_makes_none() {
        let root = tempfile::tempdir().unwrap();
        let error = set(root.path(), "net.core.nonesuch", "1").unwrap_err();
        assert!(error.to_string().contains("net/core/nonesuch"), "{error}");
        assert!(error.is_unsupported());
        assert!(read(root.path(), "net.core.nonesuch").is_err());
    }

    #[test]
    fn white_space_is_normal() {
        assert_eq!(normal("4096\t131072\t6291456\n"), "4096 131072 6291456");
    }
}
