//! A value of results, formatted like C's printf.

use std::fmt;

/// Value of a selector.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text without a change.
    Text(String),
    /// Whole number.
    Int(i128),
    /// Number with this many digits after the decimal point.
    Decimal(f64, usize),
    /// Hexadecimal number with 0x and at least this many digits.
    Hex(i32, usize),
    /// No value.
    None,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Int(number) => write!(f, "{number}"),
            Value::Decimal(number, digits) => write!(f, "{number:.digits$}"),
            Value::Hex(number, digits) => write!(f, "0x{:0digits$x}", number.cast_unsigned()),
            Value::None => Ok(()),
        }
    }
}

pub fn text(text: &str) -> Value {
    Value::Text(text.to_string())
}

pub fn quoted(text: &str) -> Value {
    Value::Text(format!("\"{text}\""))
}

pub fn int(number: impl Into<i128>) -> Value {
    Value::Int(number.into())
}

pub fn count(number: u64) -> Value {
    Value::Int(number.into())
}

pub fn two(number: impl Into<f64>) -> Value {
    Value::Decimal(number.into(), 2)
}

pub fn three(number: f64) -> Value {
    Value::Decimal(number, 3)
}

/// Value as netperf prints it: −1 if it is unknown.
pub fn printed(figure: Option<f64>) -> f64 {
    figure.unwrap_or(-1.0)
}

/// Value that was asked for, or −1.
pub fn asked(number: Option<i32>) -> Value {
    int(number.unwrap_or(-1))
}

/// Bytes per call; 0 without calls.
pub fn per(bytes: u64, calls: u64) -> f64 {
    match calls {
        0 => 0.0,
        calls => bytes as f64 / calls as f64,
    }
}

/// Number like printf's `%-W.Pf`, left-aligned with at least this width.
pub fn left(number: f64, width: usize, digits: usize) -> String {
    format!("{number:<width$.digits$}")
}

/// Number like printf's `%W.Pf`, right-aligned with at least this width.
pub fn right(number: f64, width: usize, digits: usize) -> String {
    format!("{number:>width$.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_printed_as_c_prints_it() {
        assert_eq!(Value::Hex(-1, 2).to_string(), "0xffffffff");
        assert_eq!(Value::Hex(8, 2).to_string(), "0x08");
        assert_eq!(two(1.005_f64).to_string(), "1.00");
        assert_eq!(left(1.5, 6, 2), "1.50  ");
        assert_eq!(right(1.5, 7, 2), "   1.50");
        assert_eq!(per(5, 0), 0.0);
    }
}
