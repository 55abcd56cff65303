//! Percentiles of response times from a record's histogram.

use base64::Engine;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

pub(crate) struct ResponseTimes(Histogram<u64>);

impl ResponseTimes {
    /// Decodes a histogram of ns (HdrHistogram V2, uncompressed, base64). `None` if the text is no histogram.
    pub(crate) fn decode(base64: &str) -> Option<ResponseTimes> {
        let engine = base64::engine::general_purpose::STANDARD;
        let bytes = engine.decode(base64).ok()?;
        let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
        histogram.ok().map(ResponseTimes)
    }

    /// Decodes several histograms and adds them up. `None` if there are none.
    pub(crate) fn of<'a>(base64: impl Iterator<Item = &'a str>) -> Option<ResponseTimes> {
        let mut decoded = base64.map(ResponseTimes::decode);
        let mut all = decoded.next()??;
        for more in decoded {
            // Histograms of the same precision can be added.
            all.0.add(more?.0).ok()?;
        }
        Some(all)
    }

    /// A percentile (0..=1) in µs. `None` if less than one response is beyond it: the 99.99th percentile of
    /// 500 responses would just be the maximum.
    pub(crate) fn us(&self, percentile: f64) -> Option<f64> {
        let beyond = self.0.len() as f64 * (1.0 - percentile);
        // Tolerance of 1e-9, because (1 - 0.9) * 10 is 0.9999… in binary.
        (beyond > 1.0 - 1e-9).then(|| self.0.value_at_quantile(percentile) as f64 / 1e3)
    }
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

    const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

    fn percentiles(base64: &str) -> Vec<f64> {
        let times = ResponseTimes::decode(base64);
        let us = |percentile| times.as_ref()?.us(percentile);
        PERCENTILES.into_iter().filter_map(us).collect()
    }

    #[test]
    fn percentiles_are_those_of_the_values_within_the_histograms_precision() {
        let times = percentiles(&encoded((1..=10_000).map(|us| us * 1000)));
        assert_eq!(times.len(), 5);
        for (us, expected) in times.iter().zip([5000.0, 9000.0, 9900.0, 9990.0, 9999.0]) {
            assert!((us / expected - 1.0).abs() < 1e-3, "{us} for {expected}");
        }
    }

    #[test]
    fn a_percentile_beyond_the_last_response_is_absent() {
        let times = percentiles(&encoded((1..=100).map(|us| us * 1000)));
        assert_eq!(times.len(), 3);
        assert!(percentiles("not a histogram").is_empty());
        assert!(percentiles(&encoded(std::iter::empty())).is_empty());
    }
}
