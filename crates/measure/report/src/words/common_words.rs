//! Words that the names of several cells share, which are told once.

/// Number of bytes of the ending that all names share, in whole words. `from`: bytes of their common beginning.
pub(crate) fn ending(names: &[&str], from: usize) -> usize {
    let Some((first, others)) = names.split_first().filter(|(_, others)| !others.is_empty()) else {
        return 0;
    };
    let alike = |at: &usize| {
        others
            .iter()
            .all(|name| name[from..].ends_with(&first[*at..]))
    };
    let words = first[from..].match_indices(' ').map(|(at, _)| from + at);
    // Each name must keep some text.
    let longer = |at: &usize| {
        names
            .iter()
            .all(|name| name.len() > from + first.len() - at)
    };
    words
        .filter(longer)
        .find(alike)
        .map_or(0, |at| first.len() - at)
}

/// Number of bytes of the beginning that all names share: up to a space or an equals sign.
pub(crate) fn beginning(names: &[&str]) -> usize {
    let Some((first, others)) = names.split_first() else {
        return 0;
    };
    if others.is_empty() {
        return 0;
    }
    let alike = |end: &usize| {
        others
            .iter()
            .all(|name| name.get(..*end) == first.get(..*end))
    };
    let words = first.match_indices([' ', '=']).map(|(at, _)| at + 1);
    words.take_while(alike).last().unwrap_or(0)
}
