//! The loop: read, wait, read, show the growth in between. It uses clock, meters and terminal only through
//! its arguments.

use std::io;
use std::ops::ControlFlow;

use ratatui::crossterm::event::KeyCode;
use tcpcost_counts::{Growth, MeterName, Snapshot};

use crate::ticker::{Event, Ticker};
use crate::watch::costs::{self, Costs};
use crate::watch::rows::Row;
use crate::watch::sample::Sample;

/// Readings of one instant.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// Totals of each meter.
    pub snapshots: Vec<Snapshot>,
    /// Meters whose programs did not run since the last reading.
    pub unseen: Vec<MeterName>,
    /// Relative standard error of payload bytes since the last reading. `None` if they are not sampled.
    pub sampling_error: Option<f64>,
    /// Growth of each connection since the last reading. `None` if it was not asked for or could not be read.
    pub rows: Option<Vec<Row>>,
    /// CPU time of processes with sockets. `None` if it was not asked for or is unavailable.
    pub costs: Option<Costs>,
    /// Failures to read, one line each.
    pub warnings: Vec<String>,
}

/// Receiver of samples.
pub trait View {
    /// Shows an interval. [`ControlFlow::Break`] ends the watch.
    fn show(&mut self, now: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>>;

    /// Handles a key. [`ControlFlow::Break`] ends the watch.
    fn key(&mut self, _key: KeyCode) -> io::Result<ControlFlow<()>> {
        Ok(ControlFlow::Continue(()))
    }

    /// Draws again after a change of the terminal's size.
    fn resized(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows `count` intervals. Without `count`, shows intervals until the ticker or the view ends the watch.
pub fn watch(
    look: &mut dyn FnMut() -> Moment,
    ticker: &mut dyn Ticker,
    view: &mut dyn View,
    count: Option<u64>,
) -> io::Result<()> {
    let mut before = look();
    let mut left = count;
    while left != Some(0) {
        let event = ticker.wait()?;
        let flow = match event {
            Event::Tick | Event::LateTick(_) => {
                let mut now = look();
                let mut growth = Growth::between(&before.snapshots, &now.snapshots);
                growth.sampling_error = now.sampling_error;
                growth.warnings.extend(now.warnings.iter().cloned());
                if let Event::LateTick(late) = event {
                    growth.warnings.push(format!(
                        "this interval ended {:.3} s late and lasted {:.3} s: the host is busy, or a meter is slow",
                        late.as_secs_f64(),
                        growth.duration_ns as f64 / 1e9,
                    ));
                }
                let mut sample = Sample {
                    growth,
                    rows: now.rows.take(),
                    unseen: [&before.unseen[..], &now.unseen].concat(),
                };
                let both = before.costs.as_ref().zip(now.costs.as_ref());
                if let (Some((before, after)), Some(exact)) =
                    (both, sample.growth.counts.get(&MeterName::Exact))
                {
                    let costs = costs::growth(before, after, exact);
                    sample.rows.get_or_insert_default().extend(costs);
                }
                let flow = view.show(&now, &sample)?;
                before = now;
                left = left.map(|left| left - 1);
                flow
            }
            Event::Key(key) => view.key(key)?,
            Event::Resize => {
                view.resized()?;
                ControlFlow::Continue(())
            }
            Event::End => ControlFlow::Break(()),
        };
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::Script;
    use tcpcost_counts::{CountOwner, Counts, Quantity, Totals};

    struct Kept(Vec<Sample>);

    impl View for Kept {
        fn show(&mut self, _: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>> {
            self.0.push(sample.clone());
            Ok(ControlFlow::Continue(()))
        }

        fn key(&mut self, key: KeyCode) -> io::Result<ControlFlow<()>> {
            Ok(match key {
                KeyCode::Char('q') => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        }
    }

    /// Runs events and returns the number of readings and the retransmits of each interval. The total is the
    /// square of the number of readings.
    fn run(events: &[Event], count: Option<u64>) -> (u64, Vec<u64>) {
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            let counts = Counts::from([(Quantity::SegmentsRetransmitted, looks * looks)]);
            Moment {
                snapshots: vec![Snapshot {
                    meter: MeterName::Netstat,
                    at_ns: looks * 1_000,
                    totals: vec![Totals {
                        whose: CountOwner::Namespace,
                        counts,
                    }],
                }],
                warnings: vec![format!("look {looks}")],
                ..Moment::default()
            }
        };
        let mut kept = Kept(Vec::new());
        let mut ticker = Script(events.iter().copied().collect());
        watch(&mut look, &mut ticker, &mut kept, count).unwrap();
        let growth = |sample: &Sample| {
            assert_eq!(sample.growth.duration_ns, 1_000);
            sample.growth.counts[&MeterName::Netstat][&Quantity::SegmentsRetransmitted]
        };
        (looks, kept.0.iter().map(growth).collect())
    }

    #[test]
    fn each_interval_is_the_growth_since_the_one_before() {
        assert_eq!(run(&[Event::Tick; 3], None), (4, vec![3, 5, 7]));
    }

    #[test]
    fn an_interval_that_ends_late_says_so() {
        let mut kept = Kept(Vec::new());
        let late = Event::LateTick(std::time::Duration::from_millis(1_500));
        let mut ticker = Script([Event::Tick, late].into());
        watch(&mut Moment::default, &mut ticker, &mut kept, None).unwrap();
        assert!(kept.0[0].growth.warnings.is_empty());
        let said = &kept.0[1].growth.warnings[0];
        assert!(
            said.starts_with("this interval ended 1.500 s late"),
            "{said}"
        );
    }

    #[test]
    fn it_ends_after_the_count_and_looks_no_more() {
        assert_eq!(run(&[Event::Tick; 9], Some(2)), (3, vec![3, 5]));
    }

    #[test]
    fn a_signal_or_a_view_ends_it() {
        assert_eq!(run(&[Event::End, Event::Tick], None), (1, vec![]));
        let key = |key| Event::Key(KeyCode::Char(key));
        let events = [key('x'), Event::Tick, key('q'), Event::Tick];
        assert_eq!(run(&events, None), (2, vec![3]));
    }
}
