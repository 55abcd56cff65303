//! Slurm: the nodes of a job as hosts, and jobs that run a study.
//!
//! Slurm authenticates, places, limits and ends the processes, by its own commands (sbatch, srun, scontrol). A host on a node is
//! an agent that srun starts there. Its standard input and output are srun's.

mod allocation;
mod rank;
mod script;

use tcpcost_study::{Bed, Cell, Reach, Study, Topology};

pub use self::allocation::Allocation;
pub use self::rank::other_rank;
pub use self::script::{Job, submit};

/// Number of nodes that a study's hosts need; `None` if the study uses all nodes of its job.
pub fn nodes(study: &Study) -> Option<usize> {
    if study.awaits_nodes() {
        return None;
    }
    let of = |cell: &Cell| {
        let named = cell.knobs.names_hosts();
        let topology = named
            .then(|| Topology::of(Bed::Hosts, &cell.knobs).ok())
            .flatten();
        let hosts = topology.map_or(Vec::new(), |topology| topology.hosts);
        let is_node = |reach: &Reach| matches!(reach, Reach::Slurm(_));
        let whole = hosts.iter().filter(|host| host.name.half_of().is_none());
        whole.filter(|host| is_node(&host.reach)).count()
    };
    study.cells.iter().map(of).max()
}
