//! Sysctls by their dotted names.
//!
//! Names are as in sysctl(8): in `net.ipv4.conf.eth0/1.forwarding` the slash stands for a dot of
//! the device's name; a name whose first separator is a slash is a path.

use std::fs;
use std::path::{Path, PathBuf};

use tcpcost_knobs::nearest;

use crate::error::{SystemError, read_trimmed, write};

/// Path of a sysctl below `root`.
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

/// Reads a sysctl, with runs of white space as one space.
///
/// # Errors
/// ENOENT if the kernel, or this namespace, has no sysctl of this name.
pub fn read(root: &Path, name: &str) -> Result<String, SystemError> {
    let text = read_trimmed(&path(root, name)?)?;
    Ok(normal(&text))
}

/// Writes a sysctl. The kernel may change the value: read it back.
///
/// # Errors
/// ENOENT; EINVAL for a value that the kernel does not accept; EACCES; EROFS.
pub fn set(root: &Path, name: &str, value: &str) -> Result<(), SystemError> {
    write(&path(root, name)?, value)
}

/// Reason why a sysctl cannot be set, with a remedy: there is none of this name, or the kernel does
/// not accept the value.
pub fn refusal(root: &Path, name: &str, value: &str, error: &SystemError) -> String {
    let Ok(at) = path(root, name) else {
        return error.to_string();
    };
    match (error.source.raw_os_error(), read_trimmed(&at)) {
        (Some(libc::ENOENT), Err(_)) => {
            let meant = sibling(root, &at)
                .map_or_else(String::new, |near| format!(": did you mean {near}?"));
            format!(
                "no such sysctl in this kernel, or none in a network namespace of its own{meant}"
            )
        }
        // For a word that is not in the kernel's list, such as an unknown congestion control, the
        // error is ENOENT.
        (Some(libc::EINVAL | libc::ERANGE | libc::ENOENT), Ok(now)) => {
            format!(
                "the kernel does not accept \"{value}\" (current value \"{}\")",
                normal(&now)
            )
        }
        _ => error.to_string(),
    }
}

/// Sysctl in the same folder whose name is nearest, in dots.
fn sibling(root: &Path, at: &Path) -> Option<String> {
    let folder = at.parent()?;
    let names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let near = nearest(at.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    let path = folder.join(near);
    let path = path.strip_prefix(root).ok()?.to_str()?;
    // A dot in a device's name is written as a slash, see `path`.
    Some(
        path.chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
    )
}

/// Normalises a value for comparison: `4096\t131072 6291456` becomes `4096 131072 6291456`.
pub fn normal(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns /proc/sys. Below /proc/sys/net every thread sees the sysctls of its own network
/// namespace.
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
    fn a_wrong_name_and_a_wrong_value_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("net/ipv4");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("tcp_sack"), "1\n").unwrap();
        let refused = |name: &str, code: i32| {
            let error = SystemError::new("tried", std::io::Error::from_raw_os_error(code));
            refusal(root.path(), name, "yes", &error)
        };
        let of_name = refused("net.ipv4.tcp_sacc", libc::ENOENT);
        assert!(
            of_name.ends_with("did you mean net.ipv4.tcp_sack?"),
            "{of_name}"
        );
        let far = refused("net.ipv4.xyz", libc::ENOENT);
        assert!(far.ends_with("of its own"), "{far}");
        let of_value = "the kernel does not accept \"yes\" (current value \"1\")";
        assert_eq!(refused("net.ipv4.tcp_sack", libc::EINVAL), of_value);
        assert!(refused("net.ipv4.tcp_sack", libc::EACCES).contains(crate::error::remedy()));
    }

    #[test]
    fn white_space_is_normal() {
        assert_eq!(normal("4096\t131072\t6291456\n"), "4096 131072 6291456");
    }
}
