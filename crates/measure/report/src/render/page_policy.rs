//! Content security policy of a page. The page loads nothing, and uses only the scripts and styles
//! that it was made with, each recognised by its hash. Text that ends an element and begins a
//! script of its own runs no script.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Builds the policy of a page with these sources of scripts and styles; see [`source`].
pub(crate) fn policy(scripts: &[String], styles: &[String]) -> String {
    let (scripts, styles) = (scripts.join(" "), styles.join(" "));
    format!("default-src 'none'; script-src {scripts}; style-src {styles}")
}

/// Policy source that allows an inline script or style of exactly this text.
pub(crate) fn source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// Style that Plot adds to each chart.
pub(crate) const PLOT_STYLE: &str = "\
:where(.plot-d6a7b5) {
  --plot-background: white;
  display: block;
  height: auto;
  height: intrinsic;
  max-width: 100%;
}
:where(.plot-d6a7b5 text),
:where(.plot-d6a7b5 tspan) {
  white-space: pre;
}";
