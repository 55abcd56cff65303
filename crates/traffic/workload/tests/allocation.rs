//! Traffic allocates no memory.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{client, limit, run_while, server, settings};
use tcpcost_counts::Quantity as Q;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged; the count is a const-made
// thread-local without a destructor, so counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_run_allocates_nothing_once_it_is_under_way() {
    for (kind, more) in [
        ("stream", ("flows", "20")),
        ("bidirectional", ("send_with", "splice")),
        ("stream", ("send_with", "zerocopy")),
        ("rr", ("in_flight", "4")),
        ("rr", ("transaction_rate", "5000/s")),
        ("crr", ("flows", "5")),
        (
            "program",
            (
                "program",
                r#"[{ send = ["1B", "9KiB"] }, { receive = "1B" }]"#,
            ),
        ),
        (
            "program",
            (
                "program",
                r#"[{ send = "1B" }, { receive = "1B" }, { sleep = "10us" }]"#,
            ),
        ),
        (
            "program",
            (
                "program",
                r#"[{ connect = {} }, { send = "1B" }, { receive = "9B" }, { close = {} }]"#,
            ),
        ),
    ] {
        println!("{kind} {more:?}");
        let settings = settings(&[("workload", kind), more]);
        let mut server = server(&settings, 1);
        let mut client = client(&settings, server.ports());
        let stop = AtomicBool::new(false);
        let count = match kind {
            "rr" | "crr" | "program" => Q::Transactions,
            _ => Q::PayloadBytesSent,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                server.set_up(limit()).unwrap();
                server.run_until(limit(), &stop).unwrap();
            });
            client.set_up(limit()).unwrap();
            run_while(&mut client, |totals| totals[&count] < 100).unwrap();
            for _ in 0..5 {
                let before = client.totals()[&count];
                let allocations = ALLOCATIONS.get();
                let soon = std::time::Instant::now() + std::time::Duration::from_millis(5);
                client.run_until(soon, &stop).unwrap();
                assert_eq!(ALLOCATIONS.get(), allocations, "{kind} {more:?}");
                assert!(client.totals()[&count] >= before);
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
