//! The part of a run that a process has which a scheduler may have started: submit a job, leave the run to the first process of
//! its step, or run it on the allocated nodes.

use anyhow::Context;

use super::commands::{self, Consent};
use super::directory::{Directory, Made, Overrides, StoredRun};
use crate::cli::RunArgs;
use tcpcost_console::exit::Exit;
use tcpcost_console::output;
use crate::slurm::{self, Allocation, Job};
use crate::uperf;

/// What this process does of a run.
pub enum Part {
    /// Nothing: another process of its step runs the study; by which variable that is told.
    None(String),
    /// Submit a job.
    Submit,
    /// The trials, on these nodes if some are known.
    Run(Option<Allocation>),
}

/// The part of this process.
///
/// # Errors
/// Slurm does not name the job's nodes.
pub fn part(args: &RunArgs) -> anyhow::Result<Part> {
    let other = slurm::other_rank();
    let is_asked = args.slurm || other.is_some() && is_on_nodes(args)?;
    if !is_asked || args.dry_run && !args.slurm {
        return Ok(Part::Run(None));
    }
    if let Some(rank) = other {
        return Ok(Part::None(rank));
    }
    Ok(match Allocation::here()? {
        None if args.slurm => Part::Submit,
        allocation => Part::Run(allocation),
    })
}

/// Whether some hosts of the study are on nodes of a job.
fn is_on_nodes(args: &RunArgs) -> anyhow::Result<bool> {
    let study = match &args.resume {
        Some(path) => StoredRun::load(path)?.study,
        None => {
            let named = args.study.as_deref().expect("clap asks for one");
            let (name, text, file) = uperf::find(named)?;
            super::overrides(args, name)?.apply(&text, &file)?
        }
    };
    Ok(slurm::nodes(&study) != Some(0))
}

/// Makes the run's directory, and submits a job that goes on with it.
pub fn submit(args: &RunArgs) -> anyhow::Result<Exit> {
    let consent = Consent::new(args.hosts.allow_exec);
    let (path, study, made) = match &args.resume {
        Some(path) => {
            let run = StoredRun::load(path)?;
            run.say();
            consent.check(&run.study, &run.overrides)?;
            (path.clone(), run.study, Made::default())
        }
        None => {
            let named = args.study.as_deref().expect("clap asks for one");
            let (name, text, file) = uperf::find(named)?;
            let overrides = super::overrides(args, name)?;
            let study = overrides.apply(&text, &file)?;
            consent.with_typed(&overrides).check(&study, &overrides)?;
            let out = args.out.clone();
            let path = out.unwrap_or_else(|| super::default_directory(&study.name));
            let made = match args.dry_run {
                true => Made::default(),
                // Its lock is the job's to have.
                false => Directory::create(&path, &text, &overrides)?.made,
            };
            (path, study, made)
        }
    };
    let absolute =
        std::path::absolute(&path).with_context(|| format!("find {}", path.display()))?;
    let program = std::env::current_exe().context("find this program")?;
    let job = Job {
        study: &study.name,
        directory: &absolute,
        program: &program,
        nodes: slurm::nodes(&study),
        allows_exec: !commands::named(&study, &Overrides::default()).is_empty(),
    };
    if args.dry_run {
        output::write(&job.script())?;
        return Ok(Exit::Ok);
    }
    let submitted = slurm::submit(&job.script(), &args.sbatch, &path);
    if submitted.is_err() {
        // No job will ever write there.
        made.discard();
    }
    Ok(match submitted? {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}
