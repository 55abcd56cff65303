//! Where each of several files ends in the content that they make.

use std::ops::Range;

/// Sizes of files that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSizes {
    mean: u64,
    is_mixed: bool,
}

/// Sizes of seven files in turn, in eighths of their mean: most are small, and few have most of the bytes.
const EIGHTHS: [u64; 7] = [1, 2, 4, 7, 10, 14, 18];

impl FileSizes {
    /// Sizes with this mean, in bytes: all alike, or mixed from an eighth of it to 2.25 times as much, in turns of seven files.
    pub fn new(mean: u64, is_mixed: bool) -> FileSizes {
        FileSizes {
            mean: mean.max(1),
            is_mixed,
        }
    }

    /// Index of the file that has byte `at` of the content, and its bytes there.
    #[inline]
    pub fn of(&self, at: u64) -> (u64, Range<u64>) {
        if self.is_mixed {
            return self.of_mixed(at);
        }
        let index = at / self.mean;
        let start = index * self.mean;
        (index, start..start.saturating_add(self.mean))
    }

    fn of_mixed(&self, at: u64) -> (u64, Range<u64>) {
        let turn = at / (self.mean * 7);
        let (mut index, mut start) = (turn * 7, turn * self.mean * 7);
        // Ends of a turn's files are rounded down from the turn's start, so that the last one ends with the turn.
        let mut eighths = 0;
        for of_file in EIGHTHS {
            eighths += of_file;
            let end = turn * self.mean * 7 + self.mean * eighths / 8;
            if at < end {
                return (index, start..end);
            }
            (index, start) = (index + 1, end);
        }
        unreachable!("a turn has seven times the mean")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_files_follow_each_other_and_have_the_mean_in_each_turn_of_seven() {
        for mean in [1, 7, 8, 1000, 358_400] {
            let sizes = FileSizes::new(mean, true);
            let (mut at, mut files) = (0, 0);
            while at < mean * 14 {
                let (index, range) = sizes.of(at);
                assert!(range.contains(&at), "{mean} {at}: {range:?}");
                assert_eq!(sizes.of(range.end - 1), (index, range.clone()));
                (at, files) = (range.end, files + 1);
            }
            assert_eq!(at, mean * 14, "two turns end where they should");
            assert!(mean < 8 || files == 14, "{mean}: {files}");
        }
        assert_eq!(FileSizes::new(100, false).of(250), (2, 200..300));
    }
}
