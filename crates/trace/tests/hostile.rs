//! Tests that no peer makes a packet cost more than a bounded number of steps, and that no other
//! host makes a capture need more than bounded memory. What is not followed for that reason is
//! counted.
//!
//! Steps are bounded by the lists that they go through: the analysis asserts after each packet that
//! no list is longer than its limit.

#[path = "common/hostile.rs"]
mod hostile;

use hostile::Attack;
use tcpcost_trace::{Analysis, Reading, Settings, Sink, read, text};

#[test]
fn no_list_of_a_connection_grows_beyond_its_limit() {
    for attack in Attack::ALL {
        let mut analysis = Analysis::new(Settings::default());
        for segment in attack.segments(20_000) {
            analysis.segment(&segment);
        }
        let (report, ()) = analysis.into_report("x", &Reading::default(), Ok(()));
        let is_gaps = matches!(attack, Attack::Gaps | Attack::Early);
        let not_followed = report.total.gaps_not_followed;
        assert!(!is_gaps || not_followed > 50, "{attack:?}: {not_followed}");
        let said = format!("{not_followed} gaps in sequence numbers were not followed");
        assert_eq!(
            not_followed > 0,
            text(&report).contains(&said),
            "{attack:?}"
        );
    }
}

#[test]
fn strangers_do_not_fill_the_memory() {
    for attack in [Attack::Strangers, Attack::Syns] {
        let mut analysis = Analysis::new(Settings::default()).holding(1_000);
        for segment in attack.segments(50_000) {
            analysis.segment(&segment);
            assert!(analysis.connections().len() <= 1_000);
        }
        let report = analysis.report("x", &Reading::default(), Ok(()));
        assert_eq!(report.connections_begun, 50_000, "{attack:?}");
        assert!(report.connections.len() <= 2_000);
        assert!(text(&report).contains("are in totals and findings, but no longer listed"));
    }
}

#[test]
fn a_text_of_many_names_tells_each_of_them() {
    let line = |n: u32| format!("IP h{n}.a.80 > B.80: Flags [.], ack 1, win 9, length 0\n");
    let capture: String = (0..3_000).map(line).collect();
    let mut analysis = Analysis::new(Settings::default());
    let (reading, outcome) = read(capture.as_bytes(), &mut analysis);
    outcome.unwrap();
    assert_eq!(reading.names.len(), 3_001);
    // A line of arrows alone is no segment.
    let arrows = format!("{}\n{}", "a > ".repeat(4_000), line(1));
    let (reading, outcome) = read(arrows.as_bytes(), &mut analysis);
    outcome.unwrap();
    assert_eq!(reading.skipped.not_tcp, 1);
}
