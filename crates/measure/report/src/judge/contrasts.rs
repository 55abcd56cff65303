//! Main contrasts of a study, and the groups of cells that run next to each other because they are
//! compared.

use tcpcost_study::{Derived, Expects, Knobs, Study};

use crate::derive::cell::{CellSummary, differing};
use crate::derive::contrast::Contrast;
use crate::judge::conclusions;
use crate::judge::decision::{Decision, pairs_needed};
use crate::judge::effects;
use crate::judge::held::Held;

/// Contrast that the study must decide.
#[derive(Debug, Clone, PartialEq)]
pub struct MainContrast {
    /// Cell that `to` is compared with.
    pub from: String,
    /// Cell whose ratio to `from` is estimated.
    pub to: String,
    /// Quantity that is compared.
    pub quantity: Derived,
    /// `None` if the two cells have no repetition in common.
    pub contrast: Option<Contrast>,
    /// Direction that a published statement expects; `None` if the contrast tests none.
    pub expects: Option<Expects>,
}

impl MainContrast {
    /// True if the contrast is as narrow as the study asks and decides the statement that it tests, or its
    /// comparison has a decision. True for a study that asks for neither.
    pub fn is_decided(&self, study: &Study) -> bool {
        if !study.comparisons.is_empty() {
            let decision = |contrast: Contrast| {
                Decision::of(&contrast.ratio, study.measure.min_effect) != Decision::Inconclusive
            };
            return self.contrast.is_some_and(decision);
        }
        let Some(target) = study.measure.contrast_target else {
            return true;
        };
        let width = self.contrast.and_then(|contrast| contrast.half_width());
        width.is_some_and(|width| width <= target) && self.is_held_or_not()
    }

    /// True if the contrast decides the statement that it tests, or tests none.
    fn is_held_or_not(&self) -> bool {
        self.expects.is_none_or(|expects| {
            let percent = self.contrast.map(|contrast| contrast.percent());
            Held::of_measured(percent.as_ref(), expects) != Held::Undecided
        })
    }

    /// Estimated total number of repetitions for a decision, as an interval narrows with the square
    /// root of their number. `None` without an interval, or if the study does not ask.
    pub fn repetitions_needed(&self, study: &Study) -> Option<usize> {
        let contrast = self.contrast?;
        if !study.comparisons.is_empty() {
            return pairs_needed(&contrast.ratio, study.measure.min_effect);
        }
        let mut target = study.measure.contrast_target?;
        if let Some(expects) = self.expects.filter(|_| !self.is_held_or_not()) {
            target = target.min(Held::deciding_width(contrast.percent().median, expects) / 100.0);
        }
        let times = contrast.half_width()? / target;
        Some((contrast.ratio.n as f64 * times.powi(2).max(1.0)).ceil() as usize)
    }
}

/// Main contrasts of a study: the pairs of its comparison. Without these, those of its conclusions.
/// Without these, for each knob in which the cells differ, each value against the first.
pub(crate) fn main_contrasts(study: &Study, cells: &[CellSummary]) -> Vec<MainContrast> {
    let contrast = |from: &CellSummary, to: &CellSummary, quantity: Derived| MainContrast {
        expects: None,
        from: from.name.clone(),
        to: to.name.clone(),
        quantity,
        contrast: Contrast::new(from, to, quantity),
    };
    if !study.comparisons.is_empty() {
        let named = |name: &str| cells.iter().find(|cell| cell.name == name);
        let pairs = study.comparisons.iter();
        let pairs = pairs.filter_map(|pair| Some((named(&pair.from)?, named(&pair.to)?)));
        return pairs
            .map(|(from, to)| contrast(from, to, from.main))
            .collect();
    }
    let mut all = Vec::new();
    for one in &study.conclusions {
        let Some(change) = &one.change else { continue };
        for (first, to) in conclusions::groups(study, &one.matching, change, cells) {
            let quantity = conclusions::told(first, one.quantity);
            // A contrast of contrasts has its statement, a single one of its contrasts has none.
            let expects = one.expects.filter(|_| one.than.is_none());
            all.extend(to.iter().map(|(_, cell)| MainContrast {
                expects,
                ..contrast(first, cell, quantity)
            }));
        }
    }
    if all.is_empty() {
        for knob in effects::knobs(cells) {
            for group in effects::groups_by(knob, cells) {
                let (first, to) = (group[0], &group[1..]);
                all.extend(to.iter().map(|cell| contrast(first, cell, first.main)));
            }
        }
    }
    all
}

/// Indexes of cells in groups whose trials run next to each other because they are compared. Only
/// the cells in `of` are included.
///
/// A group has the pairs of a comparison; otherwise cells that differ only in knobs of the
/// conclusions; otherwise cells of one load.
pub fn families(study: &Study, of: impl IntoIterator<Item = usize>) -> Vec<Vec<usize>> {
    let is_concluded = |name: &str| {
        let mut changes = study
            .conclusions
            .iter()
            .filter_map(|one| one.change.as_ref());
        changes.any(|change| change.knob == name)
    };
    let concludes = study.conclusions.iter().any(|one| one.change.is_some());
    let sets_apart = |name: &str| match concludes {
        true => !is_concluded(name),
        false => effects::is_of_the_load(name),
    };
    let alike = |one: &Knobs, other: &Knobs| !differing(one, other).any(sets_apart);
    let is_family = |one: usize, other: usize| {
        let (one, other) = (&study.cells[one], &study.cells[other]);
        if study.comparisons.is_empty() {
            return alike(&one.knobs, &other.knobs);
        }
        let mut pairs = study.comparisons.iter();
        pairs.any(|pair| {
            [&one.name, &other.name] == [&pair.from, &pair.to]
                || [&other.name, &one.name] == [&pair.from, &pair.to]
        })
    };
    let mut families: Vec<Vec<usize>> = Vec::new();
    for cell in of {
        match families
            .iter_mut()
            .find(|family| is_family(family[0], cell))
        {
            Some(family) => family.push(cell),
            None => families.push(vec![cell]),
        }
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::estimate::Estimate;

    fn families_of(text: &str) -> Vec<Vec<String>> {
        let study = Study::parse("s", text, "s.toml").unwrap();
        let name = |index: usize| study.cells[index].name.clone();
        families(&study, 0..study.cells.len())
            .into_iter()
            .map(|family| family.into_iter().map(name).collect())
            .collect()
    }

    #[test]
    fn a_narrow_contrast_decides_only_if_it_decides_its_statement() {
        let text = "[vary]\nflows = [1, 2]\n[measure]\ncontrast_target = \"5%\"\n";
        let study = Study::parse("s", text, "s.toml").unwrap();
        let of = |median: f64, half: f64, expects| {
            let ratio = Estimate {
                median: 1.0 + median,
                lo: Some(1.0 + median - half),
                hi: Some(1.0 + median + half),
                n: 20,
            };
            MainContrast {
                from: "a".into(),
                to: "b".into(),
                quantity: Derived::total(tcpcost_study::Figure::ExactUsPerKib),
                contrast: Some(Contrast { ratio }),
                expects,
            }
        };
        let more = Some(Expects::More);
        assert!(of(0.01, 0.045, None).is_decided(&study));
        let open = of(0.01, 0.045, more);
        assert!(!open.is_decided(&study));
        let needed = open.repetitions_needed(&study).unwrap();
        assert!(
            (24..=28).contains(&needed),
            "{needed}: 4 % of width for 1 %"
        );
        assert!(of(0.01, 0.038, more).is_decided(&study), "no change");
        assert!(of(0.2, 0.03, more).is_decided(&study));
    }

    #[test]
    fn cells_that_are_held_against_each_other_run_next_to_each_other() {
        let vary = "[vary]\nnodelay = [\"on\", \"off\"]\nflows = [1, 2]\n";
        assert_eq!(families_of(vary).len(), 1, "one load");
        let concludes =
            format!("{vary}[[conclusion]]\ntext = \"t\"\nknob = \"flows\"\nfrom = 1\nto = [2]\n");
        let families = families_of(&concludes);
        assert_eq!(families.len(), 2, "{families:?}");
        assert!(families.iter().all(|family| family.len() == 2));
        let loads = families_of("[vary]\nrate = [\"1Gbit\", \"unlimited\"]\nflows = [1, 2]\n");
        assert_eq!(loads.len(), 2, "{loads:?}");
    }
}
