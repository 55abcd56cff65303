//! Channels and RSS of a device, by the ioctls of linux/ethtool.h: how many queues have interrupts of their own, and which of
//! them a flow is hashed to.

use serde::{Deserialize, Serialize};

use crate::error::SystemError;
use crate::ethtool::{EthtoolNumbers, ioctl};

/// Queues of a device that take interrupts of their own (ethtool -l): a driver has combined ones, or some of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// That receive alone.
    pub rx: u32,
    /// That transmit alone.
    pub tx: u32,
    /// That do both.
    pub combined: u32,
}

impl Channels {
    /// Reads those of a device.
    ///
    /// # Errors
    /// EOPNOTSUPP where the driver has no choice; ENODEV.
    pub fn read(device: &str) -> Result<Channels, SystemError> {
        Ok(Channels::from(&read_numbers(device)?.numbers[4..]))
    }

    /// What so many queues of each way are on this device.
    ///
    /// # Errors
    /// As [`Channels::read`].
    pub fn for_device(device: &str, queues: u32) -> Result<Channels, SystemError> {
        let max = Channels::from(&read_numbers(device)?.numbers);
        Ok(Channels::of(queues, max))
    }

    /// Sets them and leaves those that neither receive nor transmit. The link may go down for a moment.
    ///
    /// # Errors
    /// As [`Channels::read`]; EINVAL of more than there are, or fewer than a table of RSS names; EPERM without CAP_NET_ADMIN.
    pub fn set(self, device: &str) -> Result<(), SystemError> {
        let Channels { rx, tx, combined } = self;
        let mut all = read_numbers(device)?;
        all.command = 0x3d; // ETHTOOL_SCHANNELS
        (all.numbers[4], all.numbers[5], all.numbers[7]) = (rx, tx, combined);
        let tried = || format!("give {device} {rx} rx, {tx} tx, {combined} combined channels");
        ioctl(device, &mut all).map_err(|error| SystemError::new(tried(), error))
    }

    /// Queues that receive.
    pub fn receiving(self) -> u32 {
        self.rx + self.combined
    }

    /// So many queues of each way, of the kind of which a device has any.
    fn of(queues: u32, max: Channels) -> Channels {
        let (single, combined) = match max.combined {
            0 => (queues, 0),
            _ => (0, queues),
        };
        Channels {
            rx: single,
            tx: single,
            combined,
        }
    }

    /// Of four numbers of struct ethtool_channels: receive, transmit, other, combined.
    fn from(numbers: &[u32]) -> Channels {
        Channels {
            rx: numbers[0],
            tx: numbers[1],
            combined: numbers[3],
        }
    }
}

/// struct ethtool_channels: four maxima, then what is set.
fn read_numbers(device: &str) -> Result<EthtoolNumbers, SystemError> {
    let mut all = EthtoolNumbers {
        command: 0x3c, // ETHTOOL_GCHANNELS
        numbers: [0; 22],
    };
    ioctl(device, &mut all)
        .map_err(|error| SystemError::new(format!("read the channels of {device}"), error))?;
    Ok(all)
}

/// A device's table of RSS (ethtool -x): which receive queue each hash of a flow is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rss {
    /// Its entries name so many queues in turn, from the first.
    Even(u32),
    /// Its entries.
    Table(Vec<u32>),
}

impl Rss {
    /// Reads that of a device.
    ///
    /// # Errors
    /// EOPNOTSUPP where the driver has none; ENODEV.
    pub fn read(device: &str) -> Result<Rss, SystemError> {
        let tried = || format!("read the RSS table of {device}");
        let failed = |error| SystemError::new(tried(), error);
        let mut table = Box::new(EthtoolRss {
            command: 0x38, // ETHTOOL_GRXFHINDIR
            size: 0,
            queues: [0; ENTRIES_MAX],
        });
        // Asked without room the kernel tells the size.
        ioctl(device, &mut *table).map_err(failed)?;
        let size = table.size as usize;
        if size == 0 || size > ENTRIES_MAX {
            return Err(SystemError::strange(
                tried(),
                format!("it has {size} entries"),
            ));
        }
        ioctl(device, &mut *table).map_err(failed)?;
        Ok(Rss::Table(table.queues[..size].to_vec()))
    }

    /// Sets it. One that was over all queues becomes the driver's own again, which follows their number.
    ///
    /// # Errors
    /// As [`Rss::read`]; EINVAL of a queue that is not there, EPERM without CAP_NET_ADMIN.
    pub fn set(&self, device: &str) -> Result<(), SystemError> {
        match self {
            Rss::Even(queues) => match Rss::read(device)? {
                Rss::Table(table) => set_table(device, &in_turn(*queues, table.len())),
                Rss::Even(_) => Ok(()),
            },
            Rss::Table(table) => {
                let all = Channels::read(device).ok().map(Channels::receiving);
                match all.is_some() && self.queues() == all {
                    true => set_table(device, &[]),
                    false => set_table(device, table),
                }
            }
        }
    }

    /// How many queues its entries name in turn; `None` where they do not.
    pub fn queues(&self) -> Option<u32> {
        match self {
            Rss::Even(queues) => Some(*queues),
            Rss::Table(table) => {
                let queues = table.iter().max()?.checked_add(1)?;
                (in_turn(queues, table.len()) == *table).then_some(queues)
            }
        }
    }

    /// Whether two tables are the same.
    pub fn is_same(&self, other: &Rss) -> bool {
        let queues = self.queues();
        self == other || (queues.is_some() && queues == other.queues())
    }
}

fn in_turn(queues: u32, size: usize) -> Vec<u32> {
    (0..queues).cycle().take(size).collect()
}

fn set_table(device: &str, queues: &[u32]) -> Result<(), SystemError> {
    let tried = || format!("set the RSS table of {device}");
    let mut table = Box::new(EthtoolRss {
        command: 0x39, // ETHTOOL_SRXFHINDIR
        size: 0,
        queues: [0; ENTRIES_MAX],
    });
    let Some(room) = table.queues.get_mut(..queues.len()) else {
        return Err(SystemError::strange(tried(), "too many entries"));
    };
    room.copy_from_slice(queues);
    table.size = u32::try_from(queues.len()).expect("at most ENTRIES_MAX");
    ioctl(device, &mut *table).map_err(|error| SystemError::new(tried(), error))
}

/// Today's devices have 2048 at most.
const ENTRIES_MAX: usize = 8192;

/// struct ethtool_rxfh_indir.
#[repr(C)]
struct EthtoolRss {
    command: u32,
    size: u32,
    queues: [u32; ENTRIES_MAX],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_combined_where_the_driver_has_such() {
        let channels = |rx, tx, combined| Channels { rx, tx, combined };
        // As of ethtool -l: ice and mlx5 have combined ones, veth some of each kind, bnxt all three.
        for (max, expected) in [
            (channels(0, 0, 64), channels(0, 0, 4)),
            (channels(8, 8, 0), channels(4, 4, 0)),
            (channels(37, 37, 74), channels(0, 0, 4)),
        ] {
            assert_eq!(Channels::of(4, max), expected);
        }
    }

    #[test]
    fn a_table_is_even_where_it_names_queues_in_turn() {
        let table = |queues: &[u32]| Rss::Table(queues.to_vec());
        assert_eq!(table(&[0, 1, 2, 0, 1, 2, 0, 1]).queues(), Some(3));
        assert_eq!(table(&[0; 8]).queues(), Some(1));
        assert_eq!(table(&[0, 2, 0, 2]).queues(), None);
        assert_eq!(table(&[]).queues(), None);
        assert!(table(&[0, 1, 0, 1]).is_same(&Rss::Even(2)));
        assert!(!table(&[0, 1, 0, 1]).is_same(&Rss::Even(4)));
        assert!(!table(&[1, 0]).is_same(&table(&[0, 0])));
    }

    #[test]
    fn the_loopback_has_neither_channels_nor_rss() {
        for error in [
            Channels::read("lo").unwrap_err(),
            Rss::read("lo").unwrap_err(),
        ] {
            assert!(error.is_unsupported(), "{error}");
            assert!(error.to_string().contains("of lo: "), "{error}");
        }
    }
}
