//! What goes together in a program. The side that listens does the mirror of it without being told anything, so it must be
//! able to know by itself what comes next.

use super::{CloseBy, Operation, Program, Times, all};

/// The first thing that does not go together.
pub(super) fn check(operations: &[Operation]) -> Result<(), String> {
    let count = all(operations).len();
    if count > Program::OPERATIONS_MAX {
        let most = Program::OPERATIONS_MAX;
        return Err(format!(
            "{count} operations are more than {most}: use repeat"
        ));
    }
    nesting(operations, true)?;
    // Whatever is done over and over must take its time by traffic, so that traffic can be stopped.
    let mut round = operations;
    if let Some(Operation::Loop { times, body, .. }) = unbounded(operations) {
        round = body;
        if *times != Times::Forever && !begins_with_send(body) {
            return Err("what is done in for begins with send, or the other side cannot know whether it goes on".into());
        }
    }
    if !all(round).into_iter().any(moves) {
        return Err("neither sends nor receives: add { send = \"1KiB\" }".into());
    }
    ends(operations)
}

/// The loop that time or nothing ends.
fn unbounded(operations: &[Operation]) -> Option<&Operation> {
    operations.iter().find(|operation| {
        matches!(operation, Operation::Loop { times, .. } if !matches!(times, Times::Count(_)))
    })
}

/// What may stand within what, and what must not be empty.
fn nesting(operations: &[Operation], is_top: bool) -> Result<(), String> {
    for (index, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Connect if !is_top || index > 0 => {
                return Err("connect is the first operation of a program: one connection at a time for each of flows".into());
            }
            Operation::Close { .. } if !is_top || index + 1 < operations.len() => {
                return Err("close is the last operation of a program".into());
            }
            Operation::Loop { times, body, .. } => {
                if body.is_empty() {
                    return Err("do = [] does nothing: put an operation into it".into());
                }
                if !is_top && !matches!(times, Times::Count(_)) {
                    return Err("for and repeat = \"forever\" do not stand inside a loop".into());
                }
                nesting(body, false)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn ends(operations: &[Operation]) -> Result<(), String> {
    let connects = operations.first() == Some(&Operation::Connect);
    let last = operations.last();
    let close = last.and_then(|last| match last {
        Operation::Close { by } => Some(*by),
        _ => None,
    });
    let unbounded_at = operations
        .iter()
        .position(|operation| unbounded(std::slice::from_ref(operation)).is_some());
    let behind = unbounded_at.map_or(&[][..], |at| &operations[at + 1..]);
    match unbounded(operations) {
        Some(Operation::Loop {
            times: Times::Forever,
            ..
        }) => {
            if behind.is_empty() {
                return Ok(());
            }
            return Err("nothing is done behind repeat = \"forever\": take it off".into());
        }
        Some(_) => {
            let quiet = |operation: &Operation| {
                matches!(
                    operation,
                    Operation::Think(_) | Operation::Sleep(_) | Operation::Close { .. }
                )
            };
            if !connects || close != Some(CloseBy::Connector) || !behind.iter().all(quiet) {
                return Err("for ends with its connection, or the other side cannot know that it is over: begin with { connect = {} }, and behind for put { close = { by = \"connector\" } }; for all of the trial use repeat = \"forever\"".into());
            }
        }
        None => {}
    }
    match (connects, close) {
        (true, None) => {
            Err("opens a connection and leaves it: end it with { close = {} }".to_string())
        }
        (false, Some(_)) => {
            Err("closes a connection that it did not open: begin with { connect = {} }".to_string())
        }
        (true, Some(_)) if all(operations).into_iter().any(is_random) => Err(
            "sizes at random need connections that stand, so that both sides draw the same: leave connect and close out, or connect once before repeat = \"forever\"".to_string(),
        ),
        _ => Ok(()),
    }
}

fn is_random(operation: &Operation) -> bool {
    match operation {
        Operation::Send { size, .. } | Operation::Receive { size, .. } => size.least < size.most,
        _ => false,
    }
}

fn moves(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Send { .. } | Operation::Receive { .. }
    )
}

/// Whether the first thing that moves bytes is a send.
fn begins_with_send(operations: &[Operation]) -> bool {
    let first = all(operations).into_iter().find(|one| moves(one));
    matches!(first, Some(Operation::Send { .. }))
}

#[cfg(test)]
mod tests;
