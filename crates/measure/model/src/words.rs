//! Price lists and explanations as text: the answer first, then a table, then how it was found.

use tcpcost_counts::table::{Align, Table, WIDTH, wrap};

use crate::causes::Cause;
use crate::explain::Explanation;
use crate::prices::{Interval, PriceList};

impl PriceList {
    /// The list as text, within 100 columns.
    pub fn text(&self) -> String {
        let mut text = wrap(&self.answer(), WIDTH, "") + "\n\n";
        let mut table = Table::aligned(&[
            ("one", Align::Left),
            ("CPU, ns", Align::Right),
            ("90 % interval", Align::Right),
            ("largest share of a cell", Align::Right),
        ]);
        for price in &self.prices {
            table.row(vec![
                price.cause.unit().to_string(),
                digits(price.ns),
                interval(price.interval, 1.0),
                percent(price.largest_share),
            ]);
        }
        text += &table.text(2, WIDTH);
        text.push('\n');
        for unpriced in &self.unpriced {
            let line = format!(
                "No price for one {}: {}.",
                unpriced.cause.unit(),
                unpriced.reason
            );
            text += &(wrap(&line, WIDTH, "  ") + "\n");
        }
        text += &(wrap(&self.method(), WIDTH, "  ") + "\n");
        text
    }

    /// The prices that matter, and how well they predict.
    fn answer(&self) -> String {
        let of = |cause: Cause| self.price(cause);
        let first = [
            Cause::SkbSent,
            Cause::SkbReceived,
            Cause::SendCall,
            Cause::IpiSent,
            Cause::Sleep,
            Cause::Connection,
        ];
        let prices: Vec<String> = first
            .into_iter()
            .filter_map(of)
            .map(|price| {
                format!(
                    "{} {} {}",
                    price.cause.article(),
                    price.cause.unit(),
                    time(price.ns)
                )
            })
            .collect();
        format!(
            "Prices of this host over {}: {}. {}",
            self.place.device,
            prices.join(", "),
            self.accuracy_text()
        )
    }

    /// How well the prices predict, in a sentence.
    pub fn accuracy_text(&self) -> String {
        let of = &self.accuracy;
        format!(
            "Fitted without them, they predict {} of {} costs of {} check cells to ±20 % (median error {}); 90 % of predictions are within {} and {}.",
            of.within_20,
            of.predictions,
            of.cells,
            percent(of.median),
            change(of.interval.low),
            change(of.interval.high)
        )
    }

    fn method(&self) -> String {
        format!(
            "Fitted on {} cells by non-negative regression of the logarithm of CPU time; intervals of prices by bootstrap. \
             A price includes the work that always comes with its unit. They are prices of this host, kernel and load: {}, {} CPUs, Linux {}.",
            self.cells,
            self.place.cpu,
            self.place.cpus,
            self.release()
        )
    }

    /// Kernel release.
    pub fn release(&self) -> &str {
        self.place.kernel.split(' ').next().unwrap_or_default()
    }
}

impl Explanation {
    /// Sentence: what `subject` (such as "A response") costs, and which part is TCP's.
    pub fn answer(&self, subject: &str) -> String {
        let priced = format!(
            "{} {}",
            time(self.priced_ns),
            times(self.interval, self.priced_ns)
        );
        let Some(measured) = self.measured_ns else {
            return format!(
                "{subject} costs {priced} of CPU in TCP by this host's prices; its CPU time was not measured."
            );
        };
        let measured_text = time(measured);
        if measured >= self.interval.high {
            format!(
                "{subject} costs {measured_text} of CPU; {priced} of it is TCP's by this host's prices; the rest is the program's own and has no price."
            )
        } else if measured >= self.interval.low {
            format!(
                "{subject} costs {measured_text} of CPU; by this host's prices {priced} is TCP's: all of it, within their accuracy."
            )
        } else {
            format!(
                "{subject} costs {measured_text} of CPU, less than the {priced} of this host's prices: they do not fit this work."
            )
        }
    }

    /// Terms as a table, indented.
    pub fn table(&self) -> String {
        let mut table = Table::aligned(&[
            ("cause", Align::Left),
            ("count", Align::Right),
            ("CPU", Align::Right),
            ("90 % interval", Align::Right),
            ("share", Align::Right),
            ("", Align::Left),
        ]);
        for term in &self.terms {
            let mark = if term.is_outside {
                "outside what was studied"
            } else {
                ""
            };
            table.row(vec![
                term.cause.label().to_string(),
                digits(term.count),
                time(term.ns),
                times(term.interval, term.ns),
                percent(term.share),
                mark.to_string(),
            ]);
        }
        if self.inseparable_ns > 0.0 {
            let mut row = vec![String::new(); 6];
            row[0] = format!("{} others together", self.inseparable.len());
            row[2] = time(self.inseparable_ns);
            row[4] = percent(self.inseparable_ns / self.priced_ns);
            table.row(row);
        }
        if let Some(rest) = self.unpriced_ns.filter(|rest| *rest > 0.0) {
            let mut row = vec![String::new(); 6];
            row[0] = "no price (the program's own)".to_string();
            row[2] = time(rest);
            table.row(row);
        }
        table.text(2, WIDTH)
    }

    /// Lines about causes that cannot be told apart, and about those that were not counted.
    pub fn remarks(&self) -> Vec<String> {
        let labels = |of: &[Cause]| {
            let labels: Vec<&str> = of.iter().map(|cause| cause.label()).collect();
            labels.join(", ")
        };
        let mut remarks = Vec::new();
        if !self.inseparable.is_empty() {
            let of = labels(&self.inseparable);
            remarks.push(format!("Others, of which only the sum is known: {of}."));
        }
        if !self.not_counted.is_empty() {
            let of = labels(&self.not_counted);
            remarks.push(format!(
                "Not counted here, so that their cost is in what has no price: {of}."
            ));
        }
        remarks
    }
}

impl Cause {
    /// `a` or `an`, as its unit is spoken.
    fn article(self) -> &'static str {
        if ["ACK", "skb"]
            .iter()
            .any(|word| self.unit().starts_with(word))
        {
            "an"
        } else {
            "a"
        }
    }
}

/// Formats a time with three digits.
pub fn time(ns: f64) -> String {
    let (scale, unit) = unit(ns);
    format!("{} {unit}", digits(ns / scale))
}

/// Unit that a time is told in, and its length in ns.
fn unit(ns: f64) -> (f64, &'static str) {
    match ns.abs() {
        size if size >= 1e9 => (1e9, "s"),
        size if size >= 1e6 => (1e6, "ms"),
        size if size >= 1e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    }
}

/// Formats an interval in the unit of the time that it belongs to, which stands before it.
fn times(of: Interval, ns: f64) -> String {
    interval(of, unit(ns).0)
}

fn interval(of: Interval, scale: f64) -> String {
    format!("[{}, {}]", digits(of.low / scale), digits(of.high / scale))
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", 100.0 * ratio)
}

/// Formats a ratio as a change: `+12 %`.
fn change(ratio: f64) -> String {
    format!("{:+.0} %", 100.0 * (ratio - 1.0)).replace('-', "\u{2212}")
}

/// Formats a number with three digits, and thousands apart.
pub(crate) fn digits(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    let whole = text.find('.').unwrap_or(text.len());
    let mut grouped = String::new();
    for (at, digit) in text.chars().enumerate() {
        let is_between = at > 0 && at < whole && (whole - at) % 3 == 0;
        if is_between && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_thousands_apart() {
        assert_eq!(digits(1_234_567.0), "1,234,567");
        assert_eq!(digits(12_345.6), "12,346");
        assert_eq!(digits(-123.4), "-123");
        assert_eq!(digits(0.1534), "0.153");
        assert_eq!(time(45_600.0), "45.6 µs");
        assert_eq!(change(0.87), "\u{2212}13 %");
    }
}
