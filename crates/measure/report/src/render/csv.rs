//! CSV export of the summary: one row per cell and quantity. `docs/records.md` describes the
//! columns.

use csv::{Terminator, Writer, WriterBuilder};
use tcpcost_counts::csv_field;
use tcpcost_study::Derived;

use crate::derive::cell::Load;
use crate::derive::estimate::Estimate;
use crate::derive::profile::{Cost, Profile};
use crate::summary::Summary;

/// Fixed columns. A column `knob:NAME` follows for each knob that any cell sets.
const COLUMNS: [&str; 12] = [
    "study", "cell", "rate", "regime", "n_marked", "quantity", "unit", "median", "lo", "hi", "n",
    "main",
];

/// Summary as CSV (RFC 4180, but lines end in a line feed), with a header. Missing values are
/// empty.
pub fn csv(summary: &Summary) -> String {
    let mut knobs: Vec<&str> = Vec::new();
    for (name, _) in summary.cells.iter().flat_map(|cell| cell.knobs.iter()) {
        if !knobs.contains(&name) {
            knobs.push(name);
        }
    }
    knobs.sort_unstable();
    let mut out = writer();
    let fixed = COLUMNS.iter().map(ToString::to_string);
    let of_knobs = knobs.iter().map(|knob| format!("knob:{knob}"));
    out.write_record(fixed.chain(of_knobs)).expect(IN_MEMORY);
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    for cell in &summary.cells {
        let main = |derived: &Derived| *derived == cell.main;
        let estimates = cell.estimates.iter().map(|(derived, estimate)| {
            let unit = derived.kind.unit();
            (derived.to_string(), unit, *estimate, main(derived))
        });
        let by_chain = cell
            .profiles
            .iter()
            .flat_map(|profile| by_chain(profile, cell.cost_unit()));
        for (quantity, unit, estimate, main) in estimates.chain(by_chain) {
            let fixed = [
                summary.study.name.clone(),
                cell.name.clone(),
                match &cell.load {
                    Load::FixedRate(rate) => rate.clone(),
                    Load::CpuBound => String::new(),
                },
                cell.regime().unwrap_or_default(),
                cell.n_marked.to_string(),
                quantity,
                unit.to_string(),
                number(Some(estimate.median)),
                number(estimate.lo),
                number(estimate.hi),
                estimate.n.to_string(),
                main.to_string(),
            ];
            let values = knobs.iter().map(|knob| {
                let value = cell.knobs.get(knob).map(ToString::to_string);
                value.unwrap_or_default()
            });
            let row = fixed.into_iter().chain(values);
            out.write_record(row.map(|field| csv_field(&field).into_owned()))
                .expect(IN_MEMORY);
        }
    }
    let bytes = out.into_inner().expect(IN_MEMORY);
    String::from_utf8(bytes).expect("made of strings")
}

/// Name, unit and estimate of each figure by call chain. The last field is false: none is a main
/// quantity.
fn by_chain(profile: &Profile, unit: &'static str) -> Vec<(String, &'static str, Estimate, bool)> {
    let name = profile.scope.name();
    let whose = name.map_or(String::new(), |name| format!("{name}_"));
    let mut rows = Vec::new();
    let mut add = |what: &str, name: &str, cost: &Cost| {
        let figures = [
            ("share_ratio", "ratio", Some(cost.share)),
            ("cpu_us_per_s", "µs/s", cost.us_per_s),
            ("cpu_us_per_unit", unit, cost.us_per_unit),
        ];
        for (figure, unit, estimate) in figures {
            if let Some(estimate) = estimate {
                rows.push((
                    format!("{whose}{what}_{figure}:{name}"),
                    unit,
                    estimate,
                    false,
                ));
            }
        }
    };
    for (layer, cost) in &profile.layers {
        add("layer", layer.name(), cost);
    }
    for function in &profile.functions {
        add("inclusive", &function.name, &function.inclusive);
        add("exclusive", &function.name, &function.exclusive);
    }
    rows
}

/// Writer of CSV as in RFC 4180, except that lines end in a line feed.
fn writer() -> Writer<Vec<u8>> {
    let feed = Terminator::Any(b'\n');
    WriterBuilder::new()
        .terminator(feed)
        .from_writer(Vec::new())
}

const IN_MEMORY: &str = "memory takes all, and each row has a field for each column";

#[cfg(test)]
mod tests {
    use super::writer;

    /// Text of one field as written in a row.
    fn field(text: &str) -> String {
        let mut out = writer();
        out.write_record([text, ""]).unwrap();
        let row = String::from_utf8(out.into_inner().unwrap()).unwrap();
        row.strip_suffix(",\n").unwrap().to_string()
    }

    #[test]
    fn a_field_with_a_comma_or_a_quote_is_quoted() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("1 B/1 B, CPU-bound"), "\"1 B/1 B, CPU-bound\"");
        assert_eq!(field("a \"b\""), "\"a \"\"b\"\"\"");
    }
}
