//! Cost of TCP by cause, as counters for Prometheus: what was counted times this host's prices; of the host, and of owners.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use tcpcost_counts::{Growth, MeterName, Quantity, Source};
use tcpcost_model::{Counts, PriceList, explain};

use crate::watch::rows::{By, Grown, Owner, Row, place, top};
use crate::watch::sample::Sample;

/// Cost of each cause, s.
type ByCause = BTreeMap<&'static str, f64>;

/// Prices, and the cost of each cause so far.
#[derive(Debug)]
pub struct Priced {
    prices: PriceList,
    host: ByCause,
    owners: BTreeMap<Owner, ByCause>,
}

/// Label of the causes of which only the sum is known.
const TOGETHER: &str = "others_together";

impl Priced {
    /// Starts without any cost.
    pub fn by(prices: PriceList) -> Priced {
        Priced {
            prices,
            host: ByCause::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Cost of counts by cause, s.
    fn costs(&self, of: &dyn Source) -> ByCause {
        let found = explain(&self.prices, &Counts::of(of), None);
        let terms = found.terms.iter().map(|term| (term.cause.id(), term.ns));
        let all = terms.chain([(TOGETHER, found.inseparable_ns)]);
        all.map(|(cause, ns)| (cause, ns / 1e9)).collect()
    }

    /// Updates the host's costs, none of which may shrink: a count that is the difference of two others may.
    pub fn set(&mut self, totals: &Growth) {
        for (cause, seconds) in self.costs(totals) {
            let told = self.host.entry(cause).or_default();
            *told = told.max(seconds);
        }
    }

    /// Adds the cost of an interval to the owners of this kind.
    pub fn add(&mut self, by: By, sample: &Sample) {
        let rows = sample.rows.as_deref().unwrap_or_default();
        for row in top(rows, by, usize::MAX) {
            let owned = Owned::new(&row, &sample.growth);
            let costs = self.costs(&owned);
            if row.is_host || costs.values().all(|seconds| *seconds <= 0.0) {
                continue;
            }
            let owner = place(&self.owners, by, &row);
            let told = self.owners.entry(owner).or_default();
            for (cause, seconds) in costs {
                *told.entry(cause).or_default() += seconds.max(0.0);
            }
        }
    }

    /// Encodes `tcpcost_cost_seconds_total` and `tcpcost_owner_cost_seconds_total`.
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let seconds = Some(&Unit::Seconds);
        let help =
            "CPU time of TCP by cause: counts times the prices of tcpcost model (docs/prices.md)";
        let mut metric =
            encoder.encode_descriptor("tcpcost_cost", help, seconds, MetricType::Counter)?;
        for (cause, total) in &self.host {
            let labels = [("owner", "host"), ("cause", cause)];
            ConstCounter::new(*total).encode(metric.encode_family(&labels)?)?;
        }
        if self.owners.is_empty() {
            return Ok(());
        }
        let name = "tcpcost_owner_cost";
        let help = "CPU time of TCP by owner and cause, of the causes that are counted by owner (docs/prices.md)";
        let mut metric = encoder.encode_descriptor(name, help, seconds, MetricType::Counter)?;
        for ((by, owner), costs) in &self.owners {
            for (cause, total) in costs {
                let labels = [("by", by.one()), ("owner", owner), ("cause", cause)];
                ConstCounter::new(*total).encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Counts of an owner in an interval.
struct Owned<'a> {
    row: Grown<'a>,
    /// Ratio of all bytes to those in the skbs that were seen. The programs that count skbs may run in windows; TCP_INFO counts
    /// bytes all the time.
    unseen: f64,
    /// skbs that were merged in the backlog. The kernel counts them for a namespace: this is the owner's part by skbs received.
    merged: Option<f64>,
}

impl Owned<'_> {
    fn new<'a>(row: &'a Row, all: &Growth) -> Owned<'a> {
        let of = |by: &dyn Source, quantity| by.count(MeterName::Segments, quantity).unwrap_or(0.0);
        let grown = row.over(all.duration_ns);
        let bytes = [Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];
        let seen: f64 = bytes.iter().map(|&quantity| of(&grown, quantity)).sum();
        let unseen = if seen > 0.0 {
            (row.bytes() as f64 / seen).max(1.0)
        } else {
            1.0
        };
        let received = |by: &dyn Source| {
            let skbs = [Quantity::DataSkbsReceived, Quantity::PureAcksReceived];
            skbs.iter().map(|&quantity| of(by, quantity)).sum::<f64>()
        };
        let part = (unseen * received(&grown) / received(all)).min(1.0);
        let merged = all.count(MeterName::Netstat, Quantity::BacklogCoalesced);
        Owned {
            merged: merged.map(|merged| merged * if part.is_finite() { part } else { 0.0 }),
            row: grown,
            unseen,
        }
    }
}

impl Source for Owned<'_> {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        match (by, of) {
            (MeterName::Netstat, Quantity::BacklogCoalesced) => self.merged,
            (MeterName::Segments, _) => Some(self.row.count(by, of)? * self.unseen),
            _ => self.row.count(by, of),
        }
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let seconds = self.time_ns(by)? / 1e9;
        Some(self.count(by, of)? / seconds)
    }

    fn time_ns(&self, by: MeterName) -> Option<f64> {
        self.row.time_ns(by)
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
            assert_eq!(priced.host["skb_sent"], seconds);
        }
        assert_eq!(priced.host[TOGETHER], 0.0);
    }

    #[test]
    fn an_owner_has_the_cost_of_all_bytes_that_its_connections_moved() {
        use crate::watch::testing::row;
        let mut priced = Priced::by(prices());
        // 500 skbs were seen, with a half of the bytes that TCP counted: they cost 1 s for each GB.
        let mut half = row(7, "web", 1_000_000_000);
        half.counts.insert(Quantity::DataSkbBytesSent, 500_000_000);
        let sample = Sample {
            rows: Some(vec![half, row(8, "db", 10)]),
            ..Sample::default()
        };
        for _ in 0..2 {
            priced.add(By::Process, &sample);
        }
        let of = |name: &str| priced.owners[&(By::Process, name.to_string())]["skb_sent"];
        assert_eq!((of("web"), of("db")), (2.0, 1.0));
        assert!(priced.host.is_empty());
    }
}
