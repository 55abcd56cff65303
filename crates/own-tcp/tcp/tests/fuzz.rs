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
        let bytes = tcpcost_testbed::Random::new(seed).bytes();
        if let Err(panic) = std::panic::catch_unwind(|| target(&bytes)) {
            eprintln!("{name} failed with SEED={seed} ROUNDS=1");
            std::panic::resume_unwind(panic);
        }
    }
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
