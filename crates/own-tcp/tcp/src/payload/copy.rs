//! Copy between an application's memory and slabs.

/// Copies `from` into `to`. Both must have the same length.
#[inline]
pub(crate) fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() <= STEP_BYTES {
        to.copy_from_slice(from);
        return;
    }
    in_steps(to, from);
}

// Not inlined, because `bench/instructions.py` excludes copies by function name.
#[inline(never)]
fn in_steps(to: &mut [u8], from: &[u8]) {
    // The compiler would turn chunks of one common length into a single copy.
    for (to, from) in to.chunks_mut(STEP_BYTES).zip(from.chunks(STEP_BYTES)) {
        to.copy_from_slice(from);
    }
}

/// Largest copy in one step. Above 2 KiB glibc uses `rep movsb`, which takes 10 % longer (Zen 4)
/// unless source and destination have the same offset in their cache lines; an application's memory
/// has any offset.
const STEP_BYTES: usize = 2048;
