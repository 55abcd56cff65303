//! The fuzz targets over their corpus and over random bytes: `ROUNDS=100000 cargo test --test fuzz` for more of the latter.
//! What fails names its seed.

#[path = "../fuzz/src/lib.rs"]
mod targets;

fn check(name: &str, target: fn(&[u8])) {
    let directory = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut inputs: Vec<Vec<u8>> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(!inputs.is_empty(), "{name} has no corpus");
    let number = |variable: &str, or: u64| {
        let told = std::env::var(variable).ok();
        told.and_then(|told| told.parse().ok()).unwrap_or(or)
    };
    let (first, rounds) = (number("SEED", 0), number("ROUNDS", 100));
    for input in inputs.clone() {
        target(&input);
    }
    for seed in first..first + rounds {
        let known = usize::try_from(seed).unwrap() % inputs.len();
        let bytes = changed(&mut inputs[known], seed);
        if let Err(panic) = std::panic::catch_unwind(|| target(&bytes)) {
            eprintln!("{name} failed with SEED={seed} ROUNDS=1");
            std::panic::resume_unwind(panic);
        }
    }
}

/// An input with some bytes changed, by SplitMix64; each third seed has nothing but random bytes.
fn changed(input: &mut [u8], seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    if seed % 3 == 2 {
        let len = next() % 250;
        return (0..len).flat_map(|_| next().to_le_bytes()).collect();
    }
    let mut bytes = input.to_vec();
    for _ in 0..1 + next() % 8 {
        let at = usize::try_from(next()).unwrap() % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = next() as u8;
        }
    }
    bytes
}

#[test]
fn any_bytes_are_a_message() {
    check("message", targets::message);
}

#[test]
fn any_bytes_leave_a_netserver_standing() {
    check("session", targets::session);
}
