//! Rank of this process in a step. If mpirun or srun starts several processes, only the first one
//! runs the study.

/// Environment variables with the rank: of Open MPI, of a PMI and of Slurm.
const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// Returns the variable and its value if this process is not the first. `None` for the first or
/// only process.
pub fn other_rank() -> Option<String> {
    other_rank_of(|name| std::env::var(name).ok())
}

fn other_rank_of(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    // The first variable that is set belongs to the inner launcher: mpirun starts its daemons by
    // srun.
    let (name, rank) = RANKS
        .into_iter()
        .find_map(|name| Some((name, variable(name)?)))?;
    (rank.trim() != "0").then(|| format!("{name}={rank}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_runs_the_study_whoever_started_it() {
        let rank = |set: &[(&str, &str)]| {
            other_rank_of(|name| {
                let found = set.iter().find(|(own, _)| *own == name)?;
                Some(found.1.to_string())
            })
        };
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("SLURM_PROCID", "0")]), None);
        assert_eq!(
            rank(&[("SLURM_PROCID", "3")]).as_deref(),
            Some("SLURM_PROCID=3")
        );
        // mpirun's daemon on the second node is process 1 of a Slurm step; the rank of the process
        // that the daemon starts is mpirun's.
        let inner = [("OMPI_COMM_WORLD_RANK", "0"), ("SLURM_PROCID", "1")];
        assert_eq!(rank(&inner), None);
        let other = [("OMPI_COMM_WORLD_RANK", "1"), ("SLURM_PROCID", "0")];
        assert_eq!(rank(&other).as_deref(), Some("OMPI_COMM_WORLD_RANK=1"));
    }
}
