//! Published statements, each with the results of the conclusions that test it.

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
    /// Indices of the findings that test it.
    pub findings: Vec<usize>,
}

/// All statements of a study, in its order. A statement without a test is undecided.
pub(crate) fn tested(statements: &[Statement], findings: &[Finding]) -> Vec<Tested> {
    let test = |statement: &Statement| {
        let of_it = findings.iter().enumerate().filter_map(|(index, finding)| {
            let (id, held) = finding.tests.as_ref()?;
            (*id == statement.id).then_some((index, *held))
        });
        let of_it: Vec<(usize, Held)> = of_it.collect();
        Tested {
            statement: statement.clone(),
            held: Held::all(of_it.iter().map(|(_, held)| *held)),
            findings: of_it.into_iter().map(|(index, _)| index).collect(),
        }
    };
    statements.iter().map(test).collect()
}
