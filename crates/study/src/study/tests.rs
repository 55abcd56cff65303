//! Study files, right and wrong.

use super::*;

fn error(text: &str) -> String {
    Study::parse("s", text, "s.toml").unwrap_err().to_string()
}

#[test]
fn every_file_of_the_studies_folder_is_shipped() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(built_in(name).is_some(), "{name} is in no list");
    }
}

#[test]
fn shipped_studies_parse_and_say_what_they_ask() {
    for (name, text) in BUILT_IN {
        let study = Study::parse(name, text, name).unwrap_or_else(|error| panic!("{error}"));
        assert!(study.title.starts_with(name), "{name}: {}", study.title);
    }
}

#[test]
fn vary_makes_every_combination_of_every_explicit_cell() {
    let study = Study::parse(
        "s",
        "[vary]\nflows = [1, 2]\n\"client.tso\" = [\"on\", \"off\"]\n\
         [[cells]]\nname = \"slow\"\nrate = \"1Gbit\"\n[[cells]]\nname = \"fast\"\n",
        "s.toml",
    )
    .unwrap();
    let names: Vec<&str> = study.cells.iter().map(|cell| cell.name.as_str()).collect();
    assert_eq!(names.len(), 8);
    assert_eq!(names[0], "slow client.tso=on flows=1");
    assert_eq!(study.vary, ["rate", "flows", "client.tso"]);
}

#[test]
fn an_error_has_line_key_expectation_and_the_nearest_name() {
    let cases = [
        (
            "[workload]\nkind = \"stream\"\nwrite_sise = \"64KiB\"\n",
            "s.toml:3: workload.write_sise: no such knob here; nearest is \"write_size\"",
        ),
        (
            "[workload]\nwrite_size = \"64ms\"\n",
            "s.toml:2: workload.write_size: expected a size such as \"64KiB\" (B, KiB, MiB, GiB), 1B to 64MiB",
        ),
        (
            "[workload]\nkind = \"strem\"\n",
            "s.toml:2: workload.kind: expected one of \"stream\", \"maerts\", \"bidirectional\", \"rr\", \"crr\"",
        ),
        (
            "[wrkload]\n",
            "s.toml:1: wrkload: no such key at the top; nearest is \"workload\"",
        ),
        (
            "\n[vary]\nflowz = [1]\n",
            "s.toml:3: vary.flowz: no such knob; nearest is \"flows\"",
        ),
        (
            "[vary]\nflows = [1, 0]\n",
            "s.toml:2: vary.flows: expected a whole number from 1 to 30000",
        ),
        (
            "[measure]\nduration = \"2KiB\"\n",
            "s.toml:2: measure.duration: expected a time such as \"2s\" (ns, us, ms, s, min), more than 0",
        ),
        (
            "[measure]\nmeters = [\"prok\"]\n",
            "s.toml:2: measure.meters: no such meter \"prok\"; nearest is \"proc\"",
        ),
        (
            "[measure]\nprofile_hz = 0\n",
            "s.toml:2: measure.profile_hz: expected a whole number from 1 to 10000",
        ),
        (
            "[measure]\nby_connection = true\n",
            "s.toml:2: measure.by_connection: needs the meter \"segments\"",
        ),
        (
            "[measure]\nquantity = \"goodput\"\n",
            "s.toml:2: measure.quantity: expected a quantity: no such quantity; see docs/quantities.md",
        ),
        (
            "[workload]\nmtu = 1500\n",
            "s.toml:2: workload.mtu: it belongs in [bed]",
        ),
        (
            "[bed.client]\nsteering = \"on\"\n",
            "s.toml:2: bed.client.steering: both ends share it: set it in [bed]",
        ),
        (
            "[published_functions]\nsource = \"x\"\ncell = \"y\"\n",
            "s.toml:3: published_functions.cell: expected the name of a cell",
        ),
        (
            "[published]\nquantity = \"cpu_us_per_kib\"\n",
            "s.toml:2: published.source: is missing",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
    assert!(error("a = 1\na = 2\n").starts_with("s.toml:2: duplicate key"));
    assert!(error("[workload\n").starts_with("s.toml:1: "));
    assert!(error("[workload]\nkind = \"rr\"\nrate = \"1Gbit\"\n").contains("transaction_rate"));
}

#[test]
fn one_end_and_sysctls_are_set_in_their_own_tables() {
    let text = "[bed]\ntso = true\n[bed.server]\nquickack = \"on\"\n[bed.client.sysctl]\n\"net.ipv4.tcp_autocorking\" = 0\n";
    let study = Study::parse("s", text, "s.toml").unwrap();
    assert_eq!(
        study.cells[0].knobs.to_string(),
        "client.sysctl.net.ipv4.tcp_autocorking=0 server.quickack=on tso=on"
    );
}

#[test]
fn a_varied_knob_cannot_be_set_from_outside() {
    let mut study = Study::parse("s", "[vary]\nflows = [1, 2]\n", "s.toml").unwrap();
    assert!(study.set("flows", "3").is_err());
    study.set("write_size", "4KiB").unwrap();
    assert!(
        study
            .cells
            .iter()
            .all(|cell| cell.knobs.bytes("write_size") == Some(4096))
    );
}

#[test]
fn meter_cost_adds_cells_with_one_standing_meter_or_none() {
    let parse = |measure: &str| Study::parse("s", measure, "s.toml").unwrap();
    let text = "[measure]\nmeters = [\"proc\", \"profile\", \"exact\"]\nmeter_cost = true\n";
    let mut study = parse(text);
    let told: Vec<(&str, Vec<String>)> = study
        .cells
        .iter()
        .map(|cell| (cell.name.as_str(), study.meters(cell)))
        .collect();
    let meters = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        told,
        [
            ("s", meters(&["proc", "profile", "exact"])),
            ("s, no standing meter", meters(&["proc"])),
            ("s, exact alone", meters(&["proc", "exact"])),
            ("s, profile alone", meters(&["proc", "profile"])),
        ]
    );
    study.ask_meter_cost();
    assert_eq!(study.cells.len(), 4, "once is enough");
    // The one meter's cell is the cell itself; where nothing stands there is nothing to ask.
    let cells = |measure: &str| parse(&text.replace(", \"exact\"]", measure)).cells.len();
    assert_eq!((cells("]"), cells(", \"exact\"]")), (2, 4));
    assert_eq!(parse("[measure]\nmeter_cost = true\n").cells.len(), 1);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(\\[[a-z\\[\\].]{0,12}\\]\n|[a-z_]{1,10} = [\"0-9a-zA-Z\\[\\]{},. =]{0,20}\n){0,8}") {
        let _ = Study::parse("s", &text, "s.toml");
    }
}
