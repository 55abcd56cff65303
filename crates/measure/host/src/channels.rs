//! Channels and RSS of a device, by the ioctls of linux/ethtool.h: the number of queues with
//! interrupts of their own, and the queue for each hash of a flow.

use serde::{Deserialize, Serialize};

use crate::error::SystemError;
use crate::ethtool::{EthtoolNumbers, ioctl};

/// Queues of a device that have interrupts of their own (ethtool -l). A driver has combined queues,
/// or some of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: u32,
    /// Queues that only transmit.
    pub tx: u32,
    /// Queues that do both.
    pub combined: u32,
}

impl Channels {
    /// Reads the channels of a device.
    ///
    /// # Errors
    /// EOPNOTSUPP if the driver offers no choice; ENODEV.
    pub fn read(device: &str) -> Result<Channels, SystemError> {
        Ok(Channels::from(&read_numbers(device)?.numbers[4..]))
    }

    /// Channels that give this device `queues` queues of each way.
    ///
    /// # Errors
    /// Those of [`Channels::read`].
    pub fn for_device(device: &str, queues: u32) -> Result<Channels, SystemError> {
        let max = Channels::from(&read_numbers(device)?.numbers);
        Ok(Channels::of(queues, max))
    }

    /// Sets the channels, and keeps the number of other queues. The link may go down for a moment.
    ///
    /// # Errors
    /// Those of [`Channels::read`]; EINVAL if there are more than the device has, or fewer than an
    /// RSS table names; EPERM without CAP_NET_ADMIN.
    pub fn set(self, device: &str) -> Result<(), SystemError> {
        let Channels { rx, tx, combined } = self;
        let mut all = read_numbers(device)?;
        all.command = 0x3d; // ETHTOOL_SCHANNELS
        (all.numbers[4], all.numbers[5], all.numbers[7]) = (rx, tx, combined);
        let tried = || format!("give {device} {rx} rx, {tx} tx, {combined} combined channels");
        ioctl(device, &mut all).map_err(|error| SystemError::new(tried(), error))
    }

    /// Number of queues that receive.
    pub fn receiving(self) -> u32 {
        self.rx + self.combined
    }

    /// Channels with `queues` queues of each way: combined if the device has combined queues.
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

    /// Converts the four numbers of struct ethtool_channels: receive, transmit, other, combined.
    fn from(numbers: &[u32]) -> Channels {
        Channels {
            rx: numbers[0],
            tx: numbers[1],
            combined: numbers[3],
        }
    }
}

/// Reads struct ethtool_channels: four maxima, then the current values.
fn read_numbers(device: &str) -> Result<EthtoolNumbers, SystemError> {
    let mut all = EthtoolNumbers {
        command: 0x3c, // ETHTOOL_GCHANNELS
        numbers: [0; 22],
    };
    ioctl(device, &mut all)
        .map_err(|error| SystemError::new(format!("read the channels of {device}"), error))?;
    Ok(all)
}

/// RSS table of a device (ethtool -x): the receive queue for each hash of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rss {
    /// Table that names this many queues in turn, from queue 0.
    Even(u32),
    /// Any other table: its entries.
    Table(Vec<u32>),
}

impl Rss {
    /// Reads the RSS table of a device.
    ///
    /// # Errors
    /// EOPNOTSUPP if the driver has none; ENODEV.
    pub fn read(device: &str) -> Result<Rss, SystemError> {
        let tried = || format!("read the RSS table of {device}");
        let failed = |error| SystemError::new(tried(), error);
        let mut table = Box::new(EthtoolRss {
            command: 0x38, // ETHTOOL_GRXFHINDIR
            size: 0,
            queues: [0; ENTRIES_MAX],
        });
        // A request without room for entries returns their number.
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

    /// Sets the RSS table. If it spreads over all queues, the driver's default is restored, which
    /// follows the number of queues.
    ///
    /// # Errors
    /// Those of [`Rss::read`]; EINVAL for a queue that does not exist; EPERM without CAP_NET_ADMIN.
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

    /// Number of queues that the entries name in turn. `None` if they do not.
    pub fn queues(&self) -> Option<u32> {
        match self {
            Rss::Even(queues) => Some(*queues),
            Rss::Table(table) => {
                let queues = table.iter().max()?.checked_add(1)?;
                (in_turn(queues, table.len()) == *table).then_some(queues)
            }
        }
    }

    /// True if two tables are the same.
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

/// Limit of the entries of a table. Today's devices have at most 2048.
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
        // Examples of ethtool -l: ice and mlx5 have combined queues, veth has some of each kind,
        // bnxt has all three.
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
