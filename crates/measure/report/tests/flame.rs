//! Flame graphs of a cell, and of the difference between two cells.

mod common;

use common::{all_measured, records};
use tcpcost_report::{FlameError, Summary, flame, flame_difference};
use tcpcost_study::Study;

fn summary(name: &str, text: &str) -> Summary {
    let study = Study::parse(name, text, "flame.toml").unwrap();
    Summary::new(&study, &records(&study, "netns", 6, all_measured))
}

fn profile() -> Summary {
    summary("profile", include_str!("data/profile.toml"))
}

/// Titles of frames, and their text in brackets.
fn frames(svg: &str) -> Vec<(&str, &str)> {
    let titles = svg.split("<title>").skip(1);
    titles
        .filter_map(|title| title.split_once("</title>")?.0.split_once(" ("))
        .collect()
}

/// Sum of the ps of all frames with this name.
fn ps(svg: &str, name: &str) -> f64 {
    let of = frames(svg).into_iter().filter(|(frame, _)| *frame == name);
    of.map(|(_, told)| {
        let (ps, _) = told.split_once(" ps of CPU per KiB").unwrap();
        ps.replace(',', "").parse::<f64>().unwrap()
    })
    .sum()
}

#[test]
fn a_flame_graph_adds_up_to_the_cost_of_its_cell_with_contexts_apart() {
    let summary = profile();
    let cell = &summary.cells[0];
    let svg = flame(cell).unwrap();
    let us = cell.main_estimate().unwrap().median;
    let all = ps(&svg, "all") / 1e6;
    assert!((all / us - 1.0).abs() < 0.05, "{all} {us}");
    assert_eq!(ps(&svg, "all"), ps(&svg, "client") + ps(&svg, "server"));
    // A system call does not include the softirq that ran on top of it.
    assert!(ps(&svg, "softirq") > 0.0);
    assert!(ps(&svg, "ksys_write") + ps(&svg, "softirq") < ps(&svg, "all"));
    assert!(
        !frames(&svg).iter().any(|(name, _)| *name == "ext4_write"),
        "others' work"
    );
    assert_eq!(
        svg,
        flame(cell).unwrap(),
        "the same picture from the same records"
    );
}

#[test]
fn a_difference_is_in_cost_and_says_of_what() {
    let summary = profile();
    let [first, cell] = &summary.cells[..] else {
        panic!("two cells");
    };
    let svg = flame_difference(first, cell).unwrap();
    assert_eq!(
        ps(&svg, "tcp_write_xmit"),
        ps(&flame(cell).unwrap(), "tcp_write_xmit")
    );
    let told = frames(&svg);
    let of = |name| told.iter().find(|(frame, _)| *frame == name).unwrap().1;
    // Difference of each function by itself: its callees are coloured separately.
    assert!(of("kmalloc").contains("; +"), "{told:?}");
    assert!(of("tcp_write_xmit").contains("; 0.00%"), "{told:?}");
    assert!(
        svg.contains("flows=1000 (") && svg.contains("against flows=100 ("),
        "{svg:.900}"
    );
}

#[test]
fn without_call_chains_or_of_different_things_there_is_no_picture() {
    let plain = summary("plain", "[workload]\nkind = \"stream\"");
    assert_eq!(flame(&plain.cells[0]), None);
    let profiled = profile();
    let error = flame_difference(&profiled.cells[0], &plain.cells[0]).unwrap_err();
    assert_eq!(error, FlameError::NoCallChains("plain".to_string()));
    let rr = "[workload]\nkind = \"rr\"\n[measure]\nmeters = [\"proc\", \"profile\"]";
    let error = flame_difference(&profiled.cells[0], &summary("rr", rr).cells[0]).unwrap_err();
    assert!(
        error.to_string().contains("ps of CPU per transaction"),
        "{error}"
    );
}
