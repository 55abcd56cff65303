//! Calls by which a side of a group sends and receives.

use tcpcost_knobs::{Operation, ReceiveWith, SendWith, Side, WorkloadSettings};

/// Calls without repetition, in the order of the program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls {
    pub(crate) sends: Vec<SendWith>,
    pub(crate) receives: Vec<ReceiveWith>,
}

impl Calls {
    /// Calls of one side. At the author's side of a program these are its operations' own; at the
    /// other side the group's, because an operation's `with` applies to the author's side.
    pub(crate) fn of(settings: &WorkloadSettings, side: Side) -> Calls {
        let own = settings.program.as_ref();
        let own = own.filter(|program| side == program.author());
        let mut calls = Calls::default();
        for operation in own.iter().flat_map(|program| program.all()) {
            match operation {
                Operation::Send { with, .. } => {
                    calls.sends.push(with.unwrap_or(settings.send_with));
                }
                Operation::Receive { with, .. } => {
                    calls.receives.push(with.unwrap_or(settings.receive_with));
                }
                _ => {}
            }
        }
        if own.is_none() {
            calls.sends.push(settings.send_with);
            calls.receives.push(settings.receive_with);
        }
        once(&mut calls.sends);
        once(&mut calls.receives);
        calls
    }
}

/// Removes repeated items; keeps the first of each.
fn once<T: PartialEq + Copy>(items: &mut Vec<T>) {
    let all = std::mem::take(items);
    for item in all {
        if !items.contains(&item) {
            items.push(item);
        }
    }
}
