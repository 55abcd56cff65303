//! Knobs whose values are words, as types.

use crate::side::Side;
use crate::words::words;

words! {
    /// What carries between a pair whose study sets a wire.
    Carrier {
        /// A wire of our own.
        Own = "own",
        /// The kernel's netem, at each end of a veth pair.
        Netem = "netem",
    }
}

words! {
    /// What traffic.
    WorkloadKind {
        /// The client sends.
        Stream = "stream",
        /// The server sends.
        Maerts = "maerts",
        /// Both send.
        Bidirectional = "bidirectional",
        /// Request and response on standing connections.
        Rr = "rr",
        /// Connect, request, response, close.
        Crr = "crr",
        /// What the knob `program` says.
        Program = "program",
    }
}

impl WorkloadKind {
    /// Whether work is counted in transactions.
    pub fn has_transactions(self) -> bool {
        matches!(
            self,
            WorkloadKind::Rr | WorkloadKind::Crr | WorkloadKind::Program
        )
    }

    /// Whether this side sends payload; of a program, whether it may.
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
    /// The call that sends payload.
    SendWith {
        /// write(2) from memory.
        Write = "write",
        /// send(2) from memory.
        Send = "send",
        /// pread(2) of a file into a buffer, and write(2) of it.
        ReadWrite = "read+write",
        /// pread(2) of a file into a buffer, and send(2) of it.
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
        /// io_uring's IORING_OP_SEND from memory, a submission for each call.
        UringSend = "uring-send",
        /// io_uring's IORING_OP_SEND_ZC of a registered buffer.
        UringSendZc = "uring-send-zc",
        /// io_uring's IORING_OP_SPLICE of file pages into a pipe, and of the pipe into the socket, linked.
        UringSplice = "uring-splice",
    }
}

impl SendWith {
    /// Whether payload comes out of files.
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

    /// Whether the kernel tells when it has done with what it was lent, and whether it copied it after all.
    pub fn has_completions(self) -> bool {
        matches!(
            self,
            SendWith::Zerocopy | SendWith::MmapZerocopy | SendWith::UringSendZc
        )
    }
}

words! {
    /// The call that takes payload.
    ReceiveWith {
        /// read(2).
        Read = "read",
        /// recv(2) with MSG_TRUNC: TCP throws the data away uncopied.
        RecvTrunc = "recv-trunc",
        /// splice(2) into a pipe and from it to /dev/null.
        Splice = "splice",
        /// TCP_ZEROCOPY_RECEIVE: whole pages are mapped, the rest is read.
        Zerocopy = "zerocopy",
    }
}

words! {
    /// How a thread waits for its connections.
    WaitsBy {
        /// One thread for many, by readiness: epoll, or our TCP's own loop.
        Epoll = "epoll",
        /// A thread for each connection, in calls that block.
        BlockingThreads = "blocking-threads",
        /// One thread for many, by a ring of io_uring.
        IoUring = "io-uring",
        /// One thread for many, which asks nobody and tries each in turn.
        Visits = "visits",
    }
}

words! {
    /// How short segments are held back on purpose.
    Cork {
        /// Not at all.
        Off = "off",
        /// TCP_CORK.
        On = "on",
        /// MSG_MORE.
        MsgMore = "msg-more",
    }
}

words! {
    /// Who cuts a super-segment into wire segments.
    Segmentation {
        /// Nobody: TCP's output path handles one skb per MSS (gso_max_segs 1), as in 2005.
        PerMss = "per-mss",
        /// The kernel, just before the device (tso off): TCP itself still builds super-segments.
        SoftwareGso = "software-gso",
        /// The device.
        Tso = "tso",
    }
}

words! {
    /// When a partial segment behind full ones leaves by itself.
    TailSplit {
        /// Always: Linux before 3.14.
        Split = "split",
        /// Where Nagle's rule holds it back.
        Keep = "keep",
    }
}

words! {
    /// What opens the congestion window.
    WindowGrowth {
        /// The bytes acknowledged.
        Bytes = "bytes",
        /// Each ACK that found the window full.
        PerAck = "per-ack",
    }
}

words! {
    /// What the host in the middle of a chain does.
    RelayMode {
        /// It forwards packets.
        Forward = "forward",
        /// It ends connections and makes its own: recv(2) and send(2) through a buffer.
        Copy = "copy",
        /// The same by splice(2) through pipes.
        Splice = "splice",
        /// The same by io_uring.
        IoUring = "io-uring",
        /// The same by our own TCP, over a TAP to each side: by reference from queue to queue.
        User = "user",
        /// Copy or splice, by connection and way, as bytes come.
        Auto = "auto",
    }
}

words! {
    /// What somebody states of a change.
    Expects {
        /// It is less.
        Less = "less",
        /// It is more.
        More = "more",
        /// It is the same to 5 %.
        Same = "same",
    }
}
