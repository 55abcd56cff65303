//! The part that this process has in a run with Slurm: it submits a job, leaves the run to another process of its step, or conducts the
//! run on the allocated nodes.

use anyhow::Context;
use tcpcost_console::exit::Exit;
use tcpcost_console::output;

use super::args::RunArgs;
use super::commands::{self, Consent};
use super::directory::{CreatedFiles, Directory, StoredRun};
use super::overrides::Overrides;
use super::slurm::{self, Allocation, Job};
use super::studies;

/// Part of this process in a run.
pub enum Part {
    /// None: another process of the step runs the study. The text names the environment variable that shows this.
    None(String),
    /// Submits a job.
    Submit,
    /// Runs the trials, on the nodes of an allocation if there is one.
    Run(Option<Allocation>),
}

/// Finds the part of this process.
///
/// # Errors
/// Slurm does not name the job's nodes, or the study cannot be read.
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

/// True if a host of the study is on a node of a job.
fn is_on_nodes(args: &RunArgs) -> anyhow::Result<bool> {
    let study = match &args.resume {
        Some(path) => StoredRun::load(path)?.study,
        None => {
            let named = args.study.as_deref().expect("clap asks for one");
            let (name, text, file) = studies::find(named)?;
            super::overrides(args, name)?.apply(&text, &file)?
        }
    };
    Ok(slurm::nodes(&study) != Some(0))
}

/// Makes the run's directory, and submits a job that continues the run in it.
pub fn submit(args: &RunArgs) -> anyhow::Result<Exit> {
    let consent = Consent::new(args.hosts.allow_exec);
    let (path, study, created) = match &args.resume {
        Some(path) => {
            let run = StoredRun::load(path)?;
            run.print_oddities();
            consent.check(&run.study, &run.overrides)?;
            (path.clone(), run.study, CreatedFiles::default())
        }
        None => {
            let named = args.study.as_deref().expect("clap asks for one");
            let (name, text, file) = studies::find(named)?;
            let overrides = super::overrides(args, name)?;
            let study = overrides.apply(&text, &file)?;
            consent.with_typed(&overrides).check(&study, &overrides)?;
            let out = args.out.clone();
            let path = out.unwrap_or_else(|| super::default_directory(&study.name));
            let created = match args.dry_run {
                true => CreatedFiles::default(),
                // Keeps only the list of new files, so that the lock is free for the job.
                false => Directory::create(&path, &text, &overrides)?.created,
            };
            (path, study, created)
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
        // No job will write to the directory.
        created.remove();
    }
    Ok(match submitted? {
        true => Exit::Ok,
        false => Exit::Failed,
    })
}
