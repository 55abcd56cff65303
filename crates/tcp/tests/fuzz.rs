//! Fuzz targets over their corpus and over random bytes. `ROUNDS=100000 cargo test --test fuzz`
//! runs more random rounds. A failure names its seed.

#[path = "../fuzz/src/lib.rs"]
mod targets;

fn check(name: &str, target: fn(&[u8])) {
    let directory = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(directory).unwrap() {
        target(&std::fs::read(entry.unwrap().path()).unwrap());
    }
    let rounds = std::env::var("ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(300);
    let first = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0);
    for seed in first..first + rounds {
        let bytes = random_bytes(seed);
        if let Err(panic) = std::panic::catch_unwind(|| target(&bytes)) {
            eprintln!("{name} failed with SEED={seed} ROUNDS=1");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns up to 2000 bytes by SplitMix64.
fn random_bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let len = next() % 250;
    (0..len).flat_map(|_| next().to_le_bytes()).collect()
}

#[test]
fn any_bytes_can_be_parsed_or_dropped() {
    check("wire", targets::wire);
}

#[test]
fn any_segments_leave_the_invariants_standing() {
    check("segments", targets::segments);
}

#[test]
fn over_any_wire_everything_arrives() {
    check("pair", targets::pair);
}
