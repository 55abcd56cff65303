//! The meter `profile` of one end. It returns call chains, not totals, so it is no `Meter`. Any failure
//! becomes a warning, and the trial goes on without call chains.

#[cfg(feature = "bpf")]
use tcpcost_meter::{MeterError, Scope, bpf::profile::Profile};
use tcpcost_study::CallChains;
#[cfg(not(feature = "bpf"))]
use tcpcost_study::MeterName;

use crate::protocol::Prepare;
use crate::readings::warning;

/// A sampler of an end's CPUs, or the reason why it failed.
#[cfg(feature = "bpf")]
pub struct Sampler(Result<Profile, MeterError>);

#[cfg(feature = "bpf")]
impl Sampler {
    /// Loads the sampler, stopped. `None` if it is not wanted or unavailable.
    pub fn load(prepare: &Prepare, warnings: &mut Vec<String>) -> Option<Sampler> {
        let sampling = prepare.sampling.as_ref()?;
        let scope = Scope {
            cpus: sampling.cpus.clone(),
            own_pids: prepare.own_pids.clone(),
            ..Scope::default()
        };
        let loaded = Profile::load(&scope, sampling.hz);
        let loaded = loaded.inspect_err(|error| warnings.push(warning(error)));
        Some(Sampler(Ok(loaded.ok()?)))
    }

    pub fn start(&mut self) {
        self.then(Profile::start);
    }

    pub fn stop(&mut self) {
        self.then(Profile::stop);
    }

    fn then(&mut self, act: impl FnOnce(&mut Profile) -> Result<(), MeterError>) {
        if let Ok(profile) = &mut self.0
            && let Err(error) = act(profile)
        {
            self.0 = Err(error);
        }
    }

    /// Call chains that were sampled. Looks up symbol names, which takes about 100 ms.
    pub fn chains(self, warnings: &mut Vec<String>) -> Option<CallChains> {
        let found = self.0.and_then(|profile| profile.chains());
        found
            .inspect_err(|error| warnings.push(warning(error)))
            .ok()
    }
}

/// Type without a value: this program was built without eBPF.
#[cfg(not(feature = "bpf"))]
pub enum Sampler {}

#[cfg(not(feature = "bpf"))]
impl Sampler {
    /// Adds a warning if the sampler is wanted.
    pub fn load(prepare: &Prepare, warnings: &mut Vec<String>) -> Option<Sampler> {
        prepare.sampling.as_ref()?;
        let error = tcpcost_meter::MeterError::built_without_bpf(MeterName::Profile);
        warnings.push(warning(&error));
        None
    }

    pub fn start(&mut self) {}

    pub fn stop(&mut self) {}

    pub fn chains(self, _: &mut Vec<String>) -> Option<CallChains> {
        match self {}
    }
}
