//! Makes estimates from records, and text, JSON, CSV and one self-contained page from estimates.
//!
//! Every step is a pure function of files: it reads no clock, no device and no `/proc`. So a report can be
//! made again anywhere from its records. Start with [`Summary::new`], [`text()`] and [`derive()`];
//! `docs/method.md` has every formula, `docs/records.md` every field.
//!
//! ```
//! use tcpcost_report::{Summary, TextStyle, text};
//! use tcpcost_study::Study;
//! let study = Study::parse("mine", "[workload]\nkind = \"stream\"", "mine.toml").unwrap();
//! let summary = Summary::new(&study, &[]);
//! assert!(text(&summary, TextStyle::default()).contains("0 of 6 trials"));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acks;
mod call_chains;
mod cell;
mod charts;
mod comparable;
mod compare;
mod comparison;
mod comparison_prose;
mod conclusions;
mod contrast;
mod copied;
mod copy_path;
mod cpu_ownership;
mod cpu_time;
mod crossover_prose;
mod csv;
mod decision;
mod derive;
mod differences;
mod distance;
mod effect_prose;
mod effects;
mod estimate;
mod export;
mod facts;
mod fleet;
mod fleet_prose;
mod headline;
mod held;
mod host_rows;
mod host_table;
mod html;
mod json;
mod labels;
mod layers_prose;
mod levels;
mod lone_prose;
mod machines;
mod meter_cost;
mod netperf;
mod number;
mod opening;
mod operations;
mod page_policy;
mod pairing;
mod profile;
mod prose;
mod published_chart;
mod published_table;
mod regime;
mod response;
mod scope;
mod series_chart;
mod statements;
mod stored;
mod summary;
mod table;
mod text;
mod trust;
mod verdict;
mod warned;

pub use call_chains::flame::{FlameError, flame, flame_difference};
pub use cell::{CellSummary, Load, TrialValues};
pub use comparable::{Incomparable, is_per_transaction, transactions_differ};
pub use compare::{Group, PublishedComparison};
pub use comparison::{Basis, Comparison, Earlier, StoredVerdict};
pub use conclusions::{Against, Crossing, Finding, FindingKind, Sign, Step};
pub use contrast::Contrast;
pub use csv::csv;
pub use decision::{Decision, pairs_needed};
pub use derive::{Values, derive};
pub use distance::Distances;
pub use effects::{Effect, EffectAt, LayerShare, Moved};
pub use estimate::{CONFIDENCE, Estimate};
pub use export::{bmf, github_benchmark, junit, ktap, markdown, nipa, openmetrics};
pub use fleet::{Because, Fleet, Outlier};
pub use headline::{Headline, families};
pub use held::Held;
pub use host_rows::{HostRow, Tier};
pub use html::html;
pub use json::json;
pub use machines::Machines;
pub use meter_cost::MeterCost;
pub use netperf::{cpu_ratio, service_demand_us_per_kib};
pub use operations::OperationSummary;
pub use profile::{Cost, Function, Layer, Profile, SHARE_MIN};
pub use regime::Regime;
pub use summary::Summary;
pub use table::wrap;
pub use text::{TextStyle, text};
pub use verdict::{Judged, Verdict};
pub use warned::Warned;
