//! The beds that this user can have on this host, and the bed that a cell asks for.

use tcpcost_host::namespace::{self, NamespaceMethod};
use tcpcost_study::{Bed as Kind, Cell, HostName, Reach, Study, Value, Warning, WarningCode};

/// Beds that this user can have on this host.
pub struct Access {
    /// Reason why network namespaces are not available. `None` if they are, so that `bed = "auto"` means `netns`.
    pub no_netns: Option<String>,
    /// Consequences for the measurement.
    pub warnings: Vec<Warning>,
}

impl Access {
    /// Checks for network namespaces if the study needs them, and enters a user namespace if that is necessary.
    pub fn gain(study: &Study) -> Access {
        let makes = |cell: &Cell| match cell.knobs.names_hosts() {
            // One host with a namespace of its own is enough: a device is moved there.
            true => {
                let mut hosts = cell.knobs.named_hosts().into_iter();
                hosts.any(|host| cell.knobs.reach(host) == Some(Reach::Netns))
            }
            false => bed_word(cell) != "loopback",
        };
        let wanted = study.cells.iter().any(makes);
        if !wanted {
            return Access {
                no_netns: Some("not needed by this study".to_string()),
                warnings: Vec::new(),
            };
        }
        let gained = match namespace::can_make_namespaces() {
            Ok(NamespaceMethod::Privileged) => Ok(None),
            Ok(NamespaceMethod::UserNamespace) => {
                namespace::enter_user_namespace().map(|()| Some(IN_USER_NAMESPACE.to_string()))
            }
            Err(error) => Err(error),
        };
        let warning = |text: String| Warning::new(WarningCode::Other, text);
        match gained {
            Ok(text) => Access {
                no_netns: None,
                warnings: text.map(warning).into_iter().collect(),
            },
            Err(error) => {
                let text = format!(
                    "network namespaces are not available ({error}): cells with bed = \"auto\" run over loopback, where CPU time, offloads and routes cannot be separated by end"
                );
                Access {
                    no_netns: Some(error.to_string()),
                    warnings: vec![warning(text)],
                }
            }
        }
    }
}

fn bed_word(cell: &Cell) -> String {
    cell.knobs.word("bed").expect("the bed has a default")
}

/// The bed that a cell asks for with its knobs `bed` and `stack`. On error, that bed and why it is not available.
pub fn bed_of(cell: &Cell, no_netns: Option<&str>) -> Result<Kind, (Kind, String)> {
    let is_ours =
        |host| cell.knobs.value_at(host, "stack") == Some(Value::Word("user".to_string()));
    let word = bed_word(cell);
    if cell.knobs.names_hosts() {
        let kind = Kind::of_named(&cell.knobs).map_err(|error| (Kind::Hosts, error.to_string()))?;
        return match word.as_str() {
            "auto" => Ok(kind),
            _ if word == kind.word() => Ok(kind),
            _ => Err((kind, format!("{word} makes its own hosts: remove [hosts]"))),
        };
    }
    if word == Kind::Hosts.word() {
        return Err((
            Kind::Hosts,
            "no hosts are named: [hosts] names them".to_string(),
        ));
    }
    let (kind, stacks) = match HostName::PAIR.map(is_ours) {
        [false, false] if word == "loopback" || (word == "auto" && no_netns.is_some()) => {
            (Kind::Loopback, "kernel at both ends")
        }
        [false, false] => (Kind::Netns, "kernel at both ends"),
        [true, true] => (Kind::Memory, "user at both ends"),
        _ => (Kind::Tap, "user at one end"),
    };
    if word != "auto" && word != kind.word() {
        let fits = kind.word();
        return Err((
            kind,
            format!(
                "{word} does not fit stack = {stacks}: set kind = \"{fits}\" in [bed], or change stack"
            ),
        ));
    }
    match (kind, no_netns) {
        (Kind::Netns | Kind::Tap, Some(reason)) => Err((kind, reason.to_string())),
        _ => Ok(kind),
    }
}

const IN_USER_NAMESPACE: &str = "not root: the namespaces are made inside a user namespace, where the kernel refuses to steer receive work, so CPU time is measured only for both ends together; run as root to measure each end";
