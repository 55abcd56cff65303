//! Fuzz targets over their corpus. `cargo +nightly fuzz run NAME` in `crates/trace` extends the
//! corpus.

#[path = "../fuzz/src/lib.rs"]
mod targets;

fn check(name: &str, target: fn(&[u8])) {
    let directory = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut inputs = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let input = std::fs::read(&path).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| target(&input)) {
            eprintln!("{name} failed with {}", path.display());
            std::panic::resume_unwind(panic);
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{name} has no corpus");
}

#[test]
fn any_capture_is_read_to_where_it_breaks() {
    for form in ["pcap", "pcapng", "text", "compressed"] {
        check(form, targets::capture);
    }
}

#[test]
fn any_frame_is_a_segment_or_counted() {
    check("packets", targets::packets);
}

#[test]
fn any_segments_give_counts_that_can_be() {
    check("segments", targets::segments);
}

#[test]
fn any_tunnel_is_a_segment_or_counted() {
    check("tunnels", targets::tunnels);
}

#[test]
fn any_two_captures_can_be_held_against_each_other() {
    check("pair", targets::pair);
}
