//! Events that `exact` counts next to time, and what they are for each owner.

use tcpcost_counts::{MeterName, Quantity};

use super::functions::FUNCTIONS;
use super::layout::exact::{Owned, Place, Seen};
use super::object::Attached;

/// Places of events in the totals, each with the quantity that it is for an owner.
pub(super) type Events = &'static [(usize, Quantity)];

/// Events of an owner that the programs see here.
pub(super) fn of(row: &Owned, seen: u64, owned: Events) -> impl Iterator<Item = (Quantity, u64)> {
    let is_seen = move |(place, _): &&(usize, Quantity)| seen >> place & 1 == 1;
    let owned = owned.iter().filter(is_seen);
    owned.map(|&(place, quantity)| (quantity, row.events(place)))
}

/// Events that programs see which were just loaded, and a line about the others. `None` if they see all.
pub(super) fn seen(attached: &Attached) -> (Seen, Option<String>) {
    let bit = |is_seen: bool, place: Place| u64::from(is_seen) << place as usize;
    let has = |point: &str| attached.runs(point);
    let (has_timer, has_tick) = (has("local_timer_exit"), FUNCTIONS.tick != 0);
    let has_calls = has("call_function_exit") && has("call_function_single_exit");
    let has_ipis = has("reschedule_exit") && has_calls;
    let events = bit(true, Place::NET_RX_RUNS)
        | bit(true, Place::SLEEPS)
        | bit(has("reschedule_exit"), Place::RESCHEDULE_IPIS)
        | bit(has_calls, Place::CALL_IPIS)
        | bit(has_timer && has_tick, Place::EXTRA_TIMERS);
    let unseen = match (has_timer && has_ipis, has_tick) {
        (true, true) => None,
        (true, false) => Some(
            "timer interrupts beyond the tick are not counted: the address of the tick's function is hidden (needs CAP_SYSLOG)",
        ),
        (false, _) => Some(
            "timer interrupts and IPIs are not counted: this kernel has no tracepoints at their vectors",
        ),
    };
    let unseen = unseen.map(|line| format!("{}: {line}", MeterName::Exact));
    (Seen { events }, unseen)
}

/// Events of each owner of [`Quantity::EXACT_OWNED`]: only the command's tasks are known.
pub(super) const COMMAND_EVENTS: Events = &[
    (Place::NET_RX_RUNS as usize, Quantity::ExactOwnNetRxRuns),
    (
        Place::RESCHEDULE_IPIS as usize,
        Quantity::ExactOwnRescheduleIpis,
    ),
    (Place::CALL_IPIS as usize, Quantity::ExactOwnCallIpis),
    (
        Place::EXTRA_TIMERS as usize,
        Quantity::ExactOwnExtraTimerInterrupts,
    ),
];
pub(super) const PEER_EVENTS: Events =
    &[(Place::NET_RX_RUNS as usize, Quantity::ExactPeerNetRxRuns)];
pub(super) const NEIGHBOUR_EVENTS: Events = &[(
    Place::NET_RX_RUNS as usize,
    Quantity::ExactNeighbourNetRxRuns,
)];
/// Events of a process with sockets.
pub(super) const HOLDER_EVENTS: Events = &[
    (Place::NET_RX_RUNS as usize, Quantity::HolderNetRxRuns),
    (Place::SLEEPS as usize, Quantity::HolderSleeps),
    (
        Place::RESCHEDULE_IPIS as usize,
        Quantity::HolderRescheduleIpis,
    ),
    (Place::CALL_IPIS as usize, Quantity::HolderCallIpis),
    (
        Place::EXTRA_TIMERS as usize,
        Quantity::HolderExtraTimerInterrupts,
    ),
];
