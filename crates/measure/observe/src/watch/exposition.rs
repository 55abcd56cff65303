//! Metrics as text: OpenMetrics 1.0, which Prometheus reads from version 2.5 on.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Encodes the current values of a collector.
///
/// # Errors
/// The collector could not be encoded.
pub fn metrics_text(collector: impl Collector) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Content-Type of this text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
