//! Settings of a host before a trial: its devices, with a journal, ACK filters, and the limits of this
//! process.

use std::path::Path;
use std::time::{Duration, Instant};

use tcpcost_host::apply::{ApplyError, apply, steer};
use tcpcost_host::journal::Journal;
use tcpcost_meter::affinity::pin;
use tcpcost_stack::limits::{self, TcpLimits};
use tcpcost_study::{AckFilterRule, DeviceName, DeviceOwner, DeviceSettings, Side};
use tcpcost_workload::CONNECTS_OUTSTANDING;

use crate::ack_filter::AckFilter;
use crate::protocol::{Prepare, TestedPort};
use crate::{PrepareError, failed};

/// Begins to filter the host's ACKs at each of its devices. The flush threads run on the host's first CPU.
pub(super) fn filter_acks(
    prepare: &Prepare,
    rule: AckFilterRule,
) -> Result<Vec<AckFilter>, PrepareError> {
    let cpu = prepare.cpus[0];
    let refuse = |reason: String| PrepareError::Unsupported {
        knob: format!("{}.ack_filter", prepare.host),
        reason,
    };
    if prepare.side.is_none() && prepare.knobs.relay_mode().is_none() {
        return Err(refuse(
            "a host that forwards packets acknowledges nothing".to_string(),
        ));
    }
    let on_cpu = move || pin(cpu).map_err(|error| error.to_string());
    let ports = prepare.ports.iter();
    let start = |port: &TestedPort| AckFilter::start(&port.device, rule, on_cpu);
    ports.map(start).collect::<Result<_, _>>().map_err(refuse)
}

/// Sets the host's devices. Each setting is noted in the journal before it is changed.
pub(super) fn turn(
    prepare: &Prepare,
    device: &DeviceSettings,
    journal: &mut Option<Journal>,
) -> Result<(), PrepareError> {
    let owned = prepare.owner == DeviceOwner::Bed;
    // On a host's own device, steering is a setting like others. On a bed's device, it gives each end its own
    // CPU time.
    let steers = prepare.steering && (owned || prepare.knobs.get("steering").is_some());
    if !owned && *device == DeviceSettings::default() && !steers {
        return Ok(()); // No journal for a host that is not changed, so that no folder for it is needed.
    }
    let journal = match journal {
        Some(journal) => journal,
        None => journal.insert(open_journal(owned)?),
    };
    let refused = |error| match error {
        ApplyError::Unsupported { knob, reason } => PrepareError::Unsupported { knob, reason },
        ApplyError::System(error) => failed(error),
    };
    for port in &prepare.ports {
        let name = port.device().map_err(failed)?;
        if steers {
            match steer(&prepare.cpus, &name, prepare.owner, journal) {
                // The study did not ask for steering: go on without it. rps_cpus in the record shows that,
                // and the report then has no CPU time by host.
                Err(ApplyError::Unsupported { .. }) if prepare.knobs.get("steering").is_none() => {}
                other => other.map_err(refused)?,
            }
        }
        apply(device, &name, port.peer, prepare.owner, journal).map_err(refused)?;
    }
    Ok(())
}

/// Waits until the host's own devices have a carrier. A NIC and its link restart when the NIC is moved into a
/// namespace, and when its rings or channels are changed or restored.
pub(super) fn until_carried(prepare: &Prepare) -> Result<(), PrepareError> {
    if prepare.owner != DeviceOwner::Host {
        return Ok(());
    }
    let until = Instant::now() + CARRIER_MAX;
    for port in &prepare.ports {
        let device = port.device().map_err(failed)?;
        while lacks_carrier(&device) {
            if Instant::now() >= until {
                let seconds = CARRIER_MAX.as_secs();
                let text = format!("{} has had no carrier for {seconds} s", port.device);
                return Err(PrepareError::Failed(text));
            }
            std::thread::sleep(CARRIER_PAUSE);
        }
    }
    Ok(())
}

fn lacks_carrier(device: &DeviceName) -> bool {
    let path = Path::new("/sys/class/net").join(device).join("carrier");
    // The carrier of a device that is down cannot be read. Connecting then reports the problem.
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

/// A copper link is negotiated within about four seconds.
const CARRIER_MAX: Duration = Duration::from_secs(10);
const CARRIER_PAUSE: Duration = Duration::from_millis(5);

/// Opens a journal: on disk for the host's own settings, in memory for a namespace that ends with this
/// process.
pub fn open_journal(owned: bool) -> Result<Journal, PrepareError> {
    if owned {
        return Ok(Journal::in_memory());
    }
    // Without a journal the host is not changed.
    let unsupported = |reason| PrepareError::Unsupported {
        knob: "journal".to_string(),
        reason,
    };
    let folder = tcpcost_host::journal::folder().map_err(unsupported)?;
    Journal::open(&folder).map_err(|error| match error.is_denied() {
        true => unsupported(format!(
            "the host's settings are changed only if they can be restored: {error}, or set TCPCOST_STATE_DIR"
        )),
        false => failed(error),
    })
}

/// Raises the limit on open files to the trial's needs. Returns warnings about a listener's queues that are
/// too short.
pub(super) fn check_limits(
    flows: usize,
    side: Option<Side>,
    threads: usize,
) -> Result<Vec<String>, PrepareError> {
    // Each worker has a file table of its own.
    limits::raise_open_files(flows.div_ceil(threads) + FILES_BESIDE).map_err(failed)?;
    if side != Some(Side::Listens) {
        return Ok(Vec::new());
    }
    let outstanding = flows.min(CONNECTS_OUTSTANDING * threads);
    Ok(TcpLimits::read(Path::new("/proc"))
        .check_backlog(outstanding)
        .into_iter()
        .collect())
}

/// Files other than the connections: epoll, listeners, pipes, meters, standard streams.
const FILES_BESIDE: usize = 64;
