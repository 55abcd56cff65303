//! Published statements, each with the results of the conclusions that test it.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_study::{Statement, Study};

use crate::judge::conclusions::Finding;
use crate::judge::held::Held;
use crate::judge::second_clock::held;

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

/// All statements of a study, in its order. A statement without a test is undecided. `functions`: results for published functions, by
/// the statement that they test. `by_instructions`: findings in instructions,
/// by the index of the finding in time; they decide what time does not.
pub(crate) fn tested<'a>(
    study: &Study,
    findings: &[Finding],
    functions: &[(String, Held)],
    by_instructions: &'a BTreeMap<usize, Finding>,
) -> Vec<Tested> {
    let test = |statement: &Statement| {
        let of_it: Vec<(usize, &Finding)> = findings
            .iter()
            .enumerate()
            .filter(|(_, finding)| {
                let tests = finding.tests.as_ref();
                tests.is_some_and(|(id, _)| *id == statement.id)
            })
            .collect();
        let all = |with: &dyn Fn(usize) -> Option<&'a Finding>| {
            let of_it = of_it.iter();
            let cut = study
                .untested
                .contains(&statement.id)
                .then_some(Held::NotTested);
            let found = of_it.filter_map(|(index, finding)| held(finding, with(*index)));
            let functions = functions.iter().filter(|(id, _)| *id == statement.id);
            Held::all(found.chain(functions.map(|(_, held)| *held)).chain(cut))
        };
        let by_time = all(&|_| None);
        let with_both = all(&|index| by_instructions.get(&index));
        Tested {
            statement: statement.clone(),
            held: with_both,
            by_instructions: with_both != by_time,
            findings: of_it.iter().map(|(index, _)| *index).collect(),
        }
    };
    study.statements.iter().map(test).collect()
}
