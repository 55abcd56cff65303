//! Groups of connections as a study file contains them.

use crate::{Derived, Scope, Study};
use tcpcost_knobs::{Side, WorkloadKind};

fn parse(text: &str) -> Study {
    Study::parse("s", text, "s.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn wrong(text: &str) -> String {
    Study::parse("s", text, "s.toml").unwrap_err().to_string()
}

/// Requests next to bulk traffic.
const BESIDE: &str = r#"
[workload]
nodelay = "on"
write_size = "16KiB"
request_size = "100B"

[[group]]
name = "small"
workload = "rr"
flows = 10
response_size = "200B"

[[group]]
name = "bulk"
program = [{ send = "64KiB" }]
"#;

#[test]
fn a_group_has_its_own_knobs_and_those_of_all() {
    let study = parse(BESIDE);
    let groups = study.cells[0].knobs.groups().unwrap();
    let names: Vec<&str> = groups
        .iter()
        .map(|group| group.name.as_ref().unwrap().as_str())
        .collect();
    assert_eq!(names, ["bulk", "small"], "by name");
    let (bulk, small) = (&groups[0].settings, &groups[1].settings);
    assert_eq!(
        (bulk.kind, small.kind),
        (WorkloadKind::Program, WorkloadKind::Rr)
    );
    assert_eq!((bulk.flows, small.flows), (1, 10));
    assert_eq!((small.request_bytes, small.response_bytes), (100, 200));
    assert!(bulk.nodelay && small.nodelay);
    assert_eq!(bulk.write_bytes, 16 << 10);
    let knobs = &study.cells[0].knobs;
    assert_eq!(knobs.flows(), 11);
    assert!(knobs.sends_from(Side::Listens) && knobs.sends_from(Side::Connects));
    assert_eq!(knobs.workload_kind(), None);
    assert!(!knobs.has_transactions(), "bulk has no responses");
}

#[test]
fn a_record_holds_its_groups() {
    let knobs = &parse(BESIDE).cells[0].knobs;
    let json = serde_json::to_string(knobs).unwrap();
    assert!(
        json.contains(r#""bulk.program":[{"send":"64KiB"}]"#),
        "{json}"
    );
    assert_eq!(&serde_json::from_str::<crate::Knobs>(&json).unwrap(), knobs);
}

#[test]
fn a_groups_knobs_vary_and_are_set() {
    let text = format!("{BESIDE}\n[vary]\n\"small.flows\" = [1, 100]\nwrite_size = [\"1KiB\"]\n");
    let mut study = parse(&text);
    let flows = |study: &Study| -> Vec<usize> {
        let cells = study.cells.iter();
        cells
            .map(|cell| cell.knobs.groups().unwrap()[1].settings.flows)
            .collect()
    };
    assert_eq!(flows(&study), [1, 100]);
    assert_eq!(study.cells[1].name, "small.flows=100 write_size=1KiB");
    let pairs = |name: &str, value: &str| [(name.to_string(), value.to_string())];
    study
        .set(&pairs("bulk.program", r#"[{ send = "1MiB" }]"#))
        .unwrap();
    let groups = study.cells[0].knobs.groups().unwrap();
    assert_eq!(
        groups[0].settings.program.as_ref().unwrap().largest(),
        [1 << 20, 0]
    );
    let error = study.set(&pairs("samll.rate", "1Mbit")).unwrap_err();
    assert!(
        error.to_string().contains("there are bulk, small"),
        "{error}"
    );
}

#[test]
fn figures_of_a_group_are_those_of_what_it_does() {
    let study = parse(&format!(
        "{BESIDE}\n[[threshold]]\nquantity = \"small_response_us_p99\"\nat_most = 10.0\n"
    ));
    let of: Derived = study.thresholds[0].quantity;
    assert_eq!(of.scope, Scope::Group("small".parse().unwrap()));
    let error = wrong(&format!(
        "{BESIDE}\n[[threshold]]\nquantity = \"smal_response_us_p99\"\nat_most = 10.0\n"
    ));
    assert!(
        error.contains("no group is called smal; there are bulk, small"),
        "{error}"
    );
}

#[test]
fn who_connects_can_be_said_and_everyone_must() {
    let star = "[bed]\ntopology = \"star\"\n[bed.server]\ncpus = [0]\n";
    let group = |name: &str, on: &str| {
        format!("[[group]]\nname = \"{name}\"\nworkload = \"stream\"\nflows = 5\non = \"{on}\"\n")
    };
    let study = parse(&format!(
        "{star}{}{}",
        group("one", "client1"),
        group("all", "clients")
    ));
    let knobs = &study.cells[0].knobs;
    let flows = |host: &str| -> Vec<usize> {
        let groups = knobs.groups_at(host.parse().unwrap(), 1).unwrap();
        groups.iter().map(|group| group.settings.flows).collect()
    };
    assert_eq!(flows("client1"), [5, 5]);
    assert_eq!(flows("client2"), [5, 0]);
    assert_eq!(flows("server"), [15, 5]);
    let error = wrong(&format!("{star}{}", group("one", "client1")));
    assert!(
        error.contains("client2 would have no connections"),
        "{error}"
    );
    let error = wrong(&format!("{star}{}", group("one", "server")));
    assert!(
        error.contains("no host that connects; there are client1, client2, client3"),
        "{error}"
    );
}

#[test]
fn a_mistake_is_one_line_with_its_place() {
    let group = |rest: &str| format!("title = \"t\"\n[[group]]\nname = \"a\"\n{rest}\n");
    for (text, expected) in [
        (
            group("flows = 0"),
            "s.toml:4: group.flows: expected a whole number from 1 to 30000",
        ),
        (
            group("flwos = 1"),
            "s.toml:4: group.flwos: no such key of a group; nearest is \"flows\"",
        ),
        (
            group("nodelay = \"on\""),
            "s.toml:4: group.nodelay: all groups share it: set it in [workload] or [bed]",
        ),
        (
            group("kind = \"rr\""),
            "s.toml:4: group.kind: in a group the key is workload",
        ),
        (
            group("in_flight = 2"),
            "s.toml:4: group.in_flight: needs workload = \"rr\"",
        ),
        (
            group("program = [{ sned = 1 }]"),
            "s.toml:4: group.program: operation 1: no such operation \"sned\"; nearest is \"send\"",
        ),
        (
            group("program = []"),
            "s.toml:4: group.program: neither sends nor receives: add { send = \"1KiB\" }",
        ),
        (
            group("to = \"client\""),
            "s.toml:4: a.to: no host that listens; there is server",
        ),
        (
            "[[group]]\nflows = 1\n".to_string(),
            "s.toml:2: group.name: is missing",
        ),
        (
            "[[group]]\nname = \"A\"\n".to_string(),
            "s.toml:2: group.name: expected no name of a host",
        ),
        (
            "[[group]]\nname = \"clients\"\n".to_string(),
            "s.toml:2: group.name: clients is the name of a host",
        ),
        (
            format!("{}[[group]]\nname = \"a\"\n", group("")),
            "group.name: two groups are called a",
        ),
        (
            "[vary]\n\"a.flows\" = [1]\n".to_string(),
            "s.toml:2: a.flows: no group is called a: [[group]]",
        ),
        (
            "[workload]\nkind = \"program\"\n".to_string(),
            "needs program",
        ),
        (
            "[workload]\nprogram = [{ send = 1 }]\n".to_string(),
            "needs workload = \"program\"",
        ),
    ] {
        let error = wrong(&text);
        assert!(error.contains(expected), "{error}\nfor {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn cells_may_have_groups_of_their_own() {
    let study = parse(
        r#"
[[cells]]
name = "alone"
workload = "rr"
[[cells]]
name = "beside"
"small.workload" = "rr"
"small.flows" = 2
"bulk.workload" = "stream"
"#,
    );
    let groups = |cell: usize| study.cells[cell].knobs.group_names().len();
    assert_eq!([groups(0), groups(1)], [0, 2]);
    let has = |cell: usize, name: &str, text: &str| {
        let mut wanted = crate::Knobs::default();
        wanted.set(name, text).unwrap();
        study.cells[cell].knobs.has(&wanted)
    };
    assert!(has(0, "workload", "rr") && has(1, "small.workload", "rr"));
    assert!(
        !has(1, "workload", "stream"),
        "what nobody does holds for nobody"
    );
    let error = wrong("[[cells]]\nname = \"a\"\n\"small.flows\" = 2\n");
    assert!(error.contains("no group is called small"), "{error}");
}

#[test]
fn what_no_group_has_a_use_for_is_an_error() {
    let error =
        wrong("[workload]\nin_flight = 3\n[[group]]\nname = \"a\"\nworkload = \"stream\"\n");
    assert!(
        error.contains("in_flight: needs workload = \"rr\""),
        "{error}"
    );
    // The limit on threads is the number of connections in all groups together.
    let two = "[[group]]\nname = \"a\"\nworkload = \"stream\"\n[[group]]\nname = \"b\"\nworkload = \"rr\"\n";
    parse(&format!("[workload]\nthreads = 2\n{two}"));
    assert!(wrong(&format!("[workload]\nthreads = 3\n{two}")).contains("as many flows"));
}
