//! Effects of knobs, from synthetic records.

mod common;

use common::{all_measured, records};
use tcpcost_report::{
    FindingKind, Incomparable, ReasonBy, Summary, TextStyle, json, markdown, text,
};
use tcpcost_study::{Figure, HostName, Quantity, Record, Study};

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
fn a_cell_that_is_measured_twice_is_no_effect_of_a_knob() {
    let summary = summary(
        "[[cells]]\nname = \"a\"\n[[cells]]\nname = \"b\"\n[[cells]]\nname = \"c\"\nwrite_size = \"1KiB\"\n\
         [[cells]]\nname = \"d\"\nflows = 3\n[[cells]]\nname = \"e\"\nflows = 3\n",
    );
    let told: Vec<(&str, usize)> = summary
        .effects
        .iter()
        .flat_map(|effect| effect.at.iter().map(|at| (&effect.knob[..], at.values)))
        .collect();
    assert_eq!(told, [("flows", 2), ("write_size", 2)]);
    for at in summary.effects.iter().flat_map(|effect| &effect.at) {
        assert_ne!(at.from, at.to);
    }
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
    // Bytes per call grow as the cost falls; all other counts fall with it.
    let has_grown = moved.to > moved.from;
    assert_eq!(has_grown, bytes.contains(&moved.quantity.kind), "{moved:?}");
}

#[test]
fn a_cause_with_half_of_a_change_by_prices_is_its_reason() {
    let study = "[vary]\nwrite_size = [\"1KiB\", \"64KiB\"]\n\
        [[conclusion]]\ntext = \"Larger writes\"\nknob = \"write_size\"\nfrom = \"1KiB\"\nto = [\"64KiB\"]\n";
    let study = Study::parse("s", study, "s.toml").unwrap();
    let records = records(&study, "netns", 6, all_measured);
    let main = |summary: &Summary, cell: usize| summary.cells[cell].main_estimate().unwrap().median;
    let plain = Summary::new(&study, &records);
    let saved = main(&plain, 0) - main(&plain, 1);
    assert!(saved > 0.0, "{saved}");
    // Calls have 70 % of the change, bytes have none; a third of the calls' cost is the server's.
    let priced = |share: f64| {
        let costs = move |of_cell: &[&Record]| {
            let is_small = of_cell[0].cell.contains("1KiB");
            let calls = if is_small { saved * share } else { 0.0 };
            let of = |part: f64| vec![("send calls", calls * part), ("bytes copied in", 0.1)];
            let hosts = [
                (HostName::CLIENT, of(2.0 / 3.0)),
                (HostName::SERVER, of(1.0 / 3.0)),
            ];
            hosts.into_iter().collect()
        };
        Summary::priced(&study, &records, &costs)
    };
    let found = priced(0.7);
    let FindingKind::Change { steps, .. } = &found.findings[0].kind else {
        panic!("{:?}", found.findings);
    };
    let reason = steps[0].because.unwrap();
    assert_eq!((reason.what, reason.by), ("send calls", ReasonBy::Prices));
    assert!((reason.share - 0.7).abs() < 1e-9, "{reason:?}");
    let told = text(&found, TextStyle::default()).replace("\n  ", " ");
    assert!(
        told.contains(", because of send calls: 70 % of the difference by prices"),
        "{told}"
    );
    let document: serde_json::Value = serde_json::from_str(&json(&found)).unwrap();
    let because = &document["findings"][0]["steps"][0]["because"];
    assert_eq!(because["cause"], "send calls", "{because}");
    let FindingKind::Change { steps, .. } = &priced(0.4).findings[0].kind else {
        panic!("a change");
    };
    assert_eq!(steps[0].because, None, "less than half");
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
    assert_eq!(
        summary.main_contrasts.len(),
        2,
        "{:?}",
        summary.main_contrasts
    );
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
    // The second cell moved nine tenths of the first cell's bytes.
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

/// Transactions of 1 B and of 64 KiB, measured by `quantity`.
fn of_two_sizes(quantity: &str) -> Summary {
    summary(&format!(
        "[workload]\nkind = \"rr\"\n[vary]\nresponse_size = [\"1B\", \"64KiB\"]\nflows = [1, 10]\n\
         [measure]\nquantity = \"{quantity}\"\n\
         [[conclusion]]\ntext = \"Longer responses\"\nknob = \"response_size\"\nfrom = \"1B\"\nto = [\"64KiB\"]\n\
         [[conclusion]]\ntext = \"By flows\"\nknob = \"response_size\"\nfrom = \"1B\"\nto = [\"64KiB\"]\nover = \"flows\"\n",
    ))
}

#[test]
fn transactions_of_other_sizes_are_not_related_in_tables_and_conclusions() {
    let summary = of_two_sizes("cpu_us_per_transaction");
    let groups = summary.groups();
    let named = |name: &str| {
        let place = summary.cells.iter().position(|cell| cell.name == name);
        place.unwrap_or_else(|| panic!("no {name}"))
    };
    let of_ten = &summary.cells[named("flows=10 response_size=1B")];
    let place = named("flows=1 response_size=64KiB");
    let longer = &summary.cells[place];
    assert!(groups[0].ratio_to_first(of_ten).is_some());
    assert_eq!(groups[0].ratio_to_first(longer), None);
    let reason = groups[0].incomparable(longer);
    assert_eq!(reason, Some(Incomparable::Transactions));
    let plain = text(&summary, TextStyle::default());
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "response_size 64KiB instead of 1B is not comparable: their transactions carry different numbers of bytes";
    assert!(words.contains(said), "{plain}");
    let crossing =
        "by flows, is not comparable: their transactions carry different numbers of bytes";
    assert!(words.contains(crossing), "{plain}");
    assert!(markdown(std::slice::from_ref(&summary)).contains("– (other sizes)"));
    let document: serde_json::Value = serde_json::from_str(&json(&summary)).unwrap();
    assert_eq!(
        document["cells"][place]["ratio_to_first"],
        serde_json::Value::Null
    );
    let cell = format!("/cells/{place}");
    for place in [&cell, "/findings/0/steps/0", "/findings/2/crossings/0"] {
        let reason = document.pointer(place).unwrap()["not_comparable"].as_str();
        assert!(reason.unwrap().contains("numbers of bytes"), "{place}");
    }
}

#[test]
fn a_quantity_per_kib_is_related_whatever_the_transactions_carry() {
    let summary = of_two_sizes("cpu_us_per_kib");
    let groups = summary.groups();
    let cells = &groups[0].cells;
    assert!(
        cells[1..]
            .iter()
            .all(|cell| groups[0].ratio_to_first(cell).is_some())
    );
    assert!(!text(&summary, TextStyle::default()).contains("comparable"));
}
