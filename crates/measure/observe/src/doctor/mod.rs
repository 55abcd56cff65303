//! `tcpcost doctor`: reports what can be measured on this host, what cannot, why, and what to do.
//!
//! A check reads files and tries operations; it changes nothing that outlasts it. Files are read
//! below a root folder, which tests replace. Operations use the same code as a run.

mod bed;
mod bpf;
mod btf;
mod cpu;
mod kernel;
mod meters;
mod network;
mod privileges;

use std::fmt::Write;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use tcpcost_console::exit::Exit;
use tcpcost_console::format::{Format, Output, TextOrJson};
use tcpcost_console::output;
use tcpcost_host::journal;

pub use privileges::CommandNeed;

/// Result of one check: a thing that a measurement may need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    /// Name of the check; scripts may rely on it.
    name: &'static str,
    verdict: Verdict,
    /// State of the host that the check found.
    found: String,
    /// Consequence for measurements; `None` if the verdict is [`Verdict::Ok`].
    consequence: Option<String>,
    /// Advice to the user; `None` if the verdict is [`Verdict::Ok`].
    advice: Option<String>,
}

/// Verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// Measurements have all that they need.
    Ok,
    /// Measurements work, with fewer figures or more noise.
    Degraded,
    /// Measurements that need it do not work.
    Missing,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            consequence: None,
            advice: None,
        }
    }

    fn degraded(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            name,
            verdict: Verdict::Degraded,
            found: found.into(),
            consequence: Some(consequence.into()),
            advice: Some(advice.into()),
        }
    }

    fn missing(
        name: &'static str,
        found: impl Into<String>,
        consequence: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        Check {
            verdict: Verdict::Missing,
            ..Check::degraded(name, found, consequence, advice)
        }
    }
}

/// Checks that every study needs.
const REQUIRED: [&str; 2] = ["tcp_loopback", "proc_stat"];

/// `tcpcost doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Restore what a killed run left changed on this host, and check nothing.
    #[arg(long)]
    pub restore: bool,
    /// Format of the checks.
    #[command(flatten)]
    pub output: Output<TextOrJson>,
}

/// Runs all checks and prints them; returns [`Exit::Unavailable`] if no study can run. Or restores the host. `commands`: the
/// capabilities that commands need.
///
/// # Errors
/// Standard output cannot be written, or the journal of changes cannot be read.
pub fn doctor(args: &DoctorArgs, commands: &[CommandNeed]) -> anyhow::Result<Exit> {
    if args.restore {
        return restore();
    }
    let checks = checks(Path::new("/"), commands);
    let text = if args.output.has(Format::Json) {
        let document = serde_json::json!({"schema_version": 1, "checks": checks});
        format!("{document:#}\n")
    } else {
        text(&checks)
    };
    output::write(&text)?;
    Ok(exit(&checks))
}

/// Restores settings of the host that a killed run left changed.
fn restore() -> anyhow::Result<Exit> {
    let folder = journal::folder()?;
    let restored = journal::restore(&folder)?;
    if restored == journal::Restored::default() {
        output::write("nothing to restore\n")?;
    } else {
        output::write(&restored.to_string())?;
    }
    Ok(if restored.failed.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

fn checks(root: &Path, commands: &[CommandNeed]) -> Vec<Check> {
    let config = kernel::config(root);
    let config = config.as_deref();
    let mut checks = vec![
        network::loopback(),
        cpu::proc_stat(root),
        kernel::version(root),
        kernel::configuration(config),
        kernel::accounting(root, config),
        privileges::capabilities(root),
        privileges::commands(root, commands),
        privileges::namespaces(),
    ];
    checks.extend(bed::checks(config));
    checks.push(kernel::btf(root));
    checks.extend(bpf::checks(root));
    checks.extend(meters::checks());
    checks.extend([
        cpu::pmu(),
        cpu::count(root),
        cpu::quota(),
        cpu::distance(root),
        cpu::smt(root),
        cpu::governor(root),
        cpu::clock_source(root),
        cpu::steal(root),
    ]);
    checks.extend([
        network::offloads(root),
        network::congestion_control(root),
        network::tcp_mem(root),
        network::open_files(),
    ]);
    checks
}

fn exit(checks: &[Check]) -> Exit {
    let is_in_the_way =
        |check: &Check| check.verdict == Verdict::Missing && REQUIRED.contains(&check.name);
    if checks.iter().any(is_in_the_way) {
        Exit::Unavailable
    } else {
        Exit::Ok
    }
}

fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    let width = checks.iter().map(|check| check.name.len()).max();
    let width = width.unwrap_or(0);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Degraded => "degraded",
            Verdict::Missing => "missing",
        };
        write!(text, "{verdict:<8} {:<width$}  {}", check.name, check.found).expect(INFALLIBLE);
        for more in [&check.consequence, &check.advice].into_iter().flatten() {
            write!(text, "; {more}").expect(INFALLIBLE);
        }
        text.push('\n');
    }
    let count = |verdict| {
        checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    };
    let can = match exit(checks) {
        Exit::Ok => "studies can run here",
        _ => "no study can run here",
    };
    let (ok, degraded) = (count(Verdict::Ok), count(Verdict::Degraded));
    let missing = count(Verdict::Missing);
    writeln!(
        text,
        "{ok} ok, {degraded} degraded, {missing} missing: {can}"
    )
    .expect(INFALLIBLE);
    text
}

const INFALLIBLE: &str = "a String takes all";

/// Makes a folder for tests that takes the place of `/`.
#[cfg(test)]
fn fake_root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_host::privileges::CapabilitySet;

    #[test]
    fn only_what_every_study_needs_ends_with_77() {
        let missing = |name| Check::missing(name, "nothing", "less", "get it");
        assert_eq!(
            exit(&[missing("pmu"), Check::ok("proc_stat", "")]),
            Exit::Ok
        );
        for name in REQUIRED {
            assert_eq!(exit(&[missing(name)]), Exit::Unavailable);
        }
        let degraded = Check::degraded("proc_stat", "", "", "");
        assert_eq!(exit(&[degraded]), Exit::Ok);
    }

    #[test]
    fn a_check_is_one_line_that_ends_with_what_to_do() {
        let checks = [
            Check::ok("kernel", "Linux 6.18"),
            Check::missing("pmu", "no cycles", "cost in time only", "run on metal"),
        ];
        assert_eq!(
            text(&checks),
            "ok       kernel  Linux 6.18\n\
             missing  pmu     no cycles; cost in time only; run on metal\n\
             1 ok, 0 degraded, 1 missing: studies can run here\n"
        );
    }

    #[test]
    fn an_empty_root_is_said_to_be_empty_and_nothing_panics() {
        let root = fake_root(&[]);
        let command = CommandNeed {
            command: "watch",
            when: "",
            capabilities: CapabilitySet::BPF,
        };
        let checks = checks(root.path(), &[command]);
        let names: std::collections::BTreeSet<_> = checks.iter().map(|check| check.name).collect();
        assert_eq!(names.len(), checks.len(), "{checks:?}");
        assert!(REQUIRED.iter().all(|name| names.contains(name)));
        assert_eq!(exit(&checks), Exit::Unavailable);
        for check in &checks {
            assert!(
                !check.found.is_empty() && !check.found.contains('\n'),
                "{check:?}"
            );
            assert_eq!(
                check.verdict == Verdict::Ok,
                check.advice.is_none(),
                "{check:?}"
            );
        }
    }
}
