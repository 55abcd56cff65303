//! Study file, parsed: its cells, its measurement, and what it is compared with.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::capture::PublishedOpening;
use crate::cell::Cell;
use crate::conclusion::{Conclusion, Fit};
use crate::derived::{Derived, Scope};
use crate::measure::{Measure, Published, PublishedFunctions, Threshold};
use crate::parse::{Section, Source, StudyError, any, quoted, set_knob};
use crate::published::{functions, published, threshold};
use crate::published_table::PublishedTable;
use crate::quick::Quick;
use crate::statement::Statement;
use crate::topology::Topology;
use tcpcost_counts::Figure;
use tcpcost_knobs::{Bed, FileTable, HostName, KnobError, Knobs, Reach, group_of, new_name};

pub use self::comparison::{CellPair, Sides, SidesError};
pub use self::meters::MetersError;

use self::cells::{CommonKnobs, UnusedKnobs, cells, knobs_of_table};
use self::group::group;
use self::hosts::hosts;
use self::measure::measure;

/// Error: the cells of a study have different hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its cells have different hosts: name them in [hosts]")]
pub struct DifferentHosts;

/// Parsed study file.
#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// Name: that of the file, without its ending.
    pub name: String,
    /// Question of the study, in one line.
    pub title: String,
    /// Further lines, shown in the report.
    pub about: String,
    /// Cells (combinations of knobs), in the order of the file; at least one.
    pub cells: Vec<Cell>,
    /// Pairs of cells that run until it is known which costs more. A study file makes none.
    pub comparisons: Vec<CellPair>,
    /// Names of the knobs that `[vary]` and `[[cells]]` set.
    pub vary: Vec<String>,
    /// Settings for measuring.
    pub measure: Measure,
    /// `[published]`: published figures.
    pub published: Option<Published>,
    /// `[published_functions]`: published ratios of functions.
    pub published_functions: Option<PublishedFunctions>,
    /// `[published_table]`: a published table.
    pub published_table: Option<PublishedTable>,
    /// `[published_opening]`: a published capture.
    pub published_opening: Option<PublishedOpening>,
    /// `[[threshold]]`: limits.
    pub thresholds: Vec<Threshold>,
    /// `[[conclusion]]`: sentences to make from the numbers.
    pub conclusions: Vec<Conclusion>,
    /// `[[statement]]`: published statements that conclusions test.
    pub statements: Vec<Statement>,
    /// Ids of the statements whose tests need cells that a quick study leaves out.
    pub untested: BTreeSet<String>,
    /// `[[fit]]`: straight lines through the trials of several cells.
    pub fits: Vec<Fit>,
    /// Changes for `--quick`.
    pub quick: Quick,
    /// Hosts that stand for all nodes of a job until [`Study::expand_nodes`].
    placeholders: Option<[HostName; 2]>,
}

impl Study {
    /// True if the study asks which rate a cell with these knobs reaches, so that a rate that is missed is a result.
    pub fn asks_for_rate(&self, knobs: &Knobs) -> bool {
        let is_rate = |of: Derived| matches!(of.kind, Figure::Goodput | Figure::TransactionsPerS);
        let conclusions = self.conclusions.iter();
        let mut of_cell = conclusions.filter(|one| knobs.has(&one.matching));
        self.measure.quantity.is_some_and(is_rate)
            || of_cell.any(|one| one.quantity.is_some_and(is_rate))
    }

    /// Parses a study.
    ///
    /// # Errors
    /// The first error: line, key, what was expected, and the nearest valid name.
    pub fn parse(name: &str, text: &str, file: &str) -> Result<Study, StudyError> {
        let source = Source { file, text };
        let root = source.root()?;
        let mut top = Section::new(&source, "", root.get_ref());
        // The title becomes one line, whatever it was in the file.
        let title = top
            .read("title", quoted(any))?
            .unwrap_or_else(|| name.to_string());
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let about = top.read("about", quoted(any))?.unwrap_or_default();

        let mut base = CommonKnobs::default();
        let mut placeholders = None;
        if let Some(section) = top.section("workload")? {
            knobs_of_table(section, FileTable::Workload, "", &mut base)?;
        }
        if let Some(section) = top.section("bed")? {
            knobs_of_table(section, FileTable::Bed, "", &mut base)?;
        }
        if let Some(section) = top.section("hosts")? {
            placeholders = hosts(section, &mut base)?;
        }
        for section in top.sections("group")? {
            group(section, &mut base)?;
        }
        let (cells, vary) = cells(&mut top, name, &base)?;
        let measure = top.one("measure", measure)?.unwrap_or_default();
        let published = top.one("published", published)?;
        let published_table = top.one("published_table", PublishedTable::parse)?;
        let published_opening = top.one("published_opening", PublishedOpening::parse)?;
        let thresholds = top.each("threshold", threshold)?;
        let statements = Statement::parse_all(top.sections("statement")?)?;
        let published_functions = top.one("published_functions", |section| {
            functions(section, &cells, &statements)
        })?;
        let conclusions = top.each("conclusion", |section| {
            Conclusion::parse(section, &statements)
        })?;
        let fits = top.each("fit", Fit::parse)?;
        let quick = top.one("quick", Quick::parse)?.unwrap_or_default();
        top.end()?;

        let mut study = Study {
            name: name.to_string(),
            title,
            about,
            cells,
            comparisons: Vec::new(),
            vary,
            measure,
            published,
            published_functions,
            published_table,
            published_opening,
            thresholds,
            statements,
            conclusions,
            untested: BTreeSet::new(),
            fits,
            quick,
            placeholders,
        };
        let checked = study.check_hosts().and_then(|()| study.check_groups());
        if let Err(KnobError { knob, reason }) = checked {
            return Err(source.error(place_of(text, &knob), &knob, reason));
        }
        if study.measure.meter_cost {
            study.ask_meter_cost();
        }
        study.ask_captures();
        Ok(study)
    }

    /// Hosts of all cells.
    fn hosts(&self) -> impl Iterator<Item = HostName> {
        self.cells.iter().flat_map(|cell| cell.knobs.host_names())
    }

    /// Hosts of each cell, without listening halves of machines.
    ///
    /// # Errors
    /// The cells have different hosts.
    pub fn only_hosts(&self) -> Result<Vec<HostName>, DifferentHosts> {
        let of = |cell: &Cell| {
            let mut hosts = cell.knobs.host_names();
            hosts.retain(|host| host.half_of().is_none());
            hosts
        };
        let mut all = self.cells.iter().map(of);
        let first = all.next().unwrap_or_default();
        match all.all(|hosts| hosts == first) {
            true => Ok(first),
            false => Err(DifferentHosts),
        }
    }

    /// True if its hosts are the nodes of a job, which are not known yet.
    pub fn awaits_nodes(&self) -> bool {
        self.placeholders.is_some()
    }

    /// Replaces the `"*"` of `[hosts]` by these hosts.
    ///
    /// # Errors
    /// The pattern does not allow this number of hosts.
    pub fn expand_nodes(&mut self, hosts: &[HostName]) -> Result<(), KnobError> {
        if let Some(placeholders) = self.placeholders.take() {
            for cell in &mut self.cells {
                cell.knobs.expand_hosts(placeholders, hosts);
            }
        }
        self.check_hosts()
    }

    /// Names the hosts of a study without `[hosts]`, each reached in this way.
    ///
    /// # Errors
    /// Their bed is not available in this way.
    pub fn reach_hosts(&mut self, reach: &Reach) -> Result<(), KnobError> {
        for cell in &mut self.cells {
            cell.knobs.reach_hosts(reach);
        }
        self.check_hosts()
    }

    /// Checks the hosts that cells name, the pattern among them, and that knobs and figures name
    /// only existing hosts.
    fn check_hosts(&self) -> Result<(), KnobError> {
        for cell in &self.cells {
            if cell.knobs.names_hosts() || cell.knobs.get("reach").is_some() {
                Topology::of(Bed::of_named(&cell.knobs)?, &cell.knobs)?;
            }
        }
        match self.unknown_host() {
            None => Ok(()),
            Some((name, host)) => Err(KnobError::new(name, self.no_such(host))),
        }
    }

    fn no_such(&self, host: HostName) -> String {
        let hosts: BTreeSet<HostName> = self.hosts().collect();
        let hosts: Vec<String> = hosts.iter().map(HostName::to_string).collect();
        let hosts = hosts.join(", ");
        format!("no cell has a host called {host}; there are {hosts}")
    }

    /// Checks that the groups of every cell fit together, and that figures name only existing
    /// groups.
    fn check_groups(&self) -> Result<(), KnobError> {
        let cells = self.cells.iter();
        let known: BTreeSet<HostName> = cells.flat_map(|cell| cell.knobs.made_groups()).collect();
        let no_such = |name: String, group: HostName| {
            let names: Vec<&str> = known.iter().map(HostName::as_str).collect();
            let reason = match names.as_slice() {
                [] => format!(
                    "no group is called {group}: [[group]] with name = \"{group}\" makes one"
                ),
                names => format!("no group is called {group}; there are {}", names.join(", ")),
            };
            Err(KnobError::new(name, reason))
        };
        for cell in &self.cells {
            let made = cell.knobs.made_groups();
            let mut of_groups = cell
                .knobs
                .iter()
                .filter_map(|(name, _)| group_of(name).map(|(group, _)| (name, group)));
            if let Some((name, group)) = of_groups.find(|(_, group)| !made.contains(group)) {
                return no_such(name.to_string(), group);
            }
            cell.knobs.groups()?;
        }
        let mut figures = self.figures();
        let unknown = figures.find_map(|of| match of.scope {
            Scope::Group(group) if !known.contains(&group) => Some((of.to_string(), group)),
            _ => None,
        });
        unknown.map_or(Ok(()), |(name, group)| no_such(name, group))
    }

    /// Figures that the study refers to.
    fn figures(&self) -> impl Iterator<Item = Derived> {
        let published = self.published.iter().map(|published| published.quantity);
        published
            .chain(self.measure.quantity)
            .chain(self.thresholds.iter().map(|threshold| threshold.quantity))
            .chain(
                self.conclusions
                    .iter()
                    .filter_map(|conclusion| conclusion.quantity),
            )
            .chain(
                self.fits
                    .iter()
                    .flat_map(|fit| fit.quantity.into_iter().chain([fit.over])),
            )
    }

    /// Knob or figure that names a host that no cell has, with the host. `None` if there is none.
    fn unknown_host(&self) -> Option<(String, HostName)> {
        let known: BTreeSet<HostName> = self.hosts().collect();
        let is_known = |name: HostName| known.iter().any(|&host| Scope::Host(name).holds(host));
        let knobs = self.cells.iter().flat_map(|cell| cell.knobs.named());
        let knobs = knobs.map(|(host, knob)| (knob.to_string(), host));
        let figures = self.figures().filter_map(|of| match of.scope {
            Scope::Host(host) => Some((of.to_string(), host)),
            Scope::All | Scope::Group(_) => None,
        });
        knobs.chain(figures).find(|(_, host)| !is_known(*host))
    }

    /// Sets knobs in every cell to which they apply, as `--set name=value` does.
    ///
    /// # Errors
    /// No such knob; a value that it does not accept; a knob that `[vary]` varies, or that applies
    /// to no cell; or a knob of the study that no longer applies to a cell.
    pub fn set(&mut self, pairs: &[(String, String)]) -> Result<(), KnobError> {
        let mut set = Knobs::default();
        for (name, text) in pairs {
            if self.vary.iter().any(|varied| varied == new_name(name)) {
                let reason = "varies in this study; take it out of the study file first";
                return Err(KnobError::new(name, reason));
            }
            set_knob(&mut set, name, text)?;
        }
        let mut unused = UnusedKnobs::of(&set);
        for cell in &mut self.cells {
            cell.knobs = unused.fit(cell.knobs.with(&set), &set).map_err(|unmet| {
                let reason = format!("cell \"{}\": {}", cell.name, unmet.reason);
                KnobError::new(unmet.knob, reason)
            })?;
        }
        self.check_hosts()?;
        self.check_groups()?;
        match unused.first() {
            None => Ok(()),
            Some(unmet) => Err(KnobError::new(unmet.knob, unmet.reason)),
        }
    }
}

/// Place of the first mention of a name in a file, or of the name's last part. The start if there
/// is none.
fn place_of(text: &str, name: &str) -> Range<usize> {
    let last = name.rsplit('.').next().unwrap_or(name);
    let at = text.find(name).or_else(|| text.find(last)).unwrap_or(0);
    at..at
}

mod captured;
mod cells;
mod comparison;
mod group;
mod hosts;
mod measure;
mod meters;
mod quick;
#[cfg(test)]
mod tests;
