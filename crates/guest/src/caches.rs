//! Caches that a guest's plugin models (caches.h), the lines that each level served, and the cycles that they are estimated to take.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Length of a line, bytes.
const LINE: u64 = 64;

/// Sizes of the modelled caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    /// First level for instructions, first level for data, second level, last level.
    levels: [Cache; 4],
}

/// A cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cache {
    kib: u64,
    ways: u64,
}

/// Reason why there is no model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CachesError {
    /// The text names no four caches.
    #[error(
        "expected host, or the sizes of the caches for instructions, for data, of the second and of the last level, each with its ways: 32K/8,32K/8,1M/8,32M/16"
    )]
    Text,
    /// The host describes fewer caches.
    #[error(
        "this host does not describe its caches in /sys/devices/system/cpu/cpu0/cache: name them, e.g. 32K/8,32K/8,1M/8,32M/16"
    )]
    NotDescribed,
}

impl Caches {
    /// Caches of this host's first CPU.
    ///
    /// # Errors
    /// The host does not describe two first levels, a second and a third one.
    pub fn of_host() -> Result<Caches, CachesError> {
        Caches::described(Path::new("/sys/devices/system/cpu/cpu0/cache"))
            .ok_or(CachesError::NotDescribed)
    }

    fn described(folder: &Path) -> Option<Caches> {
        let indices = || fs::read_dir(folder).ok().into_iter().flatten().flatten();
        let text = |index: &Path, name: &str| {
            let text = fs::read_to_string(index.join(name)).ok()?;
            Some(text.trim().to_string())
        };
        let cache = |level: &str, kinds: [&str; 2]| {
            let index = indices().map(|entry| entry.path()).find(|index| {
                let kind = text(index, "type");
                text(index, "level").as_deref() == Some(level)
                    && kind.is_some_and(|kind| kinds.contains(&&kind[..]))
            })?;
            let ways = text(&index, "ways_of_associativity")?;
            format!("{}/{ways}", text(&index, "size")?).parse().ok()
        };
        let levels = [
            cache("1", ["Instruction", "Unified"])?,
            cache("1", ["Data", "Unified"])?,
            cache("2", ["Unified", "Data"])?,
            cache("3", ["Unified", "Data"])?,
        ];
        Some(Caches { levels })
    }

    /// Option of the plugin.
    pub(crate) fn option(&self) -> String {
        let levels = self.levels.map(|cache| {
            let sets = cache.kib * 1024 / LINE / cache.ways;
            format!("{sets}/{}", cache.ways)
        });
        format!("caches={}", levels.join(":"))
    }
}

impl FromStr for Cache {
    type Err = CachesError;

    fn from_str(text: &str) -> Result<Cache, CachesError> {
        let parsed = || {
            let (size, ways) = text.split_once('/')?;
            let ways: u64 = ways.parse().ok()?;
            let unit = size.find(|letter: char| !letter.is_ascii_digit())?;
            let (number, unit) = size.split_at(unit);
            let each = match unit {
                "K" | "KiB" => 1,
                "M" | "MiB" => 1024,
                _ => return None,
            };
            let kib = number.parse::<u64>().ok()?.checked_mul(each)?;
            // One set at least, and at most 4 GiB: the plugin has four bytes for each line.
            let is_possible = (1..=64).contains(&ways) && kib * 16 >= ways && kib <= 4 << 20;
            is_possible.then_some(Cache { kib, ways })
        };
        parsed().ok_or(CachesError::Text)
    }
}

impl FromStr for Caches {
    type Err = CachesError;

    /// Parses `host` or four caches.
    fn from_str(text: &str) -> Result<Caches, CachesError> {
        if text == "host" {
            return Caches::of_host();
        }
        let levels: Result<Vec<Cache>, _> = text.split(',').map(str::parse).collect();
        let levels = levels?.try_into().map_err(|_| CachesError::Text)?;
        Ok(Caches { levels })
    }
}

impl fmt::Display for Caches {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels.map(|cache| match cache.kib % 1024 {
            0 => format!("{}M/{}", cache.kib / 1024, cache.ways),
            _ => format!("{}K/{}", cache.kib, cache.ways),
        });
        out.write_str(&levels.join(","))
    }
}

/// Lines that the first level did not have, by what served them: the second level, the last level, memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Misses {
    /// Executed `rep movs` and `rep stos`; each moves at most eight bytes.
    pub copied: f64,
    /// Lines of instructions.
    pub fetched: [f64; 3],
    /// Fetched lines behind the one before.
    pub following: [f64; 3],
    /// Lines of data.
    pub touched: [f64; 3],
    /// Touched lines of a stream.
    pub streamed: [f64; 3],
}

/// Cycles that a line takes from the second level, the last level and memory: near those of AMD's Zen 3 at 2.5 GHz.
const FAR: [f64; 3] = [14.0, 50.0, 200.0];
/// Cycles of data that a prefetcher brings: its bandwidth of 32, 16 and 5 bytes a cycle. An assumption.
const STREAMED: [f64; 3] = [2.0, 4.0, 13.0];
/// Cycles of instructions behind those before. An assumption.
const FOLLOWING: [f64; 3] = [4.0, 16.0, 60.0];
/// Instructions a cycle without misses. An assumption.
const PER_CYCLE: f64 = 2.0;
/// Cycles of a repeated move of eight bytes: 32 bytes a cycle.
const COPIED: f64 = 0.25;

impl Misses {
    /// Adds numbers in the order of the plugin: copied, then three each. `None` if there are others.
    pub(crate) fn add(&mut self, numbers: &[f64]) -> Option<()> {
        let (copied, rest) = numbers.split_first()?;
        if rest.len() != 12 {
            return None;
        }
        self.copied += copied;
        let all = [
            &mut self.fetched,
            &mut self.following,
            &mut self.touched,
            &mut self.streamed,
        ];
        let sums = all.into_iter().flatten();
        sums.zip(rest).for_each(|(sum, number)| *sum += number);
        Some(())
    }

    /// Misses of one of `units`.
    #[must_use]
    pub fn per(&self, units: f64) -> Misses {
        let per = |numbers: [f64; 3]| numbers.map(|number| number / units);
        Misses {
            copied: self.copied / units,
            fetched: per(self.fetched),
            following: per(self.following),
            touched: per(self.touched),
            streamed: per(self.streamed),
        }
    }

    /// Lines of instructions and data by what served them.
    pub fn lines(&self) -> [f64; 3] {
        [0, 1, 2].map(|level| self.fetched[level] + self.touched[level])
    }

    /// Estimated cycles of a function with these misses and this number of instructions.
    pub fn cycles(&self, instructions: f64) -> f64 {
        let of_lines = (0..3).map(|level| {
            let far = self.fetched[level] - self.following[level] + self.touched[level]
                - self.streamed[level];
            far * FAR[level]
                + self.following[level] * FOLLOWING[level]
                + self.streamed[level] * STREAMED[level]
        });
        (instructions - self.copied) / PER_CYCLE + self.copied * COPIED + of_lines.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_named_by_size_and_ways_and_become_sets() {
        let caches: Caches = "32K/8,48KiB/12,2M/16,30M/12".parse().unwrap();
        assert_eq!(caches.to_string(), "32K/8,48K/12,2M/16,30M/12");
        assert_eq!(caches.option(), "caches=64/8:64/12:2048/16:40960/12");
        for wrong in [
            "",
            "32K",
            "32K/8,32K/8,1M/8",
            "32K/8,32K/8,1M/8,32M/0",
            "32K/8,32K/8,1M/8,32G/8",
            "32K/8,32K/8,1M/8,-1M/8",
            "1K/64,32K/8,1M/8,32M/8",
            "32K/8,32K/8,1M/8,9999999999999999999M/8",
        ] {
            assert_eq!(wrong.parse::<Caches>(), Err(CachesError::Text), "{wrong}");
        }
    }

    #[test]
    fn a_host_s_caches_are_found_by_level_and_kind() {
        let folder = tempfile::tempdir().unwrap();
        let levels = [
            ("1", "Data", "48K", "12"),
            ("1", "Instruction", "32K", "8"),
            ("2", "Unified", "2048K", "16"),
            ("3", "Unified", "32768K", "16"),
        ];
        for (at, (level, kind, size, ways)) in levels.into_iter().enumerate() {
            assert_eq!(Caches::described(folder.path()), None);
            let index = folder.path().join(format!("index{at}"));
            fs::create_dir(&index).unwrap();
            for (name, text) in [
                ("level", level),
                ("type", kind),
                ("size", size),
                ("ways_of_associativity", ways),
            ] {
                fs::write(index.join(name), format!("{text}\n")).unwrap();
            }
        }
        let found = Caches::described(folder.path()).unwrap();
        assert_eq!(found.to_string(), "32K/8,48K/12,2M/16,32M/16");
    }

    #[test]
    fn a_line_costs_by_its_level_and_less_if_it_was_foreseen() {
        let mut misses = Misses::default();
        assert_eq!(misses.cycles(100.0), 50.0);
        misses
            .add(&[
                20.0, 3.0, 2.0, 1.0, 1.0, 0.0, 1.0, 5.0, 4.0, 3.0, 5.0, 2.0, 0.0,
            ])
            .unwrap();
        let fetched = 2.0 * 14.0 + 4.0 + 2.0 * 50.0 + 60.0;
        let touched = 5.0 * 2.0 + 2.0 * 50.0 + 2.0 * 4.0 + 3.0 * 200.0;
        assert_eq!(
            misses.cycles(100.0),
            80.0 / 2.0 + 20.0 / 4.0 + fetched + touched
        );
        assert_eq!(misses.lines(), [8.0, 6.0, 4.0]);
        assert_eq!(misses.per(2.0).lines(), [4.0, 3.0, 2.0]);
        assert_eq!(misses.add(&[1.0]), None);
    }
}
