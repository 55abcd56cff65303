//! What each knob does that a study varies, of records made for it.

mod common;

use common::{all_measured, records};
use tcpcost_report::{FindingKind, Summary, TextStyle, text};
use tcpcost_study::{Figure, Quantity, Record, Study};

fn summary(text: &str) -> Summary {
    let study = Study::parse("s", text, "s.toml").unwrap();
    Summary::new(&study, &records(&study, "netns", 6, all_measured))
}

#[test]
fn each_knob_is_told_at_each_setting_of_the_others_and_those_of_the_load_are_not() {
    let summary = summary(
        "[vary]\nwrite_size = [\"1KiB\", \"64KiB\"]\nflows = [1, 10]\nrate = [\"1Gbit\", \"unlimited\"]\n",
    );
    let told: Vec<(&str, usize)> = summary
        .effects
        .iter()
        .map(|effect| (&effect.knob[..], effect.at.len()))
        .collect();
    assert_eq!(told, [("flows", 4), ("write_size", 4)]);
    let settings: Vec<&str> = summary.effects[1]
        .at
        .iter()
        .map(|at| &at.setting[..])
        .collect();
    let expected = [
        "at 1Gbit, flows 1",
        "CPU-bound, flows 1",
        "at 1Gbit, flows 10",
        "CPU-bound, flows 10",
    ];
    assert_eq!(
        settings.iter().collect::<std::collections::BTreeSet<_>>(),
        expected.iter().collect()
    );
}

#[test]
fn a_name_that_tells_the_knob_tells_no_setting() {
    let summary = summary(
        "[[cells]]\nname = \"small\"\nwrite_size = \"1KiB\"\n[[cells]]\nname = \"large\"\nwrite_size = \"64KiB\"\n\
         [vary]\nrate = [\"1Gbit\", \"unlimited\"]\n",
    );
    let settings: Vec<&str> = summary.effects[0]
        .at
        .iter()
        .map(|at| &at.setting[..])
        .collect();
    assert_eq!(settings, ["at 1Gbit", "CPU-bound"]);
}

#[test]
fn a_count_that_moved_with_the_cost_moved_the_same_way() {
    let summary = summary("[vary]\nwrite_size = [\"1KiB\", \"64KiB\"]\n");
    let at = &summary.effects[0].at[0];
    assert!(at.percent.hi.unwrap() < 0.0, "{at:?}");
    let moved = at.with.unwrap();
    let bytes = [Figure::BytesPerSend, Figure::BytesPerReceive];
    // Bytes per call grow where the cost falls; all other counts fall.
    let has_grown = moved.to > moved.from;
    assert_eq!(has_grown, bytes.contains(&moved.quantity.kind), "{moved:?}");
}

#[test]
fn cells_that_differ_in_two_knobs_are_not_held_against_each_other() {
    let summary = summary(
        "[[cells]]\nname = \"a\"\nflows = 1\n[[cells]]\nname = \"b\"\nflows = 2\nwrite_size = \"1KiB\"\n",
    );
    assert!(summary.effects.is_empty(), "{:?}", summary.effects);
}

#[test]
fn a_change_is_followed_over_another_knob_in_the_order_of_its_values() {
    let summary = summary(
        "[vary]\nflows = [1, 10]\nwrite_size = [\"64KiB\", \"1KiB\", \"16KiB\"]\nrate = [\"1Gbit\", \"unlimited\"]\n\
         [[conclusion]]\ntext = \"More flows\"\nknob = \"flows\"\nfrom = 1\nto = [10]\nover = \"write_size\"\n",
    );
    let found: Vec<_> = summary
        .findings
        .iter()
        .map(|found| match &found.kind {
            FindingKind::Crossover { at, crossings, .. } => {
                let places = crossings.iter().map(|one| one.at.to_string());
                assert!(crossings.iter().all(|one| one.percent.is_some()));
                (at.as_str(), places.collect::<Vec<_>>().join(" "))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let sizes = "1KiB 16KiB 64KiB".to_string();
    assert_eq!(
        found,
        [("rate=1Gbit", sizes.clone()), ("rate=unlimited", sizes)]
    );
    let text = text(&summary, TextStyle::default());
    assert!(
        text.contains("More flows: rate=1Gbit: flows 10 instead of 1, by write_size, is cheaper"),
        "{text}"
    );
    assert!(
        summary.effects.iter().all(|effect| effect.knob != "flows"),
        "it is told already"
    );
}

#[test]
fn cells_of_other_work_are_not_compared() {
    let sizes = |sizes: &str| {
        summary(&format!(
            "[vary]\nresponse_size = {sizes}\nflows = [1, 10]\n[workload]\nkind = \"rr\"\n"
        ))
    };
    let summary = sizes("[\"1B\", \"64KiB\"]");
    let knobs: Vec<&str> = summary.effects.iter().map(|one| &one.knob[..]).collect();
    assert_eq!(knobs, ["flows"]);
    assert_eq!(summary.headlines.len(), 2, "{:?}", summary.headlines);
    let settings: Vec<&str> = summary.effects[0]
        .at
        .iter()
        .map(|at| &at.setting[..])
        .collect();
    let expected = [
        "CPU-bound, response_size 1B",
        "CPU-bound, response_size 64KiB",
    ];
    assert_eq!(settings, expected);
}

#[test]
fn cells_at_a_fixed_rate_are_compared_only_if_they_reached_it_alike() {
    let study = "[vary]\nflows = [1, 10]\n[workload]\nrate = \"1Gbit\"\n";
    let study = Study::parse("s", study, "s.toml").unwrap();
    let mut found = records(&study, "netns", 6, all_measured);
    let told = |found: &[Record]| {
        let summary = Summary::new(&study, found);
        let style = TextStyle {
            width: 1000,
            ..TextStyle::default()
        };
        (summary.effects.len(), text(&summary, style))
    };
    let note = "Not compared, because they did unequal work at a fixed rate: \"flows=1\" and \"flows=10\".";
    let (effects, shown) = told(&found);
    assert_eq!((effects, shown.contains(note)), (1, false), "{shown}");
    // The second moved nine tenths of what the first did.
    let second = found.iter_mut().filter(|record| record.cell == "flows=10");
    for reading in second.flat_map(|record| {
        record
            .hosts
            .values_mut()
            .flat_map(|host| &mut host.readings)
    }) {
        if let Some(bytes) = reading.counts.get_mut(&Quantity::PayloadBytesReceived) {
            *bytes = *bytes / 10 * 9;
        }
    }
    let (effects, shown) = told(&found);
    assert_eq!((effects, shown.contains(note)), (0, true), "{shown}");
}

#[test]
fn no_line_is_wider_than_asked() {
    let summary = summary("[vary]\nwrite_size = [\"1KiB\", \"64KiB\"]\nflows = [1, 10]\n");
    for width in [60, 80, 100] {
        let text = text(
            &summary,
            TextStyle {
                details: true,
                width,
                ..TextStyle::default()
            },
        );
        let widest = text
            .lines()
            .max_by_key(|line| line.chars().count())
            .unwrap();
        assert!(widest.chars().count() <= width, "{width}: {widest}");
    }
}
