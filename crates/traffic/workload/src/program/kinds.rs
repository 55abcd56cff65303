//! The kinds of workload as programs, for threads, which execute nothing else.

use tcpcost_knobs::{CloseBy, MessageSize, Operation, Program, WorkloadKind, WorkloadSettings};

/// Converts settings to those of an equivalent program; `None` for `bidirectional`.
pub(crate) fn as_program(settings: &WorkloadSettings) -> Option<WorkloadSettings> {
    let size = |bytes: usize| MessageSize::exactly(u32::try_from(bytes).unwrap_or(u32::MAX));
    let send = |bytes| Operation::Send {
        size: size(bytes),
        with: None,
        count: 1,
        conn: 0,
    };
    let receive = |bytes| Operation::Receive {
        size: size(bytes),
        with: None,
        count: 1,
        conn: 0,
    };
    let s = settings;
    let (request, response) = (send(s.request_bytes), receive(s.response_bytes));
    let operations = match s.kind {
        WorkloadKind::Stream => vec![send(s.write_bytes)],
        WorkloadKind::Maerts => vec![receive(s.write_bytes)],
        WorkloadKind::Rr => vec![request, response],
        WorkloadKind::Crr => {
            let by = CloseBy::Listener;
            vec![
                Operation::Connect {
                    conn: 0,
                    can_fail: false,
                },
                request,
                response,
                Operation::Close { by },
            ]
        }
        WorkloadKind::Program => return Some(s.clone()),
        WorkloadKind::Bidirectional => return None,
    };
    Some(WorkloadSettings {
        kind: WorkloadKind::Program,
        program: Some(Program::new(operations).ok()?),
        ..s.clone()
    })
}
