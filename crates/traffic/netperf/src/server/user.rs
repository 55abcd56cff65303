//! User of a netserver that answers. It needs root only to listen. Afterwards clients can only ask for what
//! an ordinary user may have, for example a congestion control, a module for it, or a priority.

use std::fs;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::CapabilitySet;
use tcpcost_host::privileges::{become_user, keep_only, names};

use crate::Failure;

/// User without any rights on any host, and its number if /etc/passwd lacks it.
const NOBODY: (&str, u32) = ("nobody", 65534);

/// Changes to the given user, or to nobody if this is root, and drops all capabilities. Returns a sentence
/// about the user.
///
/// # Errors
/// There is no such user, or this user may not change to another.
pub fn settle(asked: Option<&str>) -> Result<String, Failure> {
    let own = geteuid();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = match asked {
        Some(asked) => Some(find(&known, asked).ok_or_else(|| {
            Failure::usage(format!(
                "-u {asked}: no such user in /etc/passwd, and no number"
            ))
        })?),
        None if own.is_root() && is_mapped(NOBODY.1) => {
            Some(find(&known, NOBODY.0).unwrap_or((NOBODY.1, NOBODY.1)))
        }
        None => None,
    };
    let failed = |error: tcpcost_host::error::SystemError| Failure::usage(error.to_string());
    let (user, left) = match user {
        Some((0, _)) if own.is_root() => {
            return Ok("runs as root with all privileges because of -u root".to_string());
        }
        Some((user, group)) if user != own.as_raw() => {
            if !own.is_root() {
                let asked = asked.unwrap_or_default();
                return Err(Failure::usage(format!(
                    "-u {asked}: only root can become another user"
                )));
            }
            let group = Gid::from_raw(group);
            let left =
                become_user(Uid::from_raw(user), group, CapabilitySet::empty()).map_err(failed)?;
            (user, left)
        }
        _ => (
            own.as_raw(),
            keep_only(CapabilitySet::empty()).map_err(failed)?,
        ),
    };
    Ok(match left.is_empty() {
        true => format!("runs as user {user}, with no capability"),
        false => format!("runs as user {user}, with {}", names(left)),
    })
}

/// User and group of an entry of passwd(5), by name or number. A number without an entry counts for both.
fn find(known: &str, asked: &str) -> Option<(u32, u32)> {
    let entries = known.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let user: u32 = fields.nth(1)?.parse().ok()?;
        Some((name, user, fields.next()?.parse().ok()?))
    });
    let number = asked.parse().ok();
    let mut entries = entries.filter(|(name, user, _)| *name == asked || Some(*user) == number);
    let entry = entries.next().map(|(_, user, group)| (user, group));
    entry.or(number.map(|number| (number, number)))
}

/// True if this user namespace has a user with this number.
fn is_mapped(user: u32) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(first)), Some(Ok(count))) = (numbers.next(), numbers.nth(1)) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&user)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let known = "root:x:0:0:root:/root:/bin/sh\nnobody:*:65534:65533:n:/:/bin/false\nbroken";
        assert_eq!(find(known, "nobody"), Some((65534, 65533)));
        assert_eq!(find(known, "65534"), Some((65534, 65533)));
        assert_eq!(find(known, "1234"), Some((1234, 1234)));
        assert_eq!(find(known, "broken"), None);
    }
}
