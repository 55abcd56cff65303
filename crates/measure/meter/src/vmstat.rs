//! Page faults of the whole host, from /proc/vmstat: of every task, since boot.
//!
//! For the faults of a study's own threads see [`crate::rusage`].

use std::fs;
use std::path::PathBuf;

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::{Meter, MeterError, snapshot_of};

/// The meter `vmstat`: [`CountOwner::Host`].
#[derive(Debug)]
pub struct Vmstat {
    path: PathBuf,
}

impl Default for Vmstat {
    fn default() -> Vmstat {
        let path = PathBuf::from("/proc/vmstat");
        Vmstat { path }
    }
}

impl Meter for Vmstat {
    fn name(&self) -> MeterName {
        MeterName::Vmstat
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let text = fs::read_to_string(&self.path).map_err(|source| MeterError::Read {
            path: self.path.clone(),
            source,
        })?;
        let total = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.split_once(' ').is_some_and(|(of, _)| of == name));
            line.map(|line| {
                let value = line[name.len()..].trim().parse::<u64>();
                value.map_err(|_| MeterError::format(&self.path, "a name and a value", line))
            })
            .transpose()
        };
        let mut counts = Counts::new();
        // The kernel's pgfault counts both kinds.
        if let (Some(all), Some(major)) = (total("pgfault")?, total("pgmajfault")?) {
            counts.insert(Quantity::MinorFaults, all.saturating_sub(major));
            counts.insert(Quantity::MajorFaults, major);
        }
        Ok(snapshot_of(self.name(), CountOwner::Host, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Counts, MeterError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, text).unwrap();
        Ok(Vmstat { path }.snapshot()?.totals.remove(0).counts)
    }

    #[test]
    fn faults_are_split_into_those_with_and_without_a_disk() {
        let counts = read("pgfree 9\npgfault 120\npgmajfault 20\npgfaultless 3\n").unwrap();
        assert_eq!(counts[&Quantity::MinorFaults], 100);
        assert_eq!(counts[&Quantity::MajorFaults], 20);
        assert!(read("pgfree 9\n").unwrap().is_empty());
        assert!(read("pgfault many\npgmajfault 1\n").is_err());
    }

    #[test]
    fn touching_fresh_memory_is_counted_on_this_host() {
        let faults = || {
            let mut counts = Vmstat::default()
                .snapshot()
                .unwrap()
                .totals
                .remove(0)
                .counts;
            counts.remove(&Quantity::MinorFaults).unwrap()
        };
        let before = faults();
        // The kernel adds up its per-CPU counters in batches. This is more than they hold.
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(faults() > before, "{}", pages.len());
    }
}
