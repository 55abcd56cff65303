//! Tests of right and wrong study files.

use super::*;
use tcpcost_counts::MeterName;

fn error(text: &str) -> String {
    Study::parse("s", text, "s.toml").unwrap_err().to_string()
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
fn a_list_in_a_cell_makes_a_cell_of_each_value() {
    let names = |text: &str| {
        let study = Study::parse("s", text, "s.toml").unwrap();
        let names = study.cells.into_iter().map(|cell| cell.name);
        (names.collect::<Vec<_>>(), study.vary)
    };
    let text = "[[cells]]\nname = \"few\"\nflows = [1, 2, 3]\n[[cells]]\nname = \"all\"\n\
         [[cells]]\nname = \"one\"\nflows = 9\n[vary]\nflows = [1, 8]\n";
    let (found, vary) = names(text);
    assert_eq!(
        found,
        [
            "few flows=1",
            "few flows=2",
            "few flows=3",
            "all flows=1",
            "all flows=8",
            "one"
        ]
    );
    assert_eq!(vary, ["flows"]);
    // Other knobs of `[vary]` are combined with the cell's list.
    let (found, _) = names("[[cells]]\nflows = [1, 2]\n[vary]\nnodelay = [\"on\", \"off\"]\n");
    assert_eq!(
        found,
        [
            "flows=1 nodelay=on",
            "flows=2 nodelay=on",
            "flows=1 nodelay=off",
            "flows=2 nodelay=off"
        ]
    );
}

#[test]
fn a_list_that_is_one_value_makes_one_cell() {
    let text = "[[cells]]\nname = \"a\"\nserver_cpus = [0, 1]\nworkload = \"program\"\n\
         program = [{ send = \"1B\" }, { receive = \"1B\" }]\n";
    let study = Study::parse("s", text, "s.toml").unwrap();
    assert_eq!(study.cells.len(), 1);
    assert_eq!(study.cells[0].name, "a");
    let cpus = study.cells[0].knobs.get("server.cpus").unwrap();
    assert_eq!(cpus.to_string(), "0,1");
}

#[test]
fn a_wrong_list_in_a_cell_is_told() {
    let many = (1..=101).map(|n| n.to_string()).collect::<Vec<_>>();
    let many = many.join(", ");
    let cases = [
        (
            "[[cells]]\nflows = [1,\n0]\n".to_string(),
            "s.toml:3: cells.flows: expected a whole number from 1 to 30000",
        ),
        (
            "[[cells]]\nflows = []\n".to_string(),
            "s.toml:2: cells.flows: expected at least one value",
        ),
        (
            "[[cells]]\nflowz = [1, 2]\n".to_string(),
            "s.toml:2: cells.flowz: no such knob; nearest is \"flows\"",
        ),
        (
            "[[cells]]\nname = \"a\"\nflows = [1, 1]\n".to_string(),
            "s.toml:1: cells: two cells are called \"a flows=1\"; give each a name",
        ),
        (
            "[[cells]]\nflows = 2\n[vary]\nflows = [1, 2]\n".to_string(),
            "s.toml:4: vary.flows: each of [[cells]] sets it, so that it varies in no cell",
        ),
        (
            format!("[[cells]]\nflows = [{many}]\nin_flight = [{many}]\n"),
            "s.toml:3: cells.in_flight: with this there are 10201 cells, more than 10000: take values off, or make several studies of it",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(&text), expected);
    }
}

#[test]
fn an_error_has_line_key_expectation_and_the_nearest_name() {
    let cases = [
        (
            "[workload]\nkind = \"stream\"\nwrite_sise = \"64KiB\"\n",
            "s.toml:3: workload.write_sise: no such knob here; nearest is \"write_size\"",
        ),
        (
            "[workload]\nworkload = \"rr\"\n",
            "s.toml:2: workload.workload: no such knob here; use kind",
        ),
        (
            "[workload]\nwrite_size = \"64ms\"\n",
            "s.toml:2: workload.write_size: expected a size such as \"64KiB\" (B, KiB, MiB, GiB), 1B to 64MiB",
        ),
        (
            "[workload]\nkind = \"strem\"\n",
            "s.toml:2: workload.kind: expected one of \"stream\", \"maerts\", \"bidirectional\", \"rr\", \"crr\", \"program\"",
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
            "s.toml:2: measure.quantity: expected a quantity: no such quantity; nearest is \"goodput_bits_per_s\"",
        ),
        (
            "[workload]\nmtu = 1500\n",
            "s.toml:2: workload.mtu: it belongs in [bed]",
        ),
        (
            "[bed.client]\nsteering = \"on\"\n",
            "s.toml:2: bed.client.steering: all hosts share it: set it in [bed]",
        ),
        (
            "[published_functions]\nsource = \"x\"\ncell = \"y\"\n",
            "s.toml:3: published_functions.cell: expected the name of a cell",
        ),
        (
            "[[cells]]\nname = \"y\"\n[published_functions]\nsource = \"x\"\ncell = \"y\"\nhost = \"client\"\n\
             ratios = [[\"write\", \"tcp_sendmsg\", 2, { statement = \"unknown\", at_least = 1 }]]\n",
            "s.toml:7: published_functions.ratios: expected a list of [their function, ours, ratio], which { statement = \"ID\", at_least = N, at_most = N } may follow",
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
    let asks = |text: &str| {
        let study = Study::parse("s", text, "s.toml").unwrap();
        study.asks_for_rate(&study.cells[0].knobs)
    };
    assert!(!asks("[workload]\nrate = \"1G\"\n"));
    assert!(asks("[measure]\nquantity = \"goodput_bits_per_s\"\n"));
    let of = |flows: u32| {
        format!(
            "[[conclusion]]\ntext = \"x\"\nquantity = \"goodput_bits_per_s\"\nwhere = {{ flows = {flows} }}\n"
        )
    };
    assert!(asks(&of(1)) && !asks(&of(2)), "of its own cells");
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
    let set = |name: &str, text: &str| [(name.to_string(), text.to_string())];
    assert!(study.set(&set("flows", "3")).is_err());
    study.set(&set("write_size", "4KiB")).unwrap();
    assert!(
        study
            .cells
            .iter()
            .all(|cell| cell.knobs.bytes("write_size") == Some(4096))
    );
}

#[test]
fn a_knob_without_what_it_needs_is_refused_where_it_stands() {
    let cases = [
        (
            "[vary]\nack_limit_max = [2, 22]\n",
            "s.toml:2: vary.ack_limit_max: needs ack_policy = \"avoidance\"",
        ),
        (
            "[workload]\nkind = \"stream\"\nrequest_size = \"4KiB\"\n",
            "s.toml:3: workload.request_size: needs workload = \"rr\" or \"crr\"",
        ),
        (
            "[bed.server]\nack_policy = \"delayed\"\nack_segments = 2\n",
            "s.toml:3: bed.server.ack_segments: needs ack_policy = \"every\" or \"exactly\" or \"avoidance\" or \"on-read\" or \"requested\"",
        ),
        (
            "[[cells]]\nname = \"a\"\npacing_rate = \"1Gbit\"\n",
            "s.toml:3: cells.pacing_rate: needs pacing = \"timer\" (cell \"a\")",
        ),
        (
            "[bed]\nbottleneck_queue = \"1MiB\"\n",
            "s.toml:2: bed.bottleneck_queue: needs bottleneck",
        ),
        (
            "[vary]\nthreads = [1, 2]\n",
            "s.toml:2: vary.threads: needs at least as many flows",
        ),
        (
            "[bed.server]\nack_policy = \"every\"\n[vary]\nack_segments = [2]\n",
            "s.toml:4: vary.ack_segments: needs ack_policy",
        ),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
    assert!(error(cases[6].0).contains("set the other end alone: server.ack_segments"));
}

#[test]
fn a_cell_takes_of_the_common_knobs_what_it_has_a_use_for() {
    let text = "[workload]\nrequest_size = \"4KiB\"\n[vary]\nworkload = [\"stream\", \"rr\"]\n";
    let mut study = Study::parse("s", text, "s.toml").unwrap();
    let knobs = |study: &Study| -> Vec<String> {
        let cells = study.cells.iter();
        cells.map(|cell| cell.knobs.to_string()).collect()
    };
    assert_eq!(
        knobs(&study),
        ["workload=stream", "request_size=4KiB workload=rr"]
    );
    let set = |name: &str, text: &str| [(name.to_string(), text.to_string())];
    study.set(&set("in_flight", "2")).unwrap();
    assert_eq!(knobs(&study)[0], "workload=stream");
    assert!(knobs(&study)[1].contains("in_flight=2"));
    let error = study.set(&set("file_size", "1MiB")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("file_size: needs send_with = "),
        "{error}"
    );
    // The order does not matter, and values that a cell itself sets are kept.
    let both = [set("pacing_rate", "1Gbit"), set("pacing", "timer")].concat();
    study.set(&both).unwrap();
    let error = study.set(&set("pacing", "off")).unwrap_err();
    assert!(
        error.to_string().starts_with("pacing_rate: cell"),
        "{error}"
    );
}

#[test]
fn meter_cost_adds_cells_with_one_standing_meter_or_none() {
    let parse = |measure: &str| Study::parse("s", measure, "s.toml").unwrap();
    let text = "[measure]\nmeters = [\"proc\", \"profile\", \"exact\"]\nmeter_cost = true\n";
    let mut study = parse(text);
    let told: Vec<(&str, Vec<MeterName>)> = study
        .cells
        .iter()
        .map(|cell| (cell.name.as_str(), study.meters(cell)))
        .collect();
    use MeterName::{Exact, Proc, Profile};
    assert_eq!(
        told,
        [
            ("s", vec![Proc, Profile, Exact]),
            ("s, no standing meter", vec![Proc]),
            ("s, exact alone", vec![Proc, Exact]),
            ("s, profile alone", vec![Proc, Profile]),
        ]
    );
    study.ask_meter_cost();
    assert_eq!(study.cells.len(), 4, "once is enough");
    // With one standing meter the cell itself has it alone. Without standing meters no cell is
    // added.
    let cells = |measure: &str| parse(&text.replace(", \"exact\"]", measure)).cells.len();
    assert_eq!((cells("]"), cells(", \"exact\"]")), (2, 4));
    let proc_alone = "[measure]\nmeters = [\"proc\"]\nmeter_cost = true\n";
    assert_eq!(parse(proc_alone).cells.len(), 1);
    // `exact` is a default meter.
    assert_eq!(parse("[measure]\nmeter_cost = true\n").cells.len(), 2);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(\\[[a-z\\[\\].]{0,12}\\]\n|[a-z_]{1,10} = [\"0-9a-zA-Z\\[\\]{},. =]{0,20}\n){0,8}") {
        let _ = Study::parse("s", &text, "s.toml");
    }
}

#[test]
fn a_host_that_no_cell_has_is_named() {
    let error = |text: &str| Study::parse("s", text, "s.toml").unwrap_err().to_string();
    assert_eq!(
        error("[vary]\n\"relay.mtu\" = [1500, 9000]\n"),
        "s.toml:2: relay.mtu: no cell has a host called relay; there are client, server"
    );
    let star = "[bed]\ntopology = \"star\"\nclients = 2\n";
    assert_eq!(
        error(&format!(
            "{star}[measure]\nquantity = \"client_cpu_us_per_kib\"\n"
        )),
        "s.toml:5: client_cpu_us_per_kib: no cell has a host called client; there are client1, client2, server"
    );
    let sound = format!(
        "{star}\"clients.mtu\" = 3000\n[bed.client2]\nmtu = 4000\n[measure]\nquantity = \"clients_cpu_us_per_kib\"\n"
    );
    let study = Study::parse("s", &sound, "s.toml").unwrap();
    let mtu = |host: &str| {
        let knobs = &study.cells[0].knobs;
        knobs
            .value_at(host.parse().unwrap(), "mtu")
            .unwrap()
            .to_string()
    };
    assert_eq!(["client1", "client2"].map(mtu), ["3000B", "4000B"]);
}

#[test]
fn names_that_knobs_had_once_are_read() {
    let text = "[workload]\nclient_cpus = [0]\n[[cells]]\nserver_cpus = [1]\n";
    let study = Study::parse("s", text, "s.toml").unwrap();
    assert_eq!(
        study.cells[0].knobs.to_string(),
        "client.cpus=0 server.cpus=1"
    );
    assert_eq!(study.vary, ["server.cpus"]);
}
