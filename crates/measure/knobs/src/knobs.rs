//! Knobs that a study may set, one row each, by family.

mod device;
mod hosts;
mod tcp;
mod wire;
mod workload;

use crate::kernel_name::SysctlName;
use crate::row::{KernelSupport, Knob, KnobCondition, Need, ValueKind, is, is_not, link};

/// Row of a sysctl. Sysctls have none in [`KNOBS`], because only the kernel has a list of them.
pub(crate) const SYSCTL: Knob = Knob {
    or_word: None,
    default: "",
    ..link(
        "sysctl",
        ValueKind::Text,
        KernelSupport::AnySysctl,
        "A sysctl of the end.",
    )
};

const STREAMS: Need = Need::any_of(&[is("workload", &["stream", "maerts", "bidirectional"])]);
const NOT_EVERY: KnobCondition = is_not("ack_policy", &["every"]);

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Rows of all knobs, in the order of the documentation. Sysctls (`sysctl.NAME`) are knobs, too,
/// but have no rows: only the kernel has a list of them.
pub const KNOBS: &[Knob] = &ALL;

const FAMILIES: [&[Knob]; 5] = [
    workload::ROWS,
    hosts::ROWS,
    device::ROWS,
    wire::ROWS,
    tcp::ROWS,
];

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

/// All families in one table.
static ALL: [Knob; COUNT] = {
    let mut all = [SYSCTL; COUNT];
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            all[count] = FAMILIES[family][row];
            count += 1;
            row += 1;
        }
        family += 1;
    }
    all
};

/// Row of the knob of this name, without the host before it. `None` if there is no such knob. All
/// sysctls share one row.
pub fn find(name: &str) -> Option<Knob> {
    if let Some(sysctl) = name.strip_prefix("sysctl.") {
        return sysctl.parse::<SysctlName>().is_ok().then_some(SYSCTL);
    }
    KNOBS.iter().find(|knob| knob.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Raw;
    use crate::value::Value;

    #[test]
    fn every_default_is_a_value_of_its_knob_and_names_are_unique() {
        for (index, knob) in KNOBS.iter().enumerate() {
            let value = knob.default_value();
            assert!(!value.to_string().is_empty(), "{}", knob.name);
            assert!(
                KNOBS[..index].iter().all(|other| other.name != knob.name),
                "{} twice",
                knob.name
            );
        }
    }

    #[test]
    fn a_wrong_unit_is_not_a_value() {
        let write_size = find("write_size").unwrap();
        assert_eq!(
            write_size.read(&Raw::Text("64KiB".into())),
            Some(Value::Bytes(65536))
        );
        assert_eq!(write_size.read(&Raw::Text("64ms".into())), None);
        assert_eq!(write_size.read(&Raw::Integer(0)), None);
        assert_eq!(find("flows").unwrap().read(&Raw::Integer(30_001)), None);
        assert_eq!(
            find("tso").unwrap().read(&Raw::Text("leave".into())),
            Some(Value::Word("leave".into()))
        );
    }

    #[test]
    fn sysctls_of_the_network_are_knobs_and_paths_are_not() {
        assert!(find("sysctl.net.ipv4.tcp_autocorking").is_some());
        for wrong in ["sysctl.kernel.hostname", "sysctl.net/../x", "sysctl.net..x"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
    }
}
