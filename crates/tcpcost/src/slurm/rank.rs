//! Which of several processes of a step this is: started by mpirun or srun on several nodes, one of them is to run the study.

/// The variables that say so, of Open MPI, of a PMI and of Slurm.
const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// The variable that says that this is not the first process; `None` of the first, or the only one.
pub fn other_rank() -> Option<String> {
    other_rank_of(|name| std::env::var(name).ok())
}

fn other_rank_of(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    // The first that is set is of the inner launcher: mpirun starts its own daemons by srun.
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
        // mpirun's daemon on the second node is process 1 of a step of Slurm's; what it starts is of mpirun.
        let inner = [("OMPI_COMM_WORLD_RANK", "0"), ("SLURM_PROCID", "1")];
        assert_eq!(rank(&inner), None);
        let other = [("OMPI_COMM_WORLD_RANK", "1"), ("SLURM_PROCID", "0")];
        assert_eq!(rank(&other).as_deref(), Some("OMPI_COMM_WORLD_RANK=1"));
    }
}
