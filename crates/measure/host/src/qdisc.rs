//! Root qdisc of a device: the bottleneck (tbf), and any qdisc read back in tc's words.
//!
//! netlink-packet-route has no tbf: its options are encoded here, as in linux/pkt_sched.h.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, Nla};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use serde::{Deserialize, Serialize};

use crate::error::SystemError;
use crate::link;
use crate::netlink::ask;

/// Token bucket filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tbf {
    /// Rate, bits per second; a multiple of 8, because the kernel counts bytes. Ethernet headers
    /// count.
    pub rate_bits_per_s: u64,
    /// Limit of waiting bytes.
    pub queue_bytes: u32,
    /// Limit of bytes that may leave at once.
    pub burst_bytes: u32,
}

impl Tbf {
    /// Bottleneck for super-segments of at most `gso_max_size` bytes.
    ///
    /// The burst is twice the largest super-segment, and at least 128 KiB. tbf segments a
    /// super-segment that is larger than the burst, which would silently turn `tso` into
    /// `software-gso`. A super-segment of 65,160 bytes counts as 68,130, with the headers of its 45
    /// segments.
    pub fn new(rate_bits_per_s: u64, queue_bytes: u32, gso_max_size: u32) -> Tbf {
        Tbf {
            rate_bits_per_s: rate_bits_per_s / 8 * 8,
            queue_bytes,
            burst_bytes: gso_max_size.max(65536).saturating_mul(2),
        }
    }

    fn options(self) -> Vec<u8> {
        let bytes_per_s = self.rate_bits_per_s / 8;
        // struct tc_tbf_qopt: ratespec rate, ratespec peakrate, limit, buffer, mtu.
        let mut qopt = Vec::with_capacity(QOPT_LEN);
        // struct tc_ratespec: cell_log, linklayer (Ethernet: no rate table needed), overhead,
        // cell_align, mpu, rate.
        qopt.extend([0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0]);
        qopt.extend(u32::try_from(bytes_per_s).unwrap_or(u32::MAX).to_ne_bytes());
        qopt.extend([0; 12]);
        qopt.extend(self.queue_bytes.to_ne_bytes());
        // Time of the bucket, which TCA_TBF_BURST overrides, and that of the peak rate.
        qopt.extend([0; 8]);
        let mut options = Vec::new();
        push(&mut options, TCA_TBF_PARMS, &qopt);
        push(&mut options, TCA_TBF_BURST, &self.burst_bytes.to_ne_bytes());
        if bytes_per_s > u64::from(u32::MAX) {
            push(&mut options, TCA_TBF_RATE64, &bytes_per_s.to_ne_bytes());
        }
        options
    }

    fn from_options(options: &[u8]) -> Option<Tbf> {
        let qopt = find(options, TCA_TBF_PARMS)?;
        let u32_at = |at: usize| Some(u32::from_ne_bytes(qopt.get(at..at + 4)?.try_into().ok()?));
        let bytes_per_s = match find(options, TCA_TBF_RATE64) {
            Some(rate) => u64::from_ne_bytes(rate.try_into().ok()?),
            None => u64::from(u32_at(8)?),
        };
        // The kernel reports the burst as the time it takes, in ticks of 64 ns (PSCHED_SHIFT).
        let burst_ns = u128::from(u32_at(28)?) * 64;
        let burst_bytes = burst_ns * u128::from(bytes_per_s) / 1_000_000_000;
        Some(Tbf {
            rate_bits_per_s: bytes_per_s.checked_mul(8)?,
            queue_bytes: u32_at(24)?,
            burst_bytes: u32::try_from(burst_bytes).ok()?,
        })
    }

    /// True if the kernel's answer equals what was set: it rounds the burst to its ticks.
    pub fn is_near(self, other: Tbf) -> bool {
        let tick_bytes = u128::from(self.rate_bits_per_s / 8) * 64 / 1_000_000_000 + 1;
        (self.rate_bits_per_s, self.queue_bytes) == (other.rate_bits_per_s, other.queue_bytes)
            && u128::from(self.burst_bytes.abs_diff(other.burst_bytes)) <= 2 * tick_bytes
    }
}

/// Sets a token bucket as a device's root qdisc, and replaces the former one.
///
/// # Errors
/// ENOENT on a kernel without CONFIG_NET_SCH_TBF.
pub fn set_tbf(device: &str, tbf: Tbf) -> Result<(), SystemError> {
    let mut message = at_root(device)?;
    message.attributes = vec![
        TcAttribute::Kind("tbf".into()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, tbf.options())),
    ];
    ask(
        &format!("set tbf on {device}"),
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )?;
    Ok(())
}

/// Sets a qdisc of this kind, with its defaults, as a device's root qdisc, and replaces the former
/// one.
///
/// # Errors
/// ENOENT on a kernel without it.
pub fn set_kind(device: &str, kind: &str) -> Result<(), SystemError> {
    let mut message = at_root(device)?;
    message.attributes = vec![TcAttribute::Kind(kind.into())];
    ask(
        &format!("set qdisc {kind} on {device}"),
        RouteNetlinkMessage::NewQueueDiscipline(message),
        NLM_F_CREATE | NLM_F_REPLACE,
    )?;
    Ok(())
}

/// Kind of the qdisc that was set as a device's root. `None` for the device's default.
pub fn read_kind(device: &str) -> Result<Option<String>, SystemError> {
    Ok(read_root(device)?.map(|root| root.kind))
}

/// Deletes the root qdisc, so that the device has its default again. No error if there is none.
pub fn delete_root(device: &str) -> Result<(), SystemError> {
    let message = at_root(device)?;
    match ask(
        &format!("delete the root qdisc of {device}"),
        RouteNetlinkMessage::DelQueueDiscipline(message),
        0,
    ) {
        // ENOENT: the device has only its default qdisc.
        Err(error) if error.source.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Reads the token bucket of a device. `None` if its root qdisc is another kind.
pub fn read_tbf(device: &str) -> Result<Option<Tbf>, SystemError> {
    let Some(root) = read_root(device)? else {
        return Ok(None);
    };
    match (root.kind.as_str(), Tbf::from_options(&root.options)) {
        ("tbf", None) => Err(SystemError::strange(
            format!("read tbf of {device}"),
            "its options are not tbf's",
        )),
        ("tbf", tbf) => Ok(tbf),
        _ => Ok(None),
    }
}

/// Describes the root qdisc in tc's words, e.g.
/// `tbf rate 941000000bit burst 131072b limit 1048576b`.
///
/// The parameters of tbf, pfifo, bfifo and fq_codel are known. For other kinds the kernel's options
/// follow in hexadecimal, so that a difference still shows.
pub fn describe(device: &str) -> Result<String, SystemError> {
    let Some(root) = read_root(device)? else {
        return Ok(link::read(device)?.qdisc);
    };
    let u32_option = |kind: u16| {
        let value = find(&root.options, kind)?;
        Some(u32::from_ne_bytes(value.try_into().ok()?))
    };
    let words = match root.kind.as_str() {
        "tbf" => Tbf::from_options(&root.options).map(|tbf| {
            let Tbf {
                rate_bits_per_s,
                queue_bytes,
                burst_bytes,
            } = tbf;
            format!("rate {rate_bits_per_s}bit burst {burst_bytes}b limit {queue_bytes}b")
        }),
        kind @ ("pfifo" | "bfifo") => {
            let limit = root.options.get(..4).and_then(|four| four.try_into().ok());
            let unit = if kind == "pfifo" { "p" } else { "b" };
            limit.map(|four| format!("limit {}{unit}", u32::from_ne_bytes(four)))
        }
        "fq_codel" => {
            let names = [
                (2, "limit", "p"),
                (5, "flows", ""),
                (6, "quantum", ""),
                (1, "target", "us"),
                (3, "interval", "us"),
                (4, "ecn", ""),
            ];
            let words = names
                .iter()
                .filter_map(|(kind, name, unit)| {
                    Some(format!("{name} {}{unit}", u32_option(*kind)?))
                })
                .collect::<Vec<_>>();
            Some(words.join(" "))
        }
        _ => None,
    };
    let words = words.unwrap_or_else(|| {
        let hex = root.options.iter().map(|byte| format!("{byte:02x}"));
        hex.collect()
    });
    Ok(format!("{} {words}", root.kind).trim_end().to_string())
}

/// True if programs may be attached at the device's tc ingress and egress.
pub fn has_clsact(device: &str) -> Result<bool, SystemError> {
    let message = at_root(device)?;
    let index = message.header.index;
    let answers = ask(
        &format!("read the qdiscs of {device}"),
        RouteNetlinkMessage::GetQueueDiscipline(message),
        NLM_F_DUMP,
    )?;
    Ok(answers.iter().any(|answer| {
        matches!(answer, RouteNetlinkMessage::NewQueueDiscipline(found)
            if found.header.index == index && found.header.parent == TcHandle::CLSACT)
    }))
}

struct Root {
    kind: String,
    options: Vec<u8>,
}

fn read_root(device: &str) -> Result<Option<Root>, SystemError> {
    let message = at_root(device)?;
    let index = message.header.index;
    let answers = ask(
        &format!("read the qdisc of {device}"),
        RouteNetlinkMessage::GetQueueDiscipline(message),
        NLM_F_DUMP,
    )?;
    // The kernel lists the qdiscs of every device.
    let root = answers.into_iter().find_map(|answer| match answer {
        RouteNetlinkMessage::NewQueueDiscipline(found)
            if found.header.index == index && found.header.parent == TcHandle::ROOT =>
        {
            Some(found)
        }
        _ => None,
    });
    let Some(root) = root else { return Ok(None) };
    let mut kind = String::new();
    let mut bytes = Vec::new();
    for attribute in root.attributes {
        match attribute {
            TcAttribute::Kind(name) => kind = name,
            TcAttribute::Options(options) => {
                for option in options {
                    match option {
                        // For a kind that the library does not know this is the whole TCA_OPTIONS.
                        TcOption::Other(whole) if whole.kind() == TCA_OPTIONS => {
                            bytes = vec![0; whole.value_len()];
                            whole.emit_value(&mut bytes);
                        }
                        known => {
                            let mut value = vec![0; known.value_len()];
                            known.emit_value(&mut value);
                            push(&mut bytes, known.kind(), &value);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    Ok(Some(Root {
        kind,
        options: bytes,
    }))
}

pub(crate) fn at_root(device: &str) -> Result<TcMessage, SystemError> {
    let mut message = TcMessage::default();
    let index = link::read(device)?.index;
    message.header.index = i32::try_from(index)
        .map_err(|_| SystemError::strange(format!("index of {device}"), "beyond 31 bits"))?;
    message.header.parent = TcHandle::ROOT;
    Ok(message)
}

/// Appends a netlink attribute. Values are far below the 64 KiB that the length field can express.
pub(crate) fn push(attributes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("an option is some tens of bytes");
    attributes.extend(length.to_ne_bytes());
    attributes.extend(kind.to_ne_bytes());
    attributes.extend(value);
    attributes.resize(attributes.len().next_multiple_of(4), 0);
}

/// Value of the first attribute of a kind. `None` if there is none, or if the bytes are no
/// attributes.
fn find(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (header, rest) = attributes.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let found = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let value = rest.get(..length.checked_sub(4)?)?;
        if found == kind {
            return Some(value);
        }
        attributes = rest.get(value.len().next_multiple_of(4)..)?;
    }
}

// linux/pkt_sched.h, linux/rtnetlink.h
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;
/// Size of struct tc_tbf_qopt.
const QOPT_LEN: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_the_kernels_layout() {
        let options = Tbf::new(941_000_000, 1 << 20, 65536).options();
        let qopt = find(&options, TCA_TBF_PARMS).unwrap();
        assert_eq!(qopt.len(), QOPT_LEN);
        assert_eq!(qopt[8..12], 117_625_000_u32.to_ne_bytes());
        assert_eq!(qopt[24..28], (1_u32 << 20).to_ne_bytes());
        assert_eq!(
            find(&options, TCA_TBF_BURST),
            Some(&131_072_u32.to_ne_bytes()[..])
        );
        assert_eq!(find(&options, TCA_TBF_RATE64), None);
    }

    #[test]
    fn a_rate_beyond_32_bits_of_bytes_goes_in_64() {
        let options = Tbf::new(100_000_000_000, 1 << 20, 65536).options();
        let rate = find(&options, TCA_TBF_RATE64).unwrap();
        assert_eq!(rate, 12_500_000_000_u64.to_ne_bytes());
        let read = Tbf::from_options(&options).unwrap();
        assert_eq!(read.rate_bits_per_s, 100_000_000_000);
    }

    #[test]
    fn the_burst_holds_the_largest_super_segment() {
        assert_eq!(Tbf::new(1 << 30, 1, 1500).burst_bytes, 131_072);
        assert_eq!(Tbf::new(1 << 30, 1, 524_280).burst_bytes, 1_048_560);
    }

    #[test]
    fn torn_options_are_nothing() {
        let options = Tbf::new(941_000_000, 1 << 20, 65536).options();
        for end in 0..options.len() {
            let _ = Tbf::from_options(&options[..end]);
            assert!(find(&options[..end], 9).is_none());
        }
        assert!(find(&[1, 0, 1, 0], 1).is_none(), "shorter than its header");
    }
}
