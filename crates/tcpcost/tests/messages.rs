//! Messages about mistakes, word by word: each is one line that says what to do. They are in
//! `tests/data/messages.txt`; `TCPCOST_REWRITE=1` writes the file again.

mod common;

use common::Place;
use tcpcost_testbed::can_make_namespaces;

/// Study files with one mistake each.
const FILES: &[&str] = &[
    // Several values where one value is expected.
    "[bed]\nmtu = [1500, 9000]\n",
    "[bed.client]\nmtu = [1500, 9000]\n",
    "[bed.sysctl]\n\"net.ipv4.tcp_sack\" = [0, 1]\n",
    "[workload]\nwrite_size = [\"4KiB\", \"8KiB\"]\n",
    "[[cells]]\nname = \"a\"\nwrite_size = [\"4KiB\", \"8KB\"]\n",
    "[[cells]]\nname = \"a\"\ncpus = [[0], [1]]\n",
    "[[cells]]\nname = \"a\"\nmtu = [1500, 9000]\n[vary]\nmtu = [1500, 3000]\n",
    "[bed]\ncpus = [[0], [1]]\n",
    "[vary]\nmtu = 1500\n",
    // Words of other programs.
    "[workload]\nconnections = 5\n",
    "[vary]\nconnections = [5]\n",
    "[[cells]]\nmss = 1460\n",
    "[workload]\nduration = \"3s\"\n",
    "[bed]\ncongestion = \"bbr\"\n",
    "[measure]\ntime = \"3s\"\n",
    // Misspelt, misplaced, unknown.
    "[workload]\nwrite_sise = \"4KiB\"\n",
    "[bed]\nwrite_size = \"4KiB\"\n",
    "[workload]\nxyzzy = 5\n",
    "[measuer]\nmeters = [\"exact\"]\n",
    // Units.
    "[workload]\nrate = \"100MB/s\"\n",
    "[workload]\nrate = 1000\n",
    "[workload]\nrate = \"941\"\n",
    "[workload]\nwrite_size = \"64KB\"\n",
    "[workload]\nwrite_size = 0\n",
    // Knobs that do not fit together, and limits that are none.
    "[workload]\nrequest_size = \"100B\"\n",
    "[workload]\nkind = \"stream\"\nresponse_size = \"100B\"\n",
    "[workload]\nkind = \"rr\"\nrate = \"1G\"\n",
    "[measure]\nmeters = []\n",
    "[measure]\nmeters = [\"exakt\"]\n",
    "[[threshold]]\nquantity = \"goodput_bits_per_s\"\nat_most = nan\n",
    "[[threshold]]\nquantity = \"goodput_bits_per_s\"\nat_least = -inf\n",
    "[[threshold]]\nquantity = \"goodput\"\nat_most = 1\n",
];

/// Profiles of uperf with one mistake each.
const PROFILES: &[&str] = &[
    "<profile>\n<group nthreads=\"1\">\n",
    "<profile>\n<group nthreads=\"1\">\n</profile>",
    "<!DOCTYPE lolz [\n<!ENTITY lol \"lol\">\n<!ENTITY lol2 \"&lol;&lol;\">\n]>\n<profile name=\"&lol2;\"/>",
    "<profile>\n&lol;\n</profile>",
    "<profile>\n<groop nthreads=\"1\"/>\n</profile>",
    "<profile>\n<group threads=\"1\"/>\n</profile>",
    "<profile>\n<group nthreads=\"-1\"/>\n</profile>",
    "<profile>\n<group nthreads=\"1\"/>\n</profile>",
    "<profile>\n<group nthreads=\"$unset_here\"/>\n</profile>",
    "<profile>\n<group nthreads=\"1\">\n<transaction>\n<flowop type=\"connect\" options=\"remotehost=server\n protocol=sctp\"/></transaction></group></profile>",
    "<profile>\n<group nthreads=\"1\">\n<transaction>\n<flowop type=\"connect\" options=\"remotehost=192.0.2.1\"/></transaction></group></profile>",
    "<profile>\n<group nthreads=\"1\">\n<transaction>\n<flowop type=\"connect\" options=\"remotehost=server\"/>\n<flowop type=\"write\" options=\"size=100000000000000000000\"/></transaction></group></profile>",
    "<profile>\n<group nthreads=\"1\">\n<transaction>\n<flowop type=\"connect\" options=\"remotehost=server\"/>\n<flowop type=\"write\" options=\"size=64q\"/></transaction></group></profile>",
    "<profile>\n<group nthreads=\"1\">\n<transaction>\n<flowop type=\"connect\" options=\"remotehost=server\"/>\n<flowop type=\"wirte\" options=\"size=64k\"/></transaction></group></profile>",
    "<profile>\n\0</profile>",
];

/// Command lines with one mistake each.
const ARGUMENTS: &[&[&str]] = &[
    &["run", "tuor"],
    &["study", "convert", "tour"],
    &["run", "write_size"],
    &["run", "nothing-like-it"],
    &["study", "show", "acsk"],
    &["rnu", "tour"],
    &["run", "tour", "--set", "connections=5"],
    &["run", "tour", "--set", "write_size=[4KiB,8KiB]"],
    &["run", "tour", "--meters", "+segmnts"],
    &["run", "tour", "--meters", "exact,-soak"],
    &["run", "acks", "--set", "bottleneck=1GB"],
];

/// Command lines of a relay, each with its exit code.
const RELAYS: &[(i32, &[&str])] = &[
    (2, &["relay", "--to", "10.9.0.1:80"]),
    (2, &["relay", "--listen", "8080", "--to", "10.9.0.1:80"]),
    (2, &["relay", "--listen", "127.0.0.1:0", "--to", "10.9.0.1"]),
    (
        2,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--mode",
            "fast",
        ],
    ),
    (
        77,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--mode",
            "sockmap",
        ],
    ),
    (
        1,
        &["relay", "--listen", "192.0.2.1:80", "--to", "10.9.0.1:80"],
    ),
    (
        2,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--allow",
            "10.0.0.0/33",
        ],
    ),
    (
        2,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--set",
            "keepalive=1ms",
        ],
    ),
    (
        2,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--set",
            "pipe_size=1KiB",
        ],
    ),
    (
        2,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--each",
        ],
    ),
    (
        2,
        &[
            "relay",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "10.9.0.1:80",
            "--tap",
            "r0",
        ],
    ),
    (
        2,
        &[
            "relay",
            "--listen",
            "10.9.0.2:80",
            "--to",
            "10.9.0.1:80",
            "--mode",
            "user",
        ],
    ),
];

/// Command lines of netperf, each with netperf's exit code.
const NETPERFS: &[(i32, &[&str])] = &[
    (1, &["netperf", "-t", "UDP_MAERTS"]),
    (1, &["netperf", "-t", "SCTP_STREAM"]),
    (1, &["netperf", "-t", "TCP_CC"]),
    (1, &["netperf", "-t", "TCP_STREEM"]),
    (1, &["netperf", "-l", "100000000000000000000"]),
    (1, &["netperf", "-l", "0"]),
    (1, &["netperf", "-x"]),
    (1, &["netperf", "-l"]),
    (1, &["netperf", "-f", "q"]),
    (1, &["netperf", "-N"]),
    (1, &["netperf", "-I", "90"]),
    (1, &["netperf", "-Y", "high"]),
    (1, &["netperf", "-H", "netns:blue"]),
    (1, &["netperf", "--", "-F"]),
    (1, &["netperf", "--", "-T", "udp"]),
    (1, &["netperf", "--", "-k", "no-such-file"]),
    (255, &["netperf", "-H", "127.0.0.1", "-p", "1"]),
    (255, &["netperf", "-H", "netns:no-such-namespace@10.0.0.1"]),
    (1, &["netserver", "host"]),
    (1, &["netserver", "-p", "70000"]),
    (1, &["netserver", "-L", "192.0.2.1"]),
    (1, &["netserver", "-s"]),
];

#[test]
fn mistakes_are_told_in_one_line_each() {
    let place = Place::new();
    let mut told = String::new();
    let mut tell = |code: i32, what: &str, args: &[&str]| {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(code), "{what}: {ran:?}");
        assert_eq!(ran.stdout, "", "{what}");
        assert_eq!(ran.stderr.lines().count(), 1, "{what}: {}", ran.stderr);
        told += &format!("{what}\n    {}", ran.stderr);
    };
    for text in FILES {
        place.write("s.toml", text);
        tell(
            2,
            &text.trim_end().replace('\n', " | "),
            &["run", "./s.toml", "--dry-run"],
        );
    }
    for text in PROFILES {
        place.write("p.xml", text);
        let what = text.replace('\n', " | ").replace('\0', "NUL");
        tell(2, &what, &["run", "./p.xml", "--dry-run"]);
    }
    for args in ARGUMENTS {
        tell(2, &args.join(" "), args);
    }
    for (code, args) in RELAYS.iter().chain(NETPERFS) {
        tell(*code, &args.join(" "), args);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/messages.txt");
    if std::env::var_os("TCPCOST_REWRITE").is_some() {
        std::fs::write(path, &told).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(told, golden, "TCPCOST_REWRITE=1 writes {path} anew");
}

#[test]
fn rates_are_taken_as_people_write_them() {
    let place = Place::new();
    for rate in [
        "1G",
        "10Gbit/s",
        "941Mbps",
        "1 Gb/s",
        "37.4 Gbits/sec",
        "100m",
    ] {
        place.write("s.toml", &format!("[workload]\nrate = \"{rate}\"\n"));
        let ran = place.run(&["run", "./s.toml", "--dry-run"]);
        assert_eq!(ran.code, Some(0), "{rate}: {ran:?}");
    }
}

#[test]
fn what_the_kernel_refuses_is_told_by_name_and_by_value() {
    if !can_make_namespaces() {
        return;
    }
    let place = Place::new();
    let cases = [
        (
            "[workload]\ncongestion_control = \"cubix\"\n",
            "congestion_control: this kernel has none called \"cubix\", it has ",
        ),
        (
            "[bed.sysctl]\n\"net.ipv4.tcp_sack\" = \"yes\"\n",
            "sysctl.net.ipv4.tcp_sack: the kernel does not accept \"yes\" (current value \"1\")",
        ),
        (
            "[bed.sysctl]\n\"net.ipv4.tcp_sacc\" = \"1\"\n",
            "or none in a network namespace of its own: did you mean net.ipv4.tcp_sack?",
        ),
        (
            "[bed.sysctl]\n\"net.ipv4.tcp_congestion_control\" = \"cubix\"\n",
            "sysctl.net.ipv4.tcp_congestion_control: the kernel does not accept \"cubix\" (current value ",
        ),
    ];
    for (index, (text, part)) in cases.into_iter().enumerate() {
        place.write(
            "s.toml",
            &format!("{text}[measure]\nrepetitions = 1\nduration = \"20ms\"\n"),
        );
        let ran = place.run(&[
            "run",
            "./s.toml",
            "--quiet",
            "--out",
            &format!("out{index}"),
        ]);
        assert_eq!(ran.code, Some(77), "{text}: {ran:?}");
        let line = ran.stderr.lines().last().unwrap_or_default();
        assert!(
            line.starts_with("tcpcost: no trial was measured: "),
            "{ran:?}"
        );
        assert!(line.contains(part), "{line}");
    }
}
