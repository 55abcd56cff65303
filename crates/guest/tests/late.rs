//! A guest that has not ended at its time limit is ended, and reports how far it came.

use std::path::Path;
use std::time::Duration;

use tcpcost_guest::{BootEnd, Guest, Image, Kernel, Limit, Machine, Setup, Task};
use tcpcost_testbed::{has_program, skip};

#[test]
fn a_guest_that_is_not_done_in_time_is_ended_and_one_that_nobody_wants_is_stopped() {
    if !has_program("qemu-system-x86_64") {
        return;
    }
    let Some(named) = std::env::var_os("TCPCOST_GUEST_KERNEL") else {
        skip("needs a kernel to boot: TCPCOST_GUEST_KERNEL=$(scripts/guest-kernel)");
        return;
    };
    let kernel = Kernel::find(Some(Path::new(&named))).unwrap();
    let image = Image::make(
        &std::env::current_exe().unwrap(),
        &kernel,
        &[],
        &Setup::default(),
    )
    .unwrap();
    let guest = Guest::new(kernel, image).unwrap();
    let boot = |limit, stop: bool| {
        let task = Task::default();
        guest
            .boot(&Machine::new(1), &task, limit, &|| stop)
            .unwrap()
    };
    // No kernel can boot in zero time, nor in one second of CPU time that is emulated.
    let none = Limit {
        wall: Duration::ZERO,
        ..Limit::default()
    };
    let second = Limit {
        cpu: Duration::from_secs(1),
        ..Limit::default()
    };
    assert_eq!(boot(second, false).ended, BootEnd::Late);
    let late = boot(none, false);
    assert_eq!(late.ended, BootEnd::Late);
    let told = late.failure().unwrap();
    assert!(
        told.starts_with("the guest did not come up within"),
        "{told}"
    );
    assert_eq!(boot(Limit::default(), true).ended, BootEnd::Stopped);
}
