//! Advice as JSON.

use serde_json::{Value, json};

use crate::advice::evaluate::{Advice, Advised, NotHere};
use crate::advice::rule::Class;
use crate::advice::text::{Remarks, Subject};

/// Version of the JSON document: docs/schema/advise.schema.json.
pub const SCHEMA_VERSION: u32 = 1;

impl Advised {
    /// Advice on one workload as JSON.
    pub fn json(&self, subject: &Subject, remarks: &Remarks) -> Value {
        let all = |of: &[Advice]| {
            of.iter()
                .map(|one| advice(one, subject))
                .collect::<Vec<_>>()
        };
        json!({
            "subject": subject.name,
            "device": Some(&subject.device).filter(|device| !device.is_empty()),
            "cost": self.explanation,
            "claims": all(&self.claims),
            "worth_trying": all(&self.worth_trying),
            "not_here": self.not_here.iter().map(not_here).collect::<Vec<_>>(),
            "prices": remarks.prices,
            "notes": remarks.notes,
        })
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::A => "A",
        Class::B => "B",
        Class::C => "C",
    }
}

fn advice(of: &Advice, subject: &Subject) -> Value {
    let rule = of.rule;
    let lines = subject.lines(rule);
    let kernel = rule
        .needs
        .kernel
        .map(|(major, minor)| format!("{major}.{minor}"));
    json!({
        "id": rule.id,
        "title": rule.title,
        "class": class(rule.class),
        "saving": of.saving,
        "or_more": rule.saves_more,
        "upper_bound": of.upper_bound,
        "withheld": Some(&of.withheld).filter(|why| !why.is_empty()),
        "evidence": of.evidence,
        "do": lines.act,
        "undo": lines.undo,
        "verify": lines.verify,
        "costs": rule.costs,
        "limits": rule.limits,
        "claim": rule.claim,
        "source": rule.source,
        "needs": {
            "kernel": kernel,
            "device": rule.needs.device,
            "who": rule.needs.who,
        },
        "study": rule.study,
    })
}

fn not_here(of: &NotHere) -> Value {
    json!({
        "id": of.rule.id,
        "title": of.rule.title,
        "reason": of.reason,
        "upper_bound": of.upper_bound,
    })
}
