//! Response times: percentiles out of a record's histogram.

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use tcpcost_study::DerivedKind;

/// Percentile, and what it is called.
const PERCENTILES: [(f64, DerivedKind); 5] = [
    (0.5, DerivedKind::ResponseP50),
    (0.9, DerivedKind::ResponseP90),
    (0.99, DerivedKind::ResponseP99),
    (0.999, DerivedKind::ResponseP999),
    (0.9999, DerivedKind::ResponseP9999),
];

/// Percentiles in µs of a histogram of ns (HdrHistogram V2, uncompressed, base64).
///
/// A percentile that fewer than one response lies beyond is absent: of 500 responses the 99.99th
/// percentile is the largest under another name. A text that is no histogram gives none.
pub(crate) fn response_times(base64: &str) -> Vec<(DerivedKind, f64)> {
    let engine = base64::engine::general_purpose::STANDARD;
    let histogram: Option<Histogram<u64>> = engine
        .decode(base64)
        .ok()
        .and_then(|bytes| Deserializer::new().deserialize(&mut bytes.as_slice()).ok());
    let Some(histogram) = histogram else {
        return Vec::new();
    };
    PERCENTILES
        .iter()
        // 1e-9: (1 - 0.9) * 10 is 0.9999… in binary.
        .filter(|(quantile, _)| histogram.len() as f64 * (1.0 - quantile) > 1.0 - 1e-9)
        .map(|&(quantile, kind)| (kind, histogram.value_at_quantile(quantile) as f64 / 1e3))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::{Serializer, V2Serializer};

    fn encoded(values: impl Iterator<Item = u64>) -> String {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for value in values {
            histogram.record(value).unwrap();
        }
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(&histogram, &mut bytes)
            .unwrap();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    #[test]
    fn percentiles_are_those_of_the_values_within_the_histograms_precision() {
        let times = response_times(&encoded((1..=10_000).map(|us| us * 1000)));
        assert_eq!(times.len(), 5);
        for ((_, us), expected) in times.iter().zip([5000.0, 9000.0, 9900.0, 9990.0, 9999.0]) {
            assert!((us / expected - 1.0).abs() < 1e-3, "{us} for {expected}");
        }
    }

    #[test]
    fn a_percentile_beyond_the_last_response_is_absent() {
        let kinds: Vec<_> = response_times(&encoded((1..=100).map(|us| us * 1000)))
            .into_iter()
            .map(|(kind, _)| kind)
            .collect();
        use DerivedKind::{ResponseP50, ResponseP90, ResponseP99};
        assert_eq!(kinds, [ResponseP50, ResponseP90, ResponseP99]);
        assert!(response_times("not a histogram").is_empty());
        assert!(response_times(&encoded(std::iter::empty())).is_empty());
    }
}
