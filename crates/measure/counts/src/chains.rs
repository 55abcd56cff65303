//! Call chains sampled in an interval, as a record keeps them: the samples, not their meaning.
//!
//! Reports derive layers, contexts and shares. Names are stored once and chains refer to them,
//! which makes a trial of a second at 99 Hz some 10 KiB. [`CallChains::bound`] limits the size,
//! because a record is one line.

use serde::{Deserialize, Serialize};

/// Call chains of one end of a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallChains {
    /// Source of the samples: `cycles` (the PMU's; a halted CPU has none) or `cpu-clock` (time,
    /// idle time included; stretches with interrupts off are charged to where they end).
    pub source: String,
    /// Sampling period: cycles, or ns of `cpu-clock`.
    pub period: u64,
    /// CPUs that were sampled. If both ends share CPUs, the client's chains contain all of them.
    pub cpus: Vec<usize>,
    /// Time in which samples were taken, ns.
    pub duration_ns: u64,
    /// Names of functions, each once; `[unknown]` for an address without a name.
    pub functions: Vec<String>,
    /// Distinct chains, the most frequent first.
    pub chains: Vec<CallChain>,
    /// Samples of rarer chains that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub samples_left_out: u64,
}

/// A chain and its number of samples. Functions are indices into [`CallChains::functions`],
/// outermost first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallChain {
    /// Name of the task that was on the CPU.
    pub task: String,
    /// Owner of that task.
    pub whose: TaskClass,
    /// Functions in user mode; empty for tasks that are not the trial's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<u32>,
    /// Functions in the kernel; empty if user mode ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<u32>,
    /// Number of samples.
    pub samples: u64,
}

/// Owner of the task on the CPU. An interrupt or a softirq may have run on top of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskClass {
    /// A process of the trial.
    Own,
    /// A kernel thread that carries network work: ksoftirqd, a kworker, threaded NAPI.
    Kernel,
    /// Any other task.
    Others,
    /// The idle task.
    Idle,
}

impl CallChains {
    /// Limit of distinct chains that a record keeps of an end: some 200 KiB.
    pub const MAX: usize = 2000;

    /// Sorts chains by frequency, and removes those after the first `max` and function names that
    /// are then unused.
    pub fn bound(mut self, max: usize) -> CallChains {
        self.chains
            .sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.cmp(b)));
        let left_out = self.chains.split_off(max.min(self.chains.len()));
        if left_out.is_empty() {
            return self;
        }
        self.samples_left_out += left_out.iter().map(|chain| chain.samples).sum::<u64>();
        let mut places: Vec<Option<u32>> = vec![None; self.functions.len()];
        let mut functions = Vec::new();
        for place in self
            .chains
            .iter_mut()
            .flat_map(|chain| chain.user.iter_mut().chain(&mut chain.kernel))
        {
            let Some(new) = places.get_mut(*place as usize) else {
                continue; // Such an index has no name before and after.
            };
            *place = *new.get_or_insert_with(|| {
                functions.push(self.functions[*place as usize].clone());
                (functions.len() - 1) as u32
            });
        }
        self.functions = functions;
        self
    }

    /// Name with this index; `[unknown]` for an index that a damaged record refers to.
    pub fn name(&self, place: u32) -> &str {
        self.functions
            .get(place as usize)
            .map_or(UNKNOWN, String::as_str)
    }

    /// Number of all samples, those not kept included.
    pub fn samples(&self) -> u64 {
        let kept = self.chains.iter().map(|chain| chain.samples);
        kept.sum::<u64>() + self.samples_left_out
    }
}

/// Name of functions without a name.
pub const UNKNOWN: &str = "[unknown]";

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarest_chains_and_their_names_are_left_out_and_counted() {
        let chain = |user: &[u32], kernel: &[u32], samples| CallChain {
            task: "t".into(),
            whose: TaskClass::Own,
            user: user.to_vec(),
            kernel: kernel.to_vec(),
            samples,
        };
        let all = CallChains {
            functions: ["a", "b", "c", "d"].map(String::from).to_vec(),
            chains: vec![
                chain(&[0], &[], 1),
                chain(&[1], &[3, 9], 5),
                chain(&[3], &[], 2),
            ],
            ..CallChains::default()
        };
        assert_eq!(all.clone().bound(3).samples(), 8);
        let bound = all.bound(2);
        assert_eq!(bound.functions, ["b", "d"]);
        assert_eq!(bound.chains, [chain(&[0], &[1, 9], 5), chain(&[1], &[], 2)]);
        assert_eq!((bound.samples_left_out, bound.samples()), (1, 8));
        assert_eq!(bound.name(9), UNKNOWN);
    }
}
