//! The summary flat: one row per cell and quantity. docs/records.md describes the columns.

use std::fmt::Write;

use crate::cell::Load;
use crate::summary::Summary;

/// The fixed columns; one `knob:NAME` column follows for each knob that any cell sets.
const COLUMNS: [&str; 12] = [
    "study", "cell", "rate", "regime", "n_marked", "quantity", "unit", "median", "lo", "hi", "n",
    "main",
];

/// The summary as CSV (RFC 4180, but lines end in a line feed), a header first. What is absent is
/// empty.
pub fn csv(summary: &Summary) -> String {
    let mut knobs: Vec<&str> = Vec::new();
    for (name, _) in summary.cells.iter().flat_map(|cell| cell.knobs.iter()) {
        if !knobs.contains(&name) {
            knobs.push(name);
        }
    }
    knobs.sort_unstable();
    let mut out = COLUMNS.join(",");
    for knob in &knobs {
        out.push(',');
        out += &field(&format!("knob:{knob}"));
    }
    out.push('\n');
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for cell in &summary.cells {
        for (derived, estimate) in &cell.estimates {
            let fixed = [
                field(&summary.study.name),
                field(&cell.name),
                match &cell.load {
                    Load::FixedRate(rate) => field(rate),
                    Load::CpuBound => String::new(),
                },
                field(&cell.regime().unwrap_or_default()),
                cell.n_marked.to_string(),
                derived.to_string(),
                field(derived.kind.unit()),
                number(Some(estimate.median)),
                number(estimate.lo),
                number(estimate.hi),
                estimate.n.to_string(),
                (*derived == cell.main).to_string(),
            ];
            out += &fixed.join(",");
            for knob in &knobs {
                let value = cell.knobs.get(knob).map(ToString::to_string);
                let _ = write!(out, ",{}", field(&value.unwrap_or_default()));
            }
            out.push('\n');
        }
    }
    out
}

/// A field, quoted where it must be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_field_with_a_comma_or_a_quote_is_quoted() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("1 B/1 B, CPU-bound"), "\"1 B/1 B, CPU-bound\"");
        assert_eq!(field("a \"b\""), "\"a \"\"b\"\"\"");
    }
}
