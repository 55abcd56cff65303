//! `[[statement]]`: a statement of a publication, in our words. The `[[conclusion]]`s that name it
//! test it.

use serde::Serialize;

use crate::parse::{Section, StudyError, any, quoted};

/// Published statement that the study's conclusions test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Statement {
    /// Id by which conclusions name it.
    pub id: String,
    /// Publication that states it.
    pub source: String,
    /// Statement, in our words.
    pub text: String,
}

impl Statement {
    /// Parses all statements of a file. Each id must be unique.
    pub(crate) fn parse_all(sections: Vec<Section<'_>>) -> Result<Vec<Statement>, StudyError> {
        let mut all: Vec<Statement> = Vec::new();
        for mut section in sections {
            let id = |id: &str| match id {
                "" => Err("a name that conclusions have it by".to_string()),
                id if all.iter().any(|one| one.id == id) => {
                    Err(format!("a name of its own; there is a \"{id}\" already"))
                }
                id => Ok(id.to_string()),
            };
            let statement = Statement {
                id: section.required("id", quoted(id))?,
                source: section.required("source", quoted(any))?,
                text: section.required("text", quoted(any))?,
            };
            section.end()?;
            all.push(statement);
        }
        Ok(all)
    }
}
