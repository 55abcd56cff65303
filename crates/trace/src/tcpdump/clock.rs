//! Timestamps of tcpdump's lines, in each of its formats.

/// Time of the lines, whichever of tcpdump's -t options printed it.
#[derive(Default)]
pub(super) struct Clock {
    /// Sum of the deltas, or the last timestamp, ns.
    pub(super) now_ns: u64,
    seen: bool,
    pub(super) counts: Counts,
    /// Largest timestamp that followed a space, ns.
    largest_ns: u64,
}

const DAY_NS: u64 = 86_400 * 1_000_000_000;

impl Clock {
    /// Reads the time of a line and advances the clock. Returns ns, or the printed delta if its
    /// origin is another line. `None` if the line has no timestamp.
    pub(super) fn read(&mut self, line: &str) -> Option<u64> {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let first = words.next()?;
        let delta = line.starts_with(' ');
        if let Some(of_day) = time_of_day(first) {
            // Since 4.0, -ttt and -ttttt print a space, then the time since the line before or
            // since the first.
            if delta {
                if self.counts == Counts::Absolute {
                    self.counts = Counts::Unknown;
                }
                if self.counts == Counts::Unknown && of_day < self.largest_ns {
                    self.counts = Counts::SinceLast;
                }
                self.largest_ns = self.largest_ns.max(of_day);
                self.now_ns = self.now_ns.saturating_add(of_day);
                return Some(of_day);
            }
            self.now_ns = if self.seen && of_day + DAY_NS / 2 < self.now_ns % DAY_NS {
                ((self.now_ns / DAY_NS + 1).saturating_mul(DAY_NS)).saturating_add(of_day)
            } else {
                (self.now_ns / DAY_NS * DAY_NS).saturating_add(of_day)
            };
        } else if let Some(day) = date(first) {
            self.now_ns = day
                .checked_mul(DAY_NS)?
                .checked_add(time_of_day(words.next()?)?)?;
        } else if first.len() == 6 && first.bytes().all(|byte| byte.is_ascii_digit()) {
            // Before 4.0, -ttt prints µs since the line before, after whole seconds if there are
            // any.
            self.now_ns = self
                .now_ns
                .saturating_add(first.parse::<u64>().ok()? * 1000);
        } else if let Some((seconds, fraction)) = first.split_once('.')
            && let Ok(seconds) = seconds.parse::<u64>()
            && !fraction.contains('.')
        {
            if fraction.is_empty() {
                let us: u64 = words.next()?.parse().ok()?;
                let delta = seconds
                    .checked_mul(1_000_000_000)?
                    .checked_add(us.checked_mul(1000)?)?;
                self.now_ns = self.now_ns.saturating_add(delta);
            } else {
                self.now_ns = seconds
                    .checked_mul(1_000_000_000)?
                    .checked_add(fraction_ns(fraction)?)?;
            }
        } else {
            return None;
        }
        self.seen = true;
        Some(self.now_ns)
    }
}

/// Parses `12:34:56.789012` to ns. `None` if the word is no time.
fn time_of_day(word: &str) -> Option<u64> {
    let (clock, fraction) = word.split_once('.')?;
    let mut parts = clock
        .split(':')
        .map(|part| part.parse::<u64>().ok().filter(|n| *n < 100));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() {
        return None;
    }
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction_ns(fraction)?)
}

fn fraction_ns(digits: &str) -> Option<u64> {
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse::<u64>().ok()? * 10u64.pow(9 - digits.len() as u32))
}

/// Parses `2024-05-17` to days since 1970 (Howard Hinnant's days_from_civil).
fn date(word: &str) -> Option<u64> {
    let mut parts = word.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + day_of_year;
    (year / 400 * 146_097 + day_of_era).checked_sub(719_468)
}

/// Origin of timestamps that follow a space: -ttt and -ttttt print the same form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Counts {
    /// No line has such a timestamp.
    #[default]
    Absolute,
    /// No timestamp decreased yet.
    Unknown,
    /// Line before (-ttt), because a timestamp decreased.
    SinceLast,
    /// First line (-ttttt).
    SinceFirst,
}
