//! Types of the knobs whose values are words.

use crate::side::Side;
use crate::words::words;

words! {
    /// Wire between a pair, if the study sets one.
    Carrier {
        /// A wire of our own.
        Own = "own",
        /// The kernel's netem, at each end of a veth pair.
        Netem = "netem",
    }
}

words! {
    /// Kind of traffic.
    WorkloadKind {
        /// The client sends.
        Stream = "stream",
        /// The server sends.
        Maerts = "maerts",
        /// Both ends send.
        Bidirectional = "bidirectional",
        /// Requests and responses on connections that stay open.
        Rr = "rr",
        /// Connect, request, response, close.
        Crr = "crr",
        /// Operations of the knob `program`.
        Program = "program",
    }
}

impl WorkloadKind {
    /// True if work is counted in transactions.
    pub fn has_transactions(self) -> bool {
        matches!(
            self,
            WorkloadKind::Rr | WorkloadKind::Crr | WorkloadKind::Program
        )
    }

    /// True if this side sends payload; for a program, true if it may.
    pub fn sends(self, side: Side) -> bool {
        match self {
            WorkloadKind::Stream => side == Side::Connects,
            WorkloadKind::Maerts => side == Side::Listens,
            WorkloadKind::Bidirectional
            | WorkloadKind::Rr
            | WorkloadKind::Crr
            | WorkloadKind::Program => true,
        }
    }
}

words! {
    /// Call that sends payload.
    SendWith {
        /// write(2) from memory.
        Write = "write",
        /// send(2) from memory.
        Send = "send",
        /// pread(2) of a file into a buffer, then write(2).
        ReadWrite = "read+write",
        /// pread(2) of a file into a buffer, then send(2).
        ReadSend = "read+send",
        /// send(2) of a mapped file.
        MmapSend = "mmap+send",
        /// sendfile(2) from a file on disk.
        Sendfile = "sendfile",
        /// sendfile(2) from a memfd.
        SendfileMemfd = "sendfile-memfd",
        /// splice(2): file pages into a pipe, the pipe into the socket.
        Splice = "splice",
        /// send(2) with MSG_ZEROCOPY from memory.
        Zerocopy = "zerocopy",
        /// send(2) with MSG_ZEROCOPY of a mapped file.
        MmapZerocopy = "mmap+zerocopy",
        /// IORING_OP_SEND of io_uring from memory, with a submission for each call.
        UringSend = "uring-send",
        /// IORING_OP_SEND_ZC of io_uring from a registered buffer.
        UringSendZc = "uring-send-zc",
        /// IORING_OP_SPLICE of io_uring: file pages into a pipe, and the pipe into the socket,
        /// linked.
        UringSplice = "uring-splice",
    }
}

impl SendWith {
    /// True if payload comes from files.
    pub fn is_from_files(self) -> bool {
        match self {
            SendWith::ReadWrite
            | SendWith::ReadSend
            | SendWith::MmapSend
            | SendWith::Sendfile
            | SendWith::SendfileMemfd
            | SendWith::Splice
            | SendWith::MmapZerocopy
            | SendWith::UringSplice => true,
            SendWith::Write
            | SendWith::Send
            | SendWith::Zerocopy
            | SendWith::UringSend
            | SendWith::UringSendZc => false,
        }
    }

    /// True if the kernel reports when it no longer needs the lent memory, and whether it copied it
    /// after all.
    pub fn has_completions(self) -> bool {
        matches!(
            self,
            SendWith::Zerocopy | SendWith::MmapZerocopy | SendWith::UringSendZc
        )
    }
}

words! {
    /// Call that receives payload.
    ReceiveWith {
        /// read(2).
        Read = "read",
        /// recv(2) with MSG_TRUNC: TCP discards the data without a copy.
        RecvTrunc = "recv-trunc",
        /// splice(2) into a pipe and from the pipe to /dev/null.
        Splice = "splice",
        /// TCP_ZEROCOPY_RECEIVE: whole pages are mapped, the rest is read.
        Zerocopy = "zerocopy",
    }
}

words! {
    /// Method by which a thread waits for its connections.
    WaitsBy {
        /// One thread for many connections, by readiness: epoll, or our own TCP's loop.
        Epoll = "epoll",
        /// A thread for each connection, in blocking calls.
        BlockingThreads = "blocking-threads",
        /// One thread for many connections, by a ring of io_uring.
        IoUring = "io-uring",
        /// One thread for many connections, which tries each in turn without waiting.
        Visits = "visits",
    }
}

words! {
    /// How the sizes of files differ.
    FileSpread {
        /// Not at all.
        Equal = "equal",
        /// Seven sizes in turn.
        Mixed = "mixed",
    }
}

words! {
    /// Method by which short segments are held back on purpose.
    Cork {
        /// No holding back.
        Off = "off",
        /// TCP_CORK.
        On = "on",
        /// MSG_MORE.
        MsgMore = "msg-more",
    }
}

words! {
    /// Component that cuts a super-segment into wire segments.
    Segmentation {
        /// No cutting: TCP's output path handles one skb per MSS (gso_max_segs 1), as in 2005.
        PerMss = "per-mss",
        /// Kernel, just before the device (tso off). TCP itself still builds super-segments.
        SoftwareGso = "software-gso",
        /// Network device.
        Tso = "tso",
    }
}

words! {
    /// Rule for a partial segment after full ones: when it leaves as a packet of its own.
    TailSplit {
        /// Always: Linux before 3.14.
        Split = "split",
        /// Only if Nagle's rule holds it back.
        Keep = "keep",
    }
}

words! {
    /// Event that opens the congestion window.
    WindowGrowth {
        /// Bytes acknowledged.
        Bytes = "bytes",
        /// ACKs that found the window full, each by one step.
        PerAck = "per-ack",
    }
}

words! {
    /// Published expectation of a change.
    Expects {
        /// Less.
        Less = "less",
        /// More.
        More = "more",
        /// Same, within 5 %.
        Same = "same",
    }
}
