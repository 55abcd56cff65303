//! Values of IP_TOS by number or by name (RFC 2474, RFC 2597, RFC 3246, RFC 1349; `-Y`).

use crate::Failure;

/// Parses a value such as 0x28, 40, cs0 to cs7, af11 to af43, ef, le, lowdelay, throughput, reliability or
/// mincost.
pub fn parse(text: &str) -> Result<i32, Failure> {
    let name = text.to_ascii_lowercase();
    let number = match name.strip_prefix("0x") {
        Some(digits) => i32::from_str_radix(digits, 16).ok(),
        None => name.parse().ok(),
    };
    let digit = |at: usize, most: u8| {
        let digit = name.as_bytes().get(at)?.checked_sub(b'0')?;
        (digit <= most).then_some(i32::from(digit))
    };
    let named = match name.as_str() {
        "ef" => Some(46 << 2),
        "le" => Some(1 << 2),
        "lowdelay" => Some(0x10),
        "throughput" => Some(0x08),
        "reliability" => Some(0x04),
        "mincost" => Some(0x02),
        _ if name.len() == 3 && name.starts_with("cs") => digit(2, 7).map(|class| class << 5),
        _ if name.len() == 4 && name.starts_with("af") => digit(2, 4)
            .zip(digit(3, 3))
            .filter(|(class, drop)| *class > 0 && *drop > 0)
            .map(|(class, drop)| class << 5 | drop << 3),
        _ => None,
    };
    number
        .or(named)
        .filter(|value| (0..=255).contains(value))
        .ok_or_else(|| {
            Failure::usage(format!(
                "-Y {text}: expected 0 to 255, as 0xb8 too, or a name: cs0 to cs7, af11 to af43, ef, le, lowdelay, throughput, reliability, mincost"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_code_points_in_the_upper_six_bits() {
        let of = |text| parse(text).unwrap();
        assert_eq!(of("EF"), 0xb8);
        assert_eq!(of("cs1"), 0x20);
        assert_eq!(of("af41"), 0x88);
        assert_eq!(of("0x28"), 0x28);
        for text in ["af44", "af01", "cs8", "256", "-1", "x", "é"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
