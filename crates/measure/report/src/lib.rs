//! Makes estimates from records, and text, JSON, CSV and one self-contained page from estimates.
//!
//! Every step is a pure function of files: it reads no clock, no device and no `/proc`. So a report can be
//! made again anywhere from its records. Start with [`Summary::new`], [`text()`] and [`derive()`];
//! `docs/quantities.md` defines every figure, `docs/records.md` every field.
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

mod derive;
mod judge;
mod render;
mod sections;
mod summary;
mod words;

pub use derive::cell::{CellSummary, Load, TrialValues};
pub use derive::contrast::Contrast;
pub use derive::estimate::{CONFIDENCE, Estimate};
pub use derive::fleet::{Because, Fleet, Outlier};
pub use derive::host_rows::{HostRow, Tier};
pub use derive::machines::Machines;
pub use derive::netperf::{cpu_ratio, service_demand_us_per_kib};
pub use derive::operations::OperationSummary;
pub use derive::priced::{PricedCosts, Prices};
pub use derive::profile::{Cost, Function, Layer, Profile, SHARE_MIN};
pub use derive::student::difference_of_means;
pub use derive::values::{Values, derive};
pub use derive::warned::Warned;
pub use judge::comparable::{Incomparable, is_per_transaction, transactions_differ};
pub use judge::comparison::{Basis, Comparison, Earlier, StoredDecision};
pub use judge::conclusions::{Against, Crossing, Finding, FindingKind, Step};
pub use judge::contrasts::{MainContrast, families};
pub use judge::decision::{Decision, pairs_needed};
pub use judge::distance::Distances;
pub use judge::effects::{Effect, EffectAt, Moved};
pub use judge::held::Held;
pub use judge::meter_cost::MeterCost;
pub use judge::reason::{Reason, ReasonBy};
pub use judge::regime::Regime;
pub use judge::sign::Sign;
pub use judge::thresholds::{Judged, Verdict};
pub use render::csv::csv;
pub use render::export::{bmf, github_benchmark, junit, ktap, nipa, openmetrics};
pub use render::flame::{FlameError, flame, flame_difference};
pub use render::html::html;
pub use render::json::json;
pub use render::markdown::markdown;

pub use render::text::{TextStyle, text};
pub use summary::Summary;
pub use summary::groups::{Group, PublishedComparison};
