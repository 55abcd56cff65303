//! The fuzz targets over their corpus and over random bytes: `ROUNDS=100000 cargo test --test fuzz` for more of the latter.
//! What fails names its seed.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use tcpcost_testbed::Random;

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

/// An input with some bytes changed, at random; each third seed has nothing but random bytes.
fn changed(input: &mut [u8], seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    if seed % 3 == 2 {
        return random.bytes();
    }
    let mut bytes = input.to_vec();
    for _ in 0..1 + random.below(8) {
        let at = random.below(bytes.len());
        if let Some(byte) = bytes.get_mut(at) {
            *byte = random.word() as u8;
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
