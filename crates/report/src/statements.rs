//! Published statements, each with what the study's conclusions that test it found.

use tcpcost_study::Statement;

use crate::conclusions::Finding;
use crate::held::Held;

/// A published statement against what was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Tested {
    /// What is stated, and by whom.
    pub statement: Statement,
    /// Whether it holds here: all that test it must say so.
    pub held: Held,
    /// Which of the findings test it.
    pub findings: Vec<usize>,
}

/// All of a study's, in its order. One that nothing tests is undecided.
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
