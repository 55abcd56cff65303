//! Tests of a policy of another crate: its decisions and its limits.

use super::*;

/// Policy that acknowledges one segment at once if `first`, then none.
#[derive(Debug)]
struct Once {
    first: bool,
}

#[derive(Debug)]
struct OnceRule {
    left: u32,
}

impl OwnAcks for Once {
    fn rule(&self) -> Box<dyn AckRule> {
        Box::new(OnceRule {
            left: self.first.into(),
        })
    }
}

impl AckRule for OnceRule {
    fn on_segment(&mut self, _: &Arrival) -> AckDecision {
        if self.left == 0 {
            return AckDecision::Nothing;
        }
        self.left -= 1;
        AckDecision::Now
    }

    fn on_timer(&mut self) {
        self.left = 1;
    }
}

static ONCE: Once = Once { first: true };
static NEVER: Once = Once { first: false };

fn table(policy: &'static Once) -> Table {
    Table::new(AckPolicy::Own(OwnAckPolicy(policy)))
}

#[test]
fn it_decides_and_remembers_for_its_connection() {
    let mut table = table(&ONCE);
    assert_eq!(table.run(&[1000, 1000, 1000]), [1]);
    table.timer(2000);
    assert_eq!(table.run(&[1000, 1000]), [3]);
}

#[test]
fn it_cannot_wait_for_ever_nor_take_the_whole_window() {
    let mut table = table(&NEVER);
    assert_eq!(table.unit(1000), AckDecision::By(ms(0) + DELAY_MAX));
    table.window_bytes = 4000;
    assert_eq!(table.unit(1000), AckDecision::Now);
}

#[test]
fn another_policy_in_its_place_begins_anew() {
    let mut table = table(&NEVER);
    assert_ne!(table.unit(1000), AckDecision::Now);
    table.policy = AckPolicy::Own(OwnAckPolicy(&ONCE));
    assert_eq!(table.unit(1000), AckDecision::Now);
    assert_ne!(OwnAckPolicy(&ONCE), OwnAckPolicy(&NEVER));
}
