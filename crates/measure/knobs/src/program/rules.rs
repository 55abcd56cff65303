//! Rules for combining operations. The listening side does the mirror image without further
//! information, so it must be able to know by itself what comes next.

use super::ProgramError::{self, Rule};
use super::{CloseBy, Operation, PauseAt, Program, Times, all};

/// Checks all rules. The error is the first violation.
pub(super) fn check(operations: &[Operation]) -> Result<(), ProgramError> {
    let count = all(operations).len();
    if count > Program::OPERATIONS_MAX {
        return Err(ProgramError::TooMany(count));
    }
    nesting(operations, true)?;
    // Repeated operations must spend their time on traffic, so that traffic can be stopped.
    let mut round = operations;
    if let Some(Operation::Loop { times, body, .. }) = unbounded(operations) {
        round = body;
        if *times != Times::Forever && !begins_with_send(body) {
            return Err(Rule(
                "the body of `for` must begin with send, else the other side cannot know whether the loop continues",
            ));
        }
    }
    let opens_each_round = round.first().is_some_and(Operation::opens);
    if !opens_each_round && !all(round).into_iter().any(moves) {
        return Err(Rule("neither sends nor receives: add { send = \"1KiB\" }"));
    }
    ends(operations)?;
    connections(operations)
}

/// Checks that a flow of several connections opens all of them at the beginning, so that the two
/// sides know which is which.
fn connections(operations: &[Operation]) -> Result<(), ProgramError> {
    let opened: Vec<&Operation> = operations.iter().take_while(|one| one.opens()).collect();
    let used = all(operations).into_iter().filter_map(Operation::conn);
    let used = used.max().unwrap_or(0);
    let is_endless = operations.last().is_some_and(Operation::is_endless);
    if opened.is_empty() {
        return Ok(());
    }
    if opened.len() != usize::from(used) + 1 {
        return Err(ProgramError::NotOpened(used + 1, opened.len()));
    }
    if opened.len() > 1 && !is_endless {
        return Err(Rule(
            "several connections of a flow are opened once: put the operations on them into repeat = \"forever\", and omit close",
        ));
    }
    let is_author = matches!(opened[0], Operation::Accept { .. });
    if is_author
        && matches!(
            unbounded(operations),
            Some(Operation::Loop {
                times: Times::For(_),
                ..
            })
        )
    {
        return Err(Rule(
            "`for` needs the side that connects: after accept use repeat = \"forever\"",
        ));
    }
    let can_fail = opened
        .iter()
        .any(|one| matches!(one, Operation::Connect { can_fail: true, .. }));
    if can_fail && is_endless {
        return Err(Rule(
            "can_fail is only for connections that come and go: end the program with { close = {} }",
        ));
    }
    Ok(())
}

/// Loop that ends by time or never.
fn unbounded(operations: &[Operation]) -> Option<&Operation> {
    operations.iter().find(|operation| {
        matches!(operation, Operation::Loop { times, .. } if !matches!(times, Times::Count(_)))
    })
}

/// Checks which operations may be in which, and which must not be empty.
fn nesting(operations: &[Operation], is_top: bool) -> Result<(), ProgramError> {
    for (index, operation) in operations.iter().enumerate() {
        match operation {
            Operation::Connect { conn, .. } | Operation::Accept { conn } => {
                let before = &operations[..index];
                let same = |one: &Operation| {
                    one.opens() && std::mem::discriminant(one) == std::mem::discriminant(operation)
                };
                if !is_top || !before.iter().all(Operation::opens) {
                    return Err(Rule(
                        "connect is the first operation of a program: one connection at a time for each of flows",
                    ));
                }
                if !before.iter().all(same) {
                    return Err(Rule(
                        "a flow either connects or accepts: make two groups of it",
                    ));
                }
                if usize::from(*conn) != index {
                    return Err(ProgramError::Misnumbered(conn + 1, index + 1));
                }
            }
            Operation::Close { .. } if !is_top || index + 1 < operations.len() => {
                return Err(Rule("close is the last operation of a program"));
            }
            Operation::Loop { times, body, .. } => {
                if body.is_empty() {
                    return Err(Rule("do = [] does nothing: put an operation into it"));
                }
                if !is_top && !matches!(times, Times::Count(_)) {
                    return Err(Rule(
                        "for and repeat = \"forever\" are not allowed inside a loop",
                    ));
                }
                nesting(body, false)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn ends(operations: &[Operation]) -> Result<(), ProgramError> {
    let connects = operations.first().is_some_and(Operation::opens);
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
            return Err(Rule(
                "operations after repeat = \"forever\" never run: remove them",
            ));
        }
        Some(_) => {
            let quiet = |operation: &Operation| {
                matches!(
                    operation,
                    Operation::Think {
                        at: PauseAt::Here,
                        ..
                    } | Operation::Sleep {
                        at: PauseAt::Here,
                        ..
                    } | Operation::Nop
                        | Operation::Close { .. }
                )
            };
            if !connects || close != Some(CloseBy::Connector) || !behind.iter().all(quiet) {
                return Err(Rule(
                    "`for` ends with its connection, else the other side cannot know that the loop is over: begin with { connect = {} }, and after `for` add { close = { by = \"connector\" } }; for the whole trial use repeat = \"forever\"",
                ));
            }
        }
        None => {}
    }
    match (connects, close) {
        (true, None) => Err(Rule(
            "opens a connection and leaves it: end it with { close = {} }",
        )),
        (false, Some(_)) => Err(Rule(
            "closes a connection that it did not open: begin with { connect = {} }",
        )),
        (true, Some(_)) if all(operations).into_iter().any(is_random) => Err(Rule(
            "random sizes need connections that stay open, so that both sides draw the same: omit connect and close, or connect once before repeat = \"forever\"",
        )),
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

/// True if the first operation that moves bytes is a send.
fn begins_with_send(operations: &[Operation]) -> bool {
    let first = all(operations).into_iter().find(|one| moves(one));
    matches!(first, Some(Operation::Send { .. }))
}
