//! Main quantity of a cell if the study does not set one.

mod common;

use common::{all_measured, records};
use tcpcost_report::{Summary, TextStyle, text as text_of_style};
use tcpcost_study::{CountOwner, MeterName, Quantity, Reading, Study};

#[test]
fn exact_cpu_is_the_main_quantity_where_every_trial_has_it() {
    let study = Study::parse("s", "[workload]\nkind = \"stream\"\n", "s.toml").unwrap();
    let mut found = records(&study, "netns", 6, all_measured);
    let main = |found: &[_]| Summary::new(&study, found).cells[0].main.to_string();
    assert_eq!(main(&found), "cpu_us_per_kib");
    for record in &mut found {
        for end in record.hosts.values_mut() {
            let counts = Quantity::EXACT_CONTEXTS
                .iter()
                .map(|&of| (of, 50_000_000))
                .collect();
            end.readings.push(Reading {
                meter: MeterName::Exact,
                whose: CountOwner::Cpu(end.cpus[0]),
                duration_ns: 800_000_000,
                counts,
            });
        }
    }
    assert_eq!(main(&found), "exact_cpu_us_per_kib");
    // One trial without the meter `exact`: a mixture of methods cannot be compared.
    for end in found[2].hosts.values_mut() {
        end.readings
            .retain(|reading| reading.meter != MeterName::Exact);
    }
    assert_eq!(main(&found), "cpu_us_per_kib");
}

#[test]
fn the_only_cell_is_told_by_what_it_is_judged_by() {
    let told = |text: &str| {
        let study = Study::parse("s", text, "s.toml").unwrap();
        let found = records(&study, "netns", 6, all_measured);
        let shown = text_of_style(&Summary::new(&study, &found), TextStyle::default());
        let words: Vec<&str> = shown.split_whitespace().collect();
        words.join(" ")
    };
    let shown = told("[workload]\nkind = \"stream\"\n");
    assert!(shown.contains(" Gbit/s for "), "{shown}");
    assert!(shown.contains(" µs of CPU per KiB. "), "{shown}");
    let shown = told("[workload]\nkind = \"rr\"\n");
    assert!(
        shown.contains(" µs of CPU per transaction; half of the responses took "),
        "{shown}"
    );
    // A quantity that is not CPU time is not called so, and the rate is not repeated.
    let shown = told("[measure]\nquantity = \"tsc_cycles_per_kib\"\n");
    assert!(shown.contains(" Gbit/s; TSC cycles per KiB"), "{shown}");
    let shown = told("[measure]\nquantity = \"goodput_bits_per_s\"\n");
    assert!(!shown.contains("of CPU per"), "{shown}");
}
