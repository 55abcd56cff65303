//! Copies between an application's memory and slabs.

/// Copies `from` into `to`, which is as long.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() <= STEP_BYTES {
        to.copy_from_slice(from);
        return;
    }
    in_steps(to, from);
}

// Not in line: who counts instructions (`bench/instructions.py`) leaves out copies by the names of functions.
#[inline(never)]
fn in_steps(to: &mut [u8], from: &[u8]) {
    // Of chunks that all have the same length the compiler would make one copy again.
    for (to, from) in to.chunks_mut(STEP_BYTES).zip(from.chunks(STEP_BYTES)) {
        to.copy_from_slice(from);
    }
}

/// Above 2 KiB glibc copies by `rep movsb`, which takes a tenth longer (Zen 4) unless both lie alike in their cache
/// lines; an application's memory lies anywhere.
const STEP_BYTES: usize = 2048;
