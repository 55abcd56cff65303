//! A study on the hosts of mpirun's own job, outside of Slurm: its processes as mpirun starts them, each on a host of its own, the
//! others reached by ssh. As root and with openssh-server; elsewhere skipped.

mod common;
mod lab;

use std::process::Command;

use common::{MEASURE, Place, Started};
use lab::Lab;
use tcpcost_testbed::has_program;

const STUDY: &str = r#"
[hosts]
client = { reach = "slurm", device = "e0" }
server = { reach = "slurm", device = "eth0" }
[workload]
rate = "20Mbit"
"#;

/// The process of this rank, of two, on a host of this name, with mpirun's variables.
fn process(place: &Place, rank: &str, host: &str, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--uts", "sh", "-c"])
        .arg("echo \"$0\" > /proc/sys/kernel/hostname && exec \"$@\"")
        .args([host, env!("CARGO_BIN_EXE_tcpcost")])
        .args(args)
        .current_dir(place.directory.path())
        .env("TCPCOST_STATE_DIR", place.path("state"))
        .env_remove("SLURM_JOB_ID")
        .env("OMPI_COMM_WORLD_RANK", rank)
        .env("OMPI_COMM_WORLD_SIZE", "2")
        .env("PMIX_NAMESPACE", "1853161473");
    command
}

#[test]
fn the_first_process_runs_the_study_on_the_hosts_of_all() {
    let Some(lab) = Lab::new(1) else { return };
    if !has_program("unshare") {
        return;
    }
    let study = lab.place.write("study.toml", &format!("{STUDY}{MEASURE}"));
    let reach = lab.reach();
    let mut args = vec!["run", &study, "--out", "out"];
    args.extend(reach.iter().map(String::as_str));
    let first = process(&lab.place, "0", "head", &args);
    let other = process(&lab.place, "1", "alpha", &args);
    let first = lab.here(move || Started::new(first));
    let other = lab.here(move || Started::new(other)).end();
    assert_eq!(other.code, Some(0), "{other:?}");
    let said = "the first process of the step runs the study: OMPI_COMM_WORLD_RANK=1";
    assert!(other.stderr.contains(said), "{other:?}");
    let ran = first.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    let hosts = record["topology"]["hosts"].as_array().unwrap();
    assert_eq!(hosts[0]["reach"], "here");
    assert_eq!(hosts[1]["reach"], "ssh:alpha");
    let left = std::fs::read_dir(lab.place.directory.path()).unwrap();
    let left = left.flatten().map(|entry| entry.file_name());
    let mpirun = left.filter(|name| name.to_string_lossy().contains("mpirun"));
    assert_eq!(mpirun.count(), 0, "what the processes told is removed");
}

#[test]
fn of_the_processes_of_a_step_one_runs_the_study() {
    let place = Place::new();
    let study = place.write("study.toml", &format!("{STUDY}{MEASURE}"));
    let mut command = place.command(&["run", &study, "--slurm", "--out", "out"]);
    command.env("SLURM_JOB_ID", "7").env("SLURM_PROCID", "2");
    let ran = Started::new(command).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("SLURM_PROCID=2"), "{ran:?}");
    assert!(!place.path("out").exists());
}
