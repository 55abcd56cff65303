//! Needs of tests, and skips.

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;
use std::process::{Command, Stdio};

use tcpcost_host::namespace::{self, NamespaceMethod};

/// Reports that the calling test is skipped, with the reason.
///
/// The test's name is that of its thread; on a thread that a test has started, the place of the
/// call.
///
/// # Panics
/// With `TCPCOST_REQUIRE=all`; if the file that `TCPCOST_SKIPPED` names cannot be appended to.
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
        // One write of one line, so that lines of simultaneous tests do not mix.
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

/// True if the effective user is root, in any user namespace.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if this process may make network namespaces with root's privileges; otherwise the test is
/// skipped.
#[track_caller]
pub fn can_make_namespaces() -> bool {
    let why = match namespace::can_make_namespaces() {
        Ok(NamespaceMethod::Privileged) => return true,
        Ok(NamespaceMethod::UserNamespace) => "needs root to make network namespaces".to_string(),
        Err(why) => why.to_string(),
    };
    skip(&why);
    false
}

/// True if this process may run on `count` CPUs at once; otherwise the test is skipped.
#[track_caller]
pub fn has_cpus(count: usize) -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cpus < count {
        skip(&format!("needs {count} CPUs, may use {cpus}"));
    }
    cpus >= count
}

/// True if this program can be started; otherwise the test is skipped.
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
