//! Call chains sampled in an interval, as a record keeps them: what was sampled, not what it means.
//!
//! Layers, contexts and shares are a report's to derive. Names are kept once and chains refer to them, which
//! makes a trial of a second at 99 Hz some 10 KiB; [`CallChains::bound`] keeps the largest from outgrowing
//! the line that a record is.

use serde::{Deserialize, Serialize};

/// Call chains of one end of a trial.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallChains {
    /// What makes the samples: `cycles` (the PMU's, of which a halted CPU has none) or `cpu-clock` (time, idle
    /// time included; it cannot see stretches with interrupts off and charges them to where these end).
    pub source: String,
    /// What a sample stands for: so many cycles, or ns of `cpu-clock`.
    pub period: u64,
    /// CPUs that were sampled. Of two ends that share CPUs the client's has them all.
    pub cpus: Vec<usize>,
    /// Time in which samples were taken, ns.
    pub duration_ns: u64,
    /// Names of functions, each once; `[unknown]` where an address has none.
    pub functions: Vec<String>,
    /// Distinct chains, the most frequent first.
    pub chains: Vec<CallChain>,
    /// Samples of rarer chains that are not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub samples_left_out: u64,
}

/// One chain and how often it was found. Functions are places in [`CallChains::functions`], outermost first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallChain {
    /// Name of the task that was on the CPU.
    pub task: String,
    /// Whose task that was.
    pub whose: TaskClass,
    /// Its functions in user mode; none for tasks that are not the trial's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub user: Vec<u32>,
    /// The kernel's; none when user mode ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<u32>,
    /// Samples.
    pub samples: u64,
}

/// Whose task was on the CPU. An interrupt or a softirq may have been on top of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskClass {
    /// Of a process of the trial.
    Own,
    /// A kernel thread that carries network work: ksoftirqd, a kworker, threaded NAPI.
    Kernel,
    /// Any other.
    Others,
    /// The idle task.
    Idle,
}

impl CallChains {
    /// The most distinct chains that a record keeps of an end: some 200 KiB.
    pub const MAX: usize = 2000;

    /// Puts the most frequent chains first and leaves out what is beyond `max` of them, and the names that
    /// then nobody uses.
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
                continue; // Names nothing before and after.
            };
            *place = *new.get_or_insert_with(|| {
                functions.push(self.functions[*place as usize].clone());
                (functions.len() - 1) as u32
            });
        }
        self.functions = functions;
        self
    }

    /// The name at a place; `[unknown]` at one that a damaged record refers to.
    pub fn name(&self, place: u32) -> &str {
        self.functions
            .get(place as usize)
            .map_or(UNKNOWN, String::as_str)
    }

    /// All samples, those left out too.
    pub fn samples(&self) -> u64 {
        let kept = self.chains.iter().map(|chain| chain.samples);
        kept.sum::<u64>() + self.samples_left_out
    }
}

/// The name of what has none.
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
