//! Totals of the relay as Prometheus metrics. No metric has an address or a connection as a label.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tcpcost_relay::{Counters, Direction, Ending};

/// Counters of the relay, read at each request.
#[derive(Debug, Clone)]
pub struct Metrics(Counters);

impl Metrics {
    pub fn new(counters: Counters) -> Metrics {
        Metrics(counters)
    }

    /// Returns the text that Prometheus reads (OpenMetrics 1.0).
    pub fn text(&self) -> Result<String, fmt::Error> {
        tcpcost_observe::metrics_text(self.clone())
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.0.totals();
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        let help = "Bytes by direction and by how they were moved; abandoned bytes were never taken by the other side";
        let unit = Some(&Unit::Bytes);
        let mut family = encoder.encode_descriptor("tcpcost_relay_payload", help, unit, counter)?;
        for (direction, bytes) in Direction::ALL.into_iter().zip(totals.bytes) {
            for (how, count) in [
                ("copied", bytes.copied),
                ("spliced", bytes.spliced),
                ("redirected", bytes.redirected),
                ("abandoned", bytes.abandoned),
            ] {
                let labels = [("direction", direction.name()), ("how", how)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Connections that ended, by how";
        let mut family =
            encoder.encode_descriptor("tcpcost_relay_connections_ended", help, None, counter)?;
        for &ending in Ending::ALL {
            let labels = [("ending", ending.name())];
            let count = ConstCounter::new(totals.ended_by(ending));
            count.encode(family.encode_family(&labels)?)?;
        }
        for (name, help, count) in [
            (
                "connections_accepted",
                "Connections that were accepted",
                totals.accepted,
            ),
            (
                "accept_failures",
                "Times that accept found no descriptor or memory",
                totals.accept_failures,
            ),
            (
                "accept_pauses",
                "Times that accepting paused at the limit of connections",
                totals.accept_pauses,
            ),
            (
                "connect_failures",
                "Connections that an upstream refused",
                totals.connect_failures,
            ),
            (
                "pipe_shortages",
                "Pieces that were copied because no pipe was free",
                totals.pipe_shortages,
            ),
            (
                "switches",
                "Times that mode auto changed how the bytes of one direction are moved",
                totals.switches,
            ),
            (
                "stalls",
                "Times that a side did not take all bytes that were there",
                totals.stalls,
            ),
        ] {
            let name = format!("tcpcost_relay_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, counter)?;
            ConstCounter::new(count).encode(metric)?;
        }
        for (name, help, value) in [
            ("connections", "Connections that are open", totals.open),
            ("pipes", "Pipes that are open", totals.pipes),
        ] {
            let name = format!("tcpcost_relay_{name}");
            let metric = encoder.encode_descriptor(&name, help, None, gauge)?;
            ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?;
        }
        Ok(())
    }
}
