//! What this machine has, or why a test is skipped.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::process::{Command, Stdio};

use tcpcost_host::namespace::{self, Way};

/// Notes that the calling test is skipped, and why.
///
/// The test is named by its thread; on a thread that a test has started, by the place of the call.
///
/// # Panics
/// With `TCPCOST_REQUIRE=all`; and where the file that `TCPCOST_SKIPPED` names cannot be appended to.
#[track_caller]
pub fn skip(why: &str) {
    let place = Location::caller();
    let thread = std::thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" => name.to_string(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    let why = why.lines().collect::<Vec<_>>().join("; ");
    println!("skipped: {test}: {why}");
    if let Some(path) = std::env::var_os("TCPCOST_SKIPPED") {
        // One write of one line, so that tests that run at once do not mix theirs.
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(format!("{test}: {why}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("append to {}: {error}", path.display()));
    }
    let required = std::env::var("TCPCOST_REQUIRE").unwrap_or_default();
    assert!(required != "all", "TCPCOST_REQUIRE=all: {why}");
}

/// Whether the effective user is root, of whatever user namespace.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this process may make network namespaces as root does; if not, the test is skipped.
#[track_caller]
pub fn can_make_namespaces() -> bool {
    let why = match namespace::can_make_namespaces() {
        Ok(Way::Privileged) => return true,
        Ok(Way::UserNamespace) => "needs root to make network namespaces".to_string(),
        Err(why) => why,
    };
    skip(&why);
    false
}

/// Whether this process may run on so many CPUs at once; if not, the test is skipped.
#[track_caller]
pub fn has_cpus(count: usize) -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < count {
        skip(&format!("needs {count} CPUs, may use {cpus}"));
    }
    cpus >= count
}

/// Whether this program can be started; if not, the test is skipped.
#[track_caller]
pub fn has_program(name: &str) -> bool {
    let mut command = Command::new(name);
    command.arg("--version");
    let has = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !has {
        skip(&format!("needs {name}"));
    }
    has
}
