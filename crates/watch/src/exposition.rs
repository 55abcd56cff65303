//! The two texts in which Prometheus takes metrics, and which of them a client asks for.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// What a collector tells now, as OpenMetrics 1.0.
///
/// # Errors
/// The collector's.
pub fn metrics_text(collector: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0, for those who ask for it by name.
    OpenMetrics,
    /// The older text format, 0.0.4, which everybody reads.
    Text,
}

impl Exposition {
    /// What an Accept header asks for (RFC 9110 §12.5.1); without one the older format. `None` where
    /// it takes neither.
    pub fn asked(accept: Option<&str>) -> Option<Exposition> {
        let Some(accept) = accept else {
            return Some(Exposition::Text);
        };
        let weight = |types: &[&str]| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?.to_ascii_lowercase();
                let place = types.iter().position(|known| *known == name)?;
                let weight = parts.find_map(|part| part.strip_prefix("q="));
                let weight = weight.map_or(Some(1.0), |weight| weight.parse::<f64>().ok())?;
                Some((place, weight))
            });
            // The most specific range decides, and of several versions the best liked.
            let best = ranges.reduce(|best, other| match best.0.cmp(&other.0) {
                std::cmp::Ordering::Less => best,
                std::cmp::Ordering::Equal => (best.0, best.1.max(other.1)),
                std::cmp::Ordering::Greater => other,
            });
            best.map_or(0.0, |(_, weight)| weight)
        };
        let open_metrics = weight(&["application/openmetrics-text"]);
        let text = weight(&["text/plain", "text/*", "*/*"]);
        if open_metrics > 0.0 && open_metrics >= text {
            Some(Exposition::OpenMetrics)
        } else {
            (text > 0.0).then_some(Exposition::Text)
        }
    }

    /// Its Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A text of OpenMetrics in this format.
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Exposition::OpenMetrics => open_metrics,
            Exposition::Text => older(&open_metrics),
        }
    }
}

/// There a counter's family has its sample's name, and neither units nor the end are told.
fn older(open_metrics: &str) -> String {
    let counters: Vec<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let line = |line: &str| -> Option<String> {
        let Some(told) = line.strip_prefix("# ") else {
            return Some(format!("{line}\n"));
        };
        let (kind, rest) = told.split_once(' ')?;
        let (name, rest) = rest.split_once(' ')?;
        let suffix = if counters.contains(&name) {
            "_total"
        } else {
            ""
        };
        matches!(kind, "HELP" | "TYPE").then(|| format!("# {kind} {name}{suffix} {rest}\n"))
    };
    open_metrics.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_gets_the_format_that_it_takes() {
        use Exposition::{OpenMetrics, Text};
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let cases = [
            (None, Some(Text)),
            (Some("*/*"), Some(Text)),
            (Some("text/html, */*;q=0.8"), Some(Text)),
            (Some("text/plain;version=0.0.4"), Some(Text)),
            (Some(prometheus), Some(OpenMetrics)),
            (Some("application/openmetrics-text"), Some(OpenMetrics)),
            (
                Some("application/openmetrics-text;q=0.1, text/plain"),
                Some(Text),
            ),
            (Some("application/json"), None),
            (Some("text/plain;q=0, */*"), None),
        ];
        for (accept, expected) in cases {
            assert_eq!(Exposition::asked(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn in_the_older_text_a_family_has_its_samples_name() {
        let open_metrics = "# HELP a_seconds CPU time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"y\"} 1.5\n# EOF\n";
        let expected = "# HELP a_seconds_total CPU time.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"y\"} 1.5\n";
        assert_eq!(Exposition::Text.of(open_metrics.to_string()), expected);
    }
}
