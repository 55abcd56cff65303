//! Checks whether an end can have the knobs that are set for it, by their rows and by this host's answers.
//! Also the options that are set on each of the kernel's sockets.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use tcpcost_stack::{
    SocketOptions, StackError, ack_delay_max_here, config_for, ktls_refusal, options_here,
    set_socket_knob, uring_refusal,
};
use tcpcost_study::{
    AppliesTo, FlowGroup, KNOBS, KernelSupport, Knob, Unavailable, Value, WaitsBy, find, units,
};
use tcpcost_tcp::Config;
use tcpcost_workload::socket_options;

use crate::protocol::Prepare;
use crate::{PrepareError, failed};

/// Refuses the first knob that is unavailable at this end.
pub fn check(prepare: &Prepare, groups: &[FlowGroup]) -> Result<(), PrepareError> {
    let (knobs, end) = (&prepare.knobs, prepare.host);
    let available = knobs.available_at(end, prepare.owner);
    available.map_err(|Unavailable { knob, reason }| PrepareError::Unsupported { knob, reason })?;
    let is_user = knobs.is_user(end);
    check_options(&options(prepare, groups), is_user)?;
    if is_user {
        return Ok(());
    }
    for (knob, refusal) in OF_KERNEL {
        let value = knobs.value_at(end, knob);
        if let Some(reason) = value.as_ref().and_then(refusal) {
            let is_of_end = find(knob).is_some_and(|row| row.per_end);
            let knob = if is_of_end {
                format!("{end}.{knob}")
            } else {
                knob.to_string()
            };
            return Err(PrepareError::Unsupported { knob, reason });
        }
    }
    Ok(())
}

/// Reason why this host's kernel does not support a value. `None` if it does.
type Refusal = fn(&Value) -> Option<String>;

/// Knobs that the kernel's TCP has on some hosts only.
const OF_KERNEL: &[(&str, Refusal)] = &[
    (
        "ktls",
        |value| {
            if value.is_on()? { ktls_refusal() } else { None }
        },
    ),
    ("io", |value| {
        let is_ring = value.word() == Some(WaitsBy::IoUring.word());
        if is_ring { uring_refusal() } else { None }
    }),
    ("ack_delay", |value| {
        let refused = check_delay(value.time()?).err()?;
        Some(format!("TCP_DELACK_MAX_US: {refused}"))
    }),
];

/// Options of all sockets. Zero-copy is set if any group uses it; the other options are equal in all groups.
pub fn options(prepare: &Prepare, groups: &[FlowGroup]) -> SocketOptions {
    let mut each = groups.iter().map(|group| socket_options(&group.settings));
    let first = each.next().unwrap_or_default();
    let zerocopy = first.zerocopy || each.any(|options| options.zerocopy);
    let ports = prepare.knobs.value_at(prepare.host, "data_ports");
    SocketOptions {
        zerocopy,
        listen_ports: ports.and_then(|ports| units::ports(ports.word()?)),
        ..first
    }
}

fn check_options(options: &SocketOptions, is_user: bool) -> Result<(), PrepareError> {
    let checked = if is_user {
        config_for(&Config::default(), options).map(drop)
    } else {
        options_here(options)
    };
    checked.map_err(|error| match error {
        StackError::Unsupported { option, reason } => PrepareError::Unsupported {
            knob: option.to_string(),
            reason,
        },
        error => failed(error),
    })
}

fn check_delay(asked: Duration) -> Result<(), String> {
    match ack_delay_max_here(asked) {
        Ok(here) if here == asked => Ok(()),
        Ok(here) => Err(format!("the kernel rounds it to {here:?}")),
        Err(error) => Err(format!(
            "{error} (Linux 6.15 and newer, two ticks to 200 ms)"
        )),
    }
}

/// Options that each of the kernel's sockets gets once its connection is up.
#[derive(Debug, Clone, Default)]
pub struct ConnectedOptions(Vec<ConnectedOption>);

#[derive(Debug, Clone)]
struct ConnectedOption {
    knob: &'static str,
    /// The kernel's name of the option.
    option: &'static str,
    value: Value,
}

impl ConnectedOptions {
    /// Reads the options out of a trial's knobs, by their rows.
    pub fn new(prepare: &Prepare) -> ConnectedOptions {
        let of = |row: &'static Knob| {
            let (AppliesTo::Link(KernelSupport::SocketOption(option), _)
            | AppliesTo::Tcp(KernelSupport::SocketOption(option), _)) = row.applies_to
            else {
                return None;
            };
            let value = prepare.knobs.value_at(prepare.host, row.name)?;
            let is_set = !matches!(&value, Value::Word(word) if row.or_word == Some(word.as_str()));
            is_set.then_some(ConnectedOption {
                knob: row.name,
                option,
                value,
            })
        };
        ConnectedOptions(KNOBS.iter().filter_map(of).collect())
    }

    pub fn set(&self, socket: BorrowedFd<'_>) -> Result<(), String> {
        for one in &self.0 {
            set_socket_knob(socket, one.knob, &one.value)
                .map_err(|error| format!("setsockopt {}: {error}", one.option))?;
        }
        Ok(())
    }
}
