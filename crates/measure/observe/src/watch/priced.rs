//! Cost of the host's TCP by cause, as counters for Prometheus: what was counted times this host's prices.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use tcpcost_counts::Growth;
use tcpcost_model::{Counts, PriceList, explain};

/// Prices, and the cost of each cause so far, s.
#[derive(Debug)]
pub struct Priced {
    prices: PriceList,
    told: BTreeMap<&'static str, f64>,
}

/// Label of the causes of which only the sum is known.
const TOGETHER: &str = "others_together";

impl Priced {
    /// Starts without any cost.
    pub fn by(prices: PriceList) -> Priced {
        Priced {
            prices,
            told: BTreeMap::new(),
        }
    }

    /// Updates the costs, none of which may shrink: a count that is the difference of two others may.
    pub fn set(&mut self, totals: &Growth) {
        let found = explain(&self.prices, &Counts::of(totals), None);
        let terms = found.terms.iter().map(|term| (term.cause.id(), term.ns));
        for (cause, ns) in terms.chain([(TOGETHER, found.inseparable_ns)]) {
            let told = self.told.entry(cause).or_default();
            *told = told.max(ns / 1e9);
        }
    }

    /// Encodes `tcpcost_cost_seconds_total`.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help =
            "CPU time of TCP by cause: counts times the prices of tcpcost model (docs/prices.md)";
        let seconds = Some(&Unit::Seconds);
        let mut metric =
            encoder.encode_descriptor("tcpcost_cost", help, seconds, MetricType::Counter)?;
        for (cause, total) in &self.told {
            let labels = [("owner", "host"), ("cause", cause)];
            ConstCounter::new(*total).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_counts::{MeterName, Quantity};

    /// A price list with one price: an skb sent costs 1 ms.
    fn prices() -> PriceList {
        serde_json::from_value(serde_json::json!({
            "schema_version": 1,
            "tcpcost": "0.1.0",
            "place": { "host": "h", "kernel": "6.18.0", "cpu": "cpu", "cpus": 2, "device": "veth" },
            "measured_unix_s": 0,
            "cells": 28,
            "prices": [{
                "cause": "skb_sent",
                "ns": 1e6,
                "interval": { "low": 9e5, "high": 11e5 },
                "largest_share": 0.9,
                "most_per_cpu_s": 1e9,
            }],
            "unpriced": [],
            "accuracy": {
                "interval": { "low": 0.8, "high": 1.2 },
                "median": 0.08,
                "within_20": 18,
                "predictions": 20,
                "cells": 10,
            },
            "draws": [[1e6]],
        }))
        .unwrap()
    }

    #[test]
    fn a_cost_is_a_count_times_its_price_and_never_shrinks() {
        let mut priced = Priced::by(prices());
        for (skbs, seconds) in [(2000, 2.0), (1000, 2.0), (3000, 3.0)] {
            let counts = tcpcost_counts::Counts::from([(Quantity::DataSkbsSent, skbs)]);
            let totals = Growth {
                counts: [(MeterName::Segments, counts)].into(),
                ..Growth::default()
            };
            priced.set(&totals);
            assert_eq!(priced.told["skb_sent"], seconds);
        }
        assert_eq!(priced.told[TOGETHER], 0.0);
    }
}
