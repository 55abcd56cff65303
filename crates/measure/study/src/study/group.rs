//! `[[group]]` of a study file. Its keys are knobs of the group: `flows` of the group `small` is
//! `small.flows`.

use crate::parse::{Section, StudyError, quoted, set};
use tcpcost_knobs::{HostName, KNOBS, Value, instead};

use super::cells::{CommonKnobs, KnobPlace};

/// Reads one `[[group]]`.
pub(super) fn group(mut section: Section<'_>, base: &mut CommonKnobs) -> Result<(), StudyError> {
    let name = section.required("name", quoted(str::parse::<HostName>))?;
    let start = section.start();
    let wrong =
        |section: &Section<'_>, what: String| Err(section.error(start.clone(), "name", what));
    if name.is_of_topology() {
        return wrong(
            &section,
            format!("{name} is the name of a host: rename the group"),
        );
    }
    let names = base.group_names();
    if names.contains(&name) {
        return wrong(&section, format!("two groups are called {name}"));
    }
    for (key, span, value) in section.rest() {
        let here = KNOBS.iter().filter(|knob| knob.per_group);
        let Some(knob) = here.clone().find(|knob| knob.name == key) else {
            let elsewhere = KNOBS
                .iter()
                .find(|knob| knob.name == key || knob.key == key);
            let hint = match (elsewhere, instead(&key, here.map(|knob| knob.name))) {
                (Some(knob), _) if knob.per_group => format!("in a group the key is {}", knob.name),
                (Some(_), _) => "all groups share it: set it in [workload] or [bed]".to_string(),
                (None, Some(instead)) => format!("no such key of a group; {instead}"),
                (None, None) => "no such key of a group; docs/study-file.md lists them".to_string(),
            };
            return Err(section.error(span, &key, hint));
        };
        let full = format!("{name}.{}", knob.name);
        set(&section, &mut base.knobs, &full, &key, value, span.clone())?;
        base.places.push(KnobPlace {
            knob: full,
            key: section.full(&key),
            span,
        });
    }
    let full = format!("{name}.workload");
    if base.knobs.get(&full).is_none() {
        // A group exists by its knobs, so it gets at least one.
        let program = base.knobs.get(&format!("{name}.program"));
        let kind = match program {
            Some(_) => Some(Value::Word("program".to_string())),
            None => base.knobs.value("workload"),
        };
        base.knobs
            .insert(&full, kind.expect("a choice has a default"));
    }
    Ok(())
}
