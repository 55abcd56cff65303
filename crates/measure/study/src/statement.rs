//! `[[statement]]`: a statement of a publication, in our words. The `[[conclusion]]`s that name it
//! test it.

use serde::Serialize;

use crate::parse::{Section, StudyError, any};

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
            let id = section.required_text("id", |text| match text {
                "" => Err("a name that conclusions have it by".to_string()),
                text if all.iter().any(|one| one.id == text) => {
                    Err(format!("a name of its own; there is a \"{text}\" already"))
                }
                text => Ok(text.to_string()),
            })?;
            let source = section.required_text("source", any)?;
            let text = section.required_text("text", any)?;
            section.end()?;
            all.push(Statement { id, source, text });
        }
        Ok(all)
    }
}
