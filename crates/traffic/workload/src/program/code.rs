//! Operations as a list of instructions with jumps, which a turn executes.

use tcpcost_knobs::units::nanos;
use tcpcost_knobs::{
    CloseBy, MessageSize, Operation, PauseAt, Program, ReceiveWith, SendWith, Side, Times,
    WorkloadKind, WorkloadSettings,
};

use super::Calls;

/// Loops that can be active at a time: nested loops, and a repeated message.
pub(crate) const SLOTS: usize = Program::DEPTH_MAX + 1;

/// One step of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Opens the connection.
    Connect { timed: Timed },
    /// Sends a message from a source, on one of the flow's connections.
    Send {
        size: MessageSize,
        source: u8,
        conn: u8,
        timed: Timed,
    },
    /// Receives a message into a sink, on one of the flow's connections.
    Receive {
        size: MessageSize,
        sink: u8,
        conn: u8,
        timed: Timed,
    },
    /// Keeps the CPU busy, ns.
    Think(u64),
    /// Waits, ns.
    Sleep(u64),
    /// Closes; this side is the first to close.
    Close { timed: Timed },
    /// Waits for the other side to close, then closes.
    AwaitEnd { timed: Timed },
    /// Begins a round: at once, or when it is due.
    Round,
    /// Ends a round.
    Done,
    /// Begins a loop with a number of passes.
    Begin { slot: u8, passes: u32 },
    /// Begins a loop with a duration, ns.
    BeginFor(u64),
    /// Waits until the loop's pass is due, `period_ns` after the one before.
    Pace { slot: u8, period_ns: u64 },
    /// Goes back to the loop's first instruction if passes are left.
    Again { slot: u8, to: u32 },
    /// Goes back if time is left.
    AgainFor { to: u32 },
    /// Goes back.
    Jump { to: u32 },
}

/// Number of the program's operation whose duration an instruction records; `None` if it records
/// none.
pub(crate) type Timed = Option<u16>;

/// Instructions of a group; empty if it has no program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Code {
    instructions: Vec<Instruction>,
    calls: Calls,
    waits: bool,
    /// Number of timed operations.
    timed: u16,
    /// Number of the timed operation that accepts the connection.
    accepts: Timed,
}

impl Code {
    /// Compiles the program for one side. `kind`: kind of the workload before it was converted to a
    /// program.
    pub(crate) fn new(settings: &WorkloadSettings, side: Side, kind: WorkloadKind) -> Code {
        let calls = Calls::of(settings, side);
        let Some(program) = &settings.program else {
            return Code {
                calls,
                ..Code::default()
            };
        };
        let is_author = side == program.author();
        let mut compiler = Compiler {
            settings,
            side,
            is_author,
            stands: program.stands(),
            takes_times: is_author && kind == WorkloadKind::Program,
            calls,
            out: Vec::new(),
            timed: 0,
            accepts: None,
        };
        compiler.program(program);
        Code {
            instructions: compiler.out,
            calls: compiler.calls,
            waits: program.waits(side),
            timed: compiler.timed,
            accepts: compiler.accepts,
        }
    }

    /// Number of timed operations: those of [`Program::timed`], in that order; 0 at the side that
    /// mirrors them.
    pub(crate) fn timed(&self) -> u16 {
        self.timed
    }

    /// True if the program waits for the other side to close.
    pub(crate) fn awaits_end(&self) -> bool {
        let mut all = self.instructions.iter();
        all.any(|one| matches!(one, Instruction::AwaitEnd { .. }))
    }

    /// Number of the timed operation that accepts the connection.
    pub(crate) fn accepts(&self) -> Timed {
        self.accepts
    }

    #[inline]
    pub(crate) fn at(&self, at: u32) -> Instruction {
        self.instructions[at as usize]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Calls of the program, in the order of source and sink numbers.
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// True if the program ever waits for a time.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }
}

struct Compiler<'a> {
    settings: &'a WorkloadSettings,
    side: Side,
    is_author: bool,
    stands: bool,
    takes_times: bool,
    calls: Calls,
    out: Vec<Instruction>,
    timed: u16,
    accepts: Timed,
}

impl Compiler<'_> {
    fn is_client(&self) -> bool {
        self.side == Side::Connects
    }

    fn here(&self) -> u32 {
        u32::try_from(self.out.len()).expect("a program has a thousand operations at most")
    }

    /// Adds an instruction at the author's side only.
    fn own(&mut self, instruction: Instruction) {
        if self.is_author {
            self.out.push(instruction);
        }
    }

    /// Adds an instruction for rounds: the connecting side counts them, and the author times them.
    fn round(&mut self, instruction: Instruction) {
        if self.is_author || self.is_client() {
            self.out.push(instruction);
        }
    }

    /// Number of an operation, if it is timed.
    fn number(&mut self, operation: &Operation) -> Timed {
        if !self.takes_times || !operation.is_timed(self.stands) {
            return None;
        }
        self.timed += 1;
        Some(self.timed - 1)
    }

    fn program(&mut self, program: &Program) {
        let operations = program.operations();
        let unbounded = operations.iter().any(is_unbounded);
        if !unbounded {
            self.round(Instruction::Round);
        }
        for operation in operations {
            match operation {
                // Set-up has opened the connection.
                Operation::Connect { .. } | Operation::Accept { .. } if self.stands => {}
                Operation::Close { .. } if !unbounded => {
                    // A round ends with its last response, as with `crr`.
                    self.round(Instruction::Done);
                    self.operation(operation, 0);
                }
                operation => self.operation(operation, 0),
            }
        }
        let closes = matches!(operations.last(), Some(Operation::Close { .. }));
        if !unbounded && !closes {
            self.round(Instruction::Done);
        }
        self.out.push(Instruction::Jump { to: 0 });
    }

    fn operation(&mut self, operation: &Operation, depth: usize) {
        let timed = self.number(operation);
        match operation {
            Operation::Connect { .. } => self.own(Instruction::Connect { timed }),
            Operation::Accept { .. } if self.is_author => self.accepts = timed,
            Operation::Accept { .. } => self.out.push(Instruction::Connect { timed }),
            Operation::Send {
                size,
                with,
                count,
                conn,
            } => {
                let message = if self.is_author {
                    self.send(*size, *with, *conn, timed)
                } else {
                    self.receive(*size, None, *conn, timed)
                };
                self.counted(message, *count, depth);
            }
            Operation::Receive {
                size,
                with,
                count,
                conn,
            } => {
                let message = if self.is_author {
                    self.receive(*size, *with, *conn, timed)
                } else {
                    self.send(*size, None, *conn, timed)
                };
                self.counted(message, *count, depth);
            }
            Operation::Think { time, at } => self.pause(Instruction::Think(nanos(*time)), *at),
            Operation::Sleep { time, at } => self.pause(Instruction::Sleep(nanos(*time)), *at),
            Operation::Nop => {}
            Operation::Close { by } => {
                let closer = match by {
                    CloseBy::Listener => Side::Listens,
                    CloseBy::Connector => Side::Connects,
                };
                self.out.push(if closer == self.side {
                    Instruction::Close { timed }
                } else {
                    Instruction::AwaitEnd { timed }
                });
            }
            Operation::Loop {
                times,
                at_rate,
                body,
            } => self.repeat(*times, *at_rate, body, depth),
        }
    }

    fn pause(&mut self, instruction: Instruction, at: PauseAt) {
        if self.is_author || at == PauseAt::Both {
            self.out.push(instruction);
        }
    }

    fn repeat(&mut self, times: Times, at_rate: Option<u64>, body: &[Operation], depth: usize) {
        let slot = u8::try_from(depth).expect("loops are four deep at most");
        match times {
            Times::Count(passes) => self.out.push(Instruction::Begin { slot, passes }),
            Times::For(time) => {
                self.own(Instruction::Begin { slot, passes: 0 });
                self.own(Instruction::BeginFor(nanos(time)));
            }
            Times::Forever => self.own(Instruction::Begin { slot, passes: 0 }),
        }
        let to = self.here();
        if let Some(rate) = at_rate {
            let period_ns = 1_000_000_000 / rate.max(1);
            self.own(Instruction::Pace { slot, period_ns });
        }
        let is_round = !matches!(times, Times::Count(_));
        if is_round {
            self.round(Instruction::Round);
        }
        for operation in body {
            self.operation(operation, depth + 1);
        }
        if is_round {
            self.round(Instruction::Done);
        }
        self.out.push(match times {
            Times::Count(_) => Instruction::Again { slot, to },
            Times::For(_) if self.is_client() => Instruction::AgainFor { to },
            Times::For(_) | Times::Forever => Instruction::Jump { to },
        });
    }

    fn counted(&mut self, message: Instruction, count: u32, depth: usize) {
        if count == 1 {
            self.out.push(message);
            return;
        }
        let slot = u8::try_from(depth).expect("loops are four deep at most");
        self.out.push(Instruction::Begin {
            slot,
            passes: count,
        });
        let to = self.here();
        self.out.push(message);
        self.out.push(Instruction::Again { slot, to });
    }

    fn send(
        &self,
        size: MessageSize,
        with: Option<SendWith>,
        conn: u8,
        timed: Timed,
    ) -> Instruction {
        let with = with.unwrap_or(self.settings.send_with);
        let source = place(&self.calls.sends, with);
        Instruction::Send {
            size,
            source,
            conn,
            timed,
        }
    }

    fn receive(
        &self,
        size: MessageSize,
        with: Option<ReceiveWith>,
        conn: u8,
        timed: Timed,
    ) -> Instruction {
        let with = with.unwrap_or(self.settings.receive_with);
        let sink = place(&self.calls.receives, with);
        Instruction::Receive {
            size,
            sink,
            conn,
            timed,
        }
    }
}

fn place<T: PartialEq>(calls: &[T], wanted: T) -> u8 {
    let at = calls.iter().position(|call| *call == wanted);
    let at = at.expect("all calls of the program are listed");
    u8::try_from(at).expect("there are some ten calls")
}

fn is_unbounded(operation: &Operation) -> bool {
    matches!(operation, Operation::Loop { times, .. } if !matches!(times, Times::Count(_)))
}
