//! Cells of a study file: the knobs of each, and the knobs that do not apply to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use crate::cell::Cell;
use crate::parse::{Section, StudyError, any, quoted, set};
use tcpcost_knobs::{FileTable, HostName, KNOBS, Knobs, Unmet, find_full, instead, new_name};

/// Knobs of `[workload]`, `[bed]`, `[hosts]` and `[[group]]`. Each cell takes those that apply to
/// it.
#[derive(Default)]
pub(super) struct CommonKnobs {
    pub(super) knobs: Knobs,
    pub(super) places: Vec<KnobPlace>,
}

/// Place in the file at which a knob is set.
pub(super) struct KnobPlace {
    /// Full name of the knob.
    pub(super) knob: String,
    /// Table and key.
    pub(super) key: String,
    pub(super) span: Range<usize>,
}

impl CommonKnobs {
    /// Names of the groups of connections.
    pub(super) fn group_names(&self) -> BTreeSet<HostName> {
        self.knobs.group_names()
    }
}

/// Knobs that are common to all cells and have applied to no cell so far.
pub(super) struct UnusedKnobs(BTreeMap<String, Option<Unmet>>);

impl UnusedKnobs {
    pub(super) fn of(common: &Knobs) -> UnusedKnobs {
        UnusedKnobs(common.iter().map(|(name, _)| (name.into(), None)).collect())
    }

    /// Returns the knobs of a cell without the common ones that do not apply to it.
    ///
    /// # Errors
    /// A knob that is set for all hosts and applies to some only, or one that does not apply and is
    /// not common.
    pub(super) fn fit(&mut self, mut knobs: Knobs, common: &Knobs) -> Result<Knobs, Unmet> {
        // A knob that is removed may be what another needs, so the check is repeated.
        while let Some(unmet) = knobs.unmet().into_iter().next() {
            if unmet.is_refused || common.get(&unmet.knob) != knobs.get(&unmet.knob) {
                return Err(unmet);
            }
            knobs.remove(&unmet.knob);
            if let Some(reason) = self.0.get_mut(&unmet.knob) {
                reason.get_or_insert(unmet);
            }
        }
        self.0.retain(|name, _| knobs.get(name).is_none());
        Ok(knobs)
    }

    /// Knob that applies to no cell, with what it needs. `None` if all apply.
    pub(super) fn first(self) -> Option<Unmet> {
        self.0.into_values().flatten().next()
    }
}

/// Reads `[workload]` or `[bed]`, with a table for each host or set of hosts, such as
/// `[bed.client]`, and `[bed.sysctl]` inside.
pub(super) fn knobs_of_table(
    mut section: Section<'_>,
    table: FileTable,
    prefix: &str,
    base: &mut CommonKnobs,
) -> Result<(), StudyError> {
    if table == FileTable::Bed {
        if prefix.is_empty() {
            let is_host = |key: &String| key != "sysctl" && key.parse::<HostName>().is_ok();
            for host in section.tables().into_iter().filter(is_host) {
                if let Some(inner) = section.section(&host)? {
                    knobs_of_table(inner, FileTable::Bed, &format!("{host}."), base)?;
                }
            }
        }
        if let Some(mut inner) = section.section("sysctl")? {
            for (key, span, value) in inner.rest() {
                set(
                    &inner,
                    &mut base.knobs,
                    &format!("{prefix}sysctl.{key}"),
                    &key,
                    value,
                    span,
                )?;
            }
        }
    }
    for (key, span, value) in section.rest() {
        let here = KNOBS
            .iter()
            .filter(|knob| knob.table == table && (prefix.is_empty() || knob.per_end));
        // `"clients.mtu"` next to `clients`, which is a knob; and old names of knobs.
        let is_full = key.contains('.') && find_full(&key).is_some_and(|knob| knob.table == table);
        if prefix.is_empty() && (is_full || new_name(&key) != key) {
            set(&section, &mut base.knobs, &key, &key, value, span.clone())?;
            base.places.push(KnobPlace {
                knob: new_name(&key).to_string(),
                key: section.full(&key),
                span,
            });
            continue;
        }
        match here.clone().find(|knob| knob.key == key) {
            Some(knob) => {
                let name = format!("{prefix}{}", knob.name);
                set(&section, &mut base.knobs, &name, &key, value, span.clone())?;
                base.places.push(KnobPlace {
                    knob: name,
                    key: section.full(&key),
                    span,
                });
            }
            None => {
                let elsewhere = KNOBS.iter().find(|knob| knob.key == key);
                let by_name = here.clone().find(|knob| knob.name == key);
                let instead = by_name
                    .map(|knob| format!("use {}", knob.key))
                    .or_else(|| instead(&key, here.map(|knob| knob.key)));
                let hint = match (elsewhere, instead) {
                    (Some(knob), _) if knob.table == table => {
                        "all hosts share it: set it in [bed]".to_string()
                    }
                    (Some(_), _) if table == FileTable::Bed => {
                        "it belongs in [workload]".to_string()
                    }
                    (Some(_), _) => "it belongs in [bed]".to_string(),
                    (None, Some(instead)) => format!("no such knob here; {instead}"),
                    (None, None) => {
                        "no such knob here; `tcpcost study knobs` lists them".to_string()
                    }
                };
                return Err(section.error(span, &key, hint));
            }
        }
    }
    Ok(())
}

/// Limit of cells. Trials of more would take hours, so a larger number is a mistake: 10 values for
/// each of 10 knobs are 10^10 cells.
const CELLS_MAX: usize = 10_000;

/// Knobs that cells set, as `[[cells]]` and `[vary]` have them.
#[derive(Default)]
struct CellKnobs {
    explicit: Vec<Explicit>,
    /// `[vary]`.
    axes: Vec<Axis>,
    /// Names of the knobs, each once.
    vary: Vec<String>,
    places: Vec<KnobPlace>,
}

/// One of `[[cells]]`: several cells if knobs have lists of values.
#[derive(Default)]
struct Explicit {
    name: String,
    /// Knobs with one value.
    knobs: Knobs,
    /// Knobs with a list of values.
    axes: Vec<Axis>,
}

impl Explicit {
    fn sets(&self, knob: &str) -> bool {
        let mut axes = self.axes.iter();
        self.knobs.get(knob).is_some() || axes.any(|axis| axis.knob == knob)
    }
}

/// Values of a knob, each for a cell of its own.
struct Axis {
    knob: String,
    /// One knob each.
    values: Vec<Knobs>,
}

impl Axis {
    fn parse(
        section: &Section<'_>,
        key: &str,
        key_span: &Range<usize>,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Axis, StudyError> {
        let error = |expected: &str| section.error(value.span(), key, expected);
        let DeValue::Array(items) = value.get_ref() else {
            return Err(error("expected a list of values"));
        };
        if items.is_empty() {
            return Err(error("expected at least one value"));
        }
        let mut values = Vec::new();
        for item in items.iter() {
            let mut one = Knobs::default();
            set(section, &mut one, key, key, item, key_span.clone())?;
            values.push(one);
        }
        let knob = new_name(key).to_string();
        Ok(Axis { knob, values })
    }
}

impl CellKnobs {
    fn add_place(&mut self, section: &Section<'_>, key: &str, span: Range<usize>) {
        let knob = new_name(key).to_string();
        if !self.vary.contains(&knob) {
            self.vary.push(knob.clone());
        }
        self.places.push(KnobPlace {
            knob,
            key: section.full(key),
            span,
        });
    }

    /// Takes `[[cells]]`. Without them there is one cell, without a name.
    fn take_explicit(&mut self, top: &mut Section<'_>) -> Result<(), StudyError> {
        for mut section in top.sections("cells")? {
            let name = section.read("name", quoted(any))?;
            let mut cell = Explicit::default();
            let mut last_list = None;
            for (key, span, value) in section.rest() {
                let knob = find_full(new_name(&key));
                let is_one = knob.is_some_and(|knob| knob.kind.is_list());
                if matches!(value.get_ref(), DeValue::Array(_)) && !is_one {
                    let axis = Axis::parse(&section, &key, &span, value)?;
                    cell.axes.push(axis);
                    last_list = Some((key.clone(), value.span()));
                } else {
                    set(&section, &mut cell.knobs, &key, &key, value, span.clone())?;
                }
                self.add_place(&section, &key, span);
            }
            cell.name = name.unwrap_or_else(|| cell.knobs.to_string());
            self.explicit.push(cell);
            if let Some((key, span)) = last_list {
                self.check_count(&section, &key, span)?;
            }
        }
        if self.explicit.is_empty() {
            self.explicit.push(Explicit::default());
        }
        Ok(())
    }

    /// Takes `[vary]`.
    fn take_axes(&mut self, top: &mut Section<'_>) -> Result<(), StudyError> {
        let Some(mut section) = top.section("vary")? else {
            return Ok(());
        };
        for (key, span, value) in section.rest() {
            let axis = Axis::parse(&section, &key, &span, value)?;
            if self.explicit.iter().all(|cell| cell.sets(&axis.knob)) {
                let reason = "each of [[cells]] sets it, so that it varies in no cell";
                return Err(section.error(span, &key, reason));
            }
            self.axes.push(axis);
            self.check_count(&section, &key, value.span())?;
            self.add_place(&section, &key, span);
        }
        Ok(())
    }

    /// Refuses more than [`CELLS_MAX`] cells, at the list that makes them so many.
    fn check_count(
        &self,
        section: &Section<'_>,
        key: &str,
        span: Range<usize>,
    ) -> Result<(), StudyError> {
        let counts = self.explicit.iter().map(|cell| {
            let lengths = self.axes_of(cell).map(|axis| axis.values.len());
            lengths.fold(1, usize::saturating_mul)
        });
        let count = counts.fold(0, usize::saturating_add);
        if count <= CELLS_MAX {
            return Ok(());
        }
        let expected = format!(
            "with this there are {count} cells, more than {CELLS_MAX}: take values off, or make several studies of it"
        );
        Err(section.error(span, key, expected))
    }

    /// Lists of values of a cell: those of `[vary]` for knobs that the cell does not set, then its own.
    fn axes_of<'a>(&'a self, cell: &'a Explicit) -> impl Iterator<Item = &'a Axis> {
        let common = self.axes.iter().filter(|axis| !cell.sets(&axis.knob));
        common.chain(&cell.axes)
    }

    /// Every combination of the values of a cell's lists.
    fn combinations(&self, cell: &Explicit) -> Vec<Knobs> {
        let mut combinations = vec![Knobs::default()];
        for axis in self.axes_of(cell) {
            combinations = combinations
                .iter()
                .flat_map(|so_far| axis.values.iter().map(|one| so_far.with(one)))
                .collect();
        }
        combinations
    }
}

/// Makes the cells: each of the explicit `[[cells]]` with every combination of its own lists and of
/// `[vary]`. Returns them and the names of the knobs that vary.
pub(super) fn cells(
    top: &mut Section<'_>,
    study: &str,
    base: &CommonKnobs,
) -> Result<(Vec<Cell>, Vec<String>), StudyError> {
    let mut asked = CellKnobs::default();
    asked.take_explicit(top)?;
    asked.take_axes(top)?;
    let wrong = |top: &Section<'_>, places: &[KnobPlace], unmet: &Unmet, of: &str| {
        let mut all = places.iter().chain(&base.places);
        let place = all.find(|place| place.knob == unmet.knob);
        let (span, key) = place.map_or((0..0, unmet.knob.as_str()), |place| {
            (place.span.clone(), place.key.as_str())
        });
        top.error(span, key, format!("{}{of}", unmet.reason))
    };
    let mut unused = UnusedKnobs::of(&base.knobs);
    let mut cells: Vec<Cell> = Vec::new();
    for explicit in &asked.explicit {
        for varied in asked.combinations(explicit) {
            let words = [explicit.name.clone(), varied.to_string()];
            let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
            let name = if words.is_empty() {
                study.to_string()
            } else {
                words.join(" ")
            };
            let own = explicit.knobs.with(&varied);
            // Knobs that the cell itself sets are not common, even if the values are the same.
            let mut common = base.knobs.clone();
            own.iter().for_each(|(name, _)| common.remove(name));
            let knobs = unused
                .fit(base.knobs.with(&own), &common)
                .map_err(|unmet| {
                    wrong(top, &asked.places, &unmet, &format!(" (cell \"{name}\")"))
                })?;
            cells.push(Cell {
                name,
                knobs,
                meter_trial: None,
                captured: None,
                program: None,
            });
        }
    }
    if let Some(unmet) = unused.first() {
        return Err(wrong(top, &[], &unmet, ""));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = cells.iter().find(|cell| !names.insert(&cell.name)) {
        let reason = format!("two cells are called \"{}\"; give each a name", twice.name);
        return Err(top.error(0..0, "cells", reason));
    }
    Ok((cells, asked.vary))
}
