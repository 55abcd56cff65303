//! Guess of the name that a misspelt name was meant to be.

/// Known name nearest to a misspelt one. `None` if none is near enough: a third of the letters may
/// be wrong, or the name may be cut short (`congestion`).
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.collect();
    let most = (name.chars().count() / 3).max(1);
    let misspelt = known
        .iter()
        .map(|&candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, candidate)| candidate);
    let is_cut = |candidate: &&str| name.len() >= 4 && candidate.starts_with(name);
    misspelt.or_else(|| known.into_iter().find(is_cut))
}
