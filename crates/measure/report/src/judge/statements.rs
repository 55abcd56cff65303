//! Published statements, each with the results of the conclusions that test it.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::Statement;

use crate::judge::conclusions::Finding;
use crate::judge::held::Held;

/// A published statement and its test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tested {
    /// Statement and its source.
    #[serde(flatten)]
    pub statement: Statement,
    /// Result of the test. The statement holds only if all findings that test it agree.
    pub held: Held,
    /// True if instructions decide it, because time does not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_instructions: bool,
    /// Indices of the findings that test it.
    pub findings: Vec<usize>,
}

/// All statements of a study, in its order. A statement without a test is undecided. Where time leaves one undecided, the
/// findings in instructions decide, by their index.
pub(crate) fn tested(
    statements: &[Statement],
    findings: &[Finding],
    by_instructions: &BTreeMap<usize, Finding>,
) -> Vec<Tested> {
    let test = |statement: &Statement| {
        let held = |finding: &Finding| {
            let (id, held) = finding.tests.as_ref()?;
            (*id == statement.id).then_some(*held)
        };
        let of_it = findings.iter().enumerate();
        let of_it: Vec<(usize, Held)> = of_it
            .filter_map(|(index, finding)| Some((index, held(finding)?)))
            .collect();
        let by_time = Held::all(of_it.iter().map(|(_, held)| *held));
        let with_both = Held::all(of_it.iter().map(|(index, by_time)| {
            match by_time {
                Held::Undecided => by_instructions
                    .get(index)
                    .and_then(held)
                    .unwrap_or(*by_time),
                decided => *decided,
            }
        }));
        Tested {
            statement: statement.clone(),
            held: with_both,
            by_instructions: with_both != by_time,
            findings: of_it.into_iter().map(|(index, _)| index).collect(),
        }
    };
    statements.iter().map(test).collect()
}
