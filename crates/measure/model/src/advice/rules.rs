//! Table of the rules, by who changes the knob. docs/knob-advice.md is made from it.

mod device;
mod kernel;
mod program;

use crate::advice::rule::{Class, Needs, Rule, Verify};

/// All rules, in the order of the documentation.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    program::RULES
        .iter()
        .chain(device::RULES)
        .chain(kernel::RULES)
}

/// Rule with this id; `None` if there is none.
pub fn rule(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

/// Fields that most rules of class B share: no number, no alternative.
const WORTH_TRYING: Rule = Rule {
    id: "",
    title: "",
    class: Class::B,
    needs: Needs {
        kernel: None,
        device: "",
        who: "root",
    },
    when: &[],
    by_packets: &[],
    claims_if: &[],
    not_when: &[],
    acts_on: &[],
    change: &[],
    is_cautious: false,
    saves_more: false,
    limits: "",
    claim: "",
    source: "",
    study: "",
    act: "",
    undo: "",
    verify: Verify::Switch,
    set: &[],
    costs: "",
    instead: &[],
};

/// Fields that most rules with a change of the program share.
const OF_PROGRAM: Rule = Rule {
    needs: Needs {
        kernel: None,
        device: "",
        who: "the program",
    },
    verify: Verify::Loads,
    ..WORTH_TRYING
};

/// Comparison of a stream with itself.
macro_rules! stream {
    ($knobs:literal) => {
        concat!("tcpcost compare knob ", $knobs)
    };
}

/// Comparison of requests with themselves.
macro_rules! requests {
    ($knobs:literal) => {
        concat!("tcpcost compare knob --set workload=rr ", $knobs)
    };
}

use {requests, stream};
