use proptest::prelude::*;

use super::*;

fn of(line: &str) -> Result<Options, Failure> {
    let args: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    parse(&args).map(|asked| match asked {
        Asked::Test(options) => *options,
        other => panic!("{other:?}"),
    })
}

fn line_of(line: &str) -> String {
    let failure = of(line).unwrap_err();
    assert_eq!(failure.code, 1);
    assert!(!failure.text.contains('\n'), "{failure}");
    failure.text
}

#[test]
fn nothing_is_ten_seconds_to_this_host() {
    let options = of("").unwrap();
    assert_eq!(options.test.name, "TCP_STREAM");
    assert_eq!(options.host, Host::At("localhost".into()));
    assert_eq!((options.port, options.length), (12865, 10));
    assert_eq!(options.unit, Unit::MEGABITS);
    assert_eq!(options.form, Form::Classic);
}

#[test]
fn flents_command_line_is_understood() {
    let options = of(
        "-P 0 -v 0 -D -0.20 -4 -Y 0xb8,0xb8 -H 10.0.0.2 -p 12865 -t TCP_MAERTS -l 5 -F /dev/urandom -f m -- \
         -H 10.0.0.2 -k THROUGHPUT,LOCAL_CONG_CONTROL -K cubic",
    )
    .unwrap();
    assert_eq!(options.direction, Direction::Receive);
    assert_eq!(options.interim, Some(Duration::from_millis(200)));
    assert_eq!(
        options.tos,
        Ends {
            local: Some(0xb8),
            remote: Some(0xb8)
        }
    );
    assert_eq!(options.form, Form::Keyval);
    assert_eq!(
        options.selection.as_deref(),
        Some("THROUGHPUT,LOCAL_CONG_CONTROL")
    );
    assert_eq!(options.congestion.remote, "cubic");
    assert_eq!(options.data_host.as_deref(), Some("10.0.0.2"));
    assert!(options.notes.is_empty(), "{:?}", options.notes);
}

#[test]
fn k8s_netperfs_command_line_is_understood() {
    let options = of(
        "-s 2 -H 10.0.0.2 -l 10 -t TCP_RR -- -k rt_latency,p99_latency -r 1024,1024 -b 4 -P 42424",
    )
    .unwrap();
    assert_eq!(options.wait, Duration::from_secs(2));
    assert_eq!(
        (options.request, options.response, options.burst),
        (1024, 1024, 4)
    );
    assert_eq!(
        options.data_port,
        Ends {
            local: 42424,
            remote: 42424
        }
    );
}

#[test]
fn an_optional_rate_of_the_cpu_is_skipped_and_nothing_else() {
    let options = of("-c 100.5 -C -l 3").unwrap();
    assert_eq!(
        options.cpu,
        Ends {
            local: true,
            remote: true
        }
    );
    assert_eq!(options.length, 3);
    assert!(of("-cC").unwrap().cpu.remote);
}

#[test]
fn directions_of_omni_are_told_or_implied() {
    let direction = |line: &str| of(&format!("-t omni -- {line}")).unwrap().direction;
    assert_eq!(direction(""), Direction::Send);
    assert_eq!(direction("-d recv"), Direction::Receive);
    assert_eq!(direction("-d send|recv"), Direction::Both);
    assert_eq!(direction("-d 4"), Direction::Receive);
    assert_eq!(direction("-r 1"), Direction::Both);
    assert_eq!(direction("-m ,8K"), Direction::Receive);
    let both = of("-t OMNI -- -d rr").unwrap();
    assert_eq!((both.request, both.response), (1, 1));
    assert_eq!(both.unit, Unit::Transactions);
    assert_eq!(both.form, Form::Human);
}

#[test]
fn confidence_is_bounded_as_netperf_bounds_it() {
    let of = |line: &str| of(line).unwrap().confidence;
    assert_eq!((of("").least, of("").most), (1, 1));
    let both = of("-i 100,1 -I 95,10");
    assert_eq!((both.least, both.most, both.level), (3, 30, 95));
    assert_eq!(both.width, 0.1);
    let level = of("-I 99");
    assert_eq!((level.least, level.most), (3, 10));
    assert_eq!(level.width, 0.05);
}

#[test]
fn a_unit_of_transactions_is_not_one_of_a_stream() {
    assert_eq!(of("-f x").unwrap().unit, Unit::MEGABITS);
    assert_eq!(of("-f m -t TCP_RR").unwrap().unit, Unit::MEGABITS);
    assert_eq!(of("-t TCP_RR").unwrap().unit, Unit::Transactions);
}

#[test]
fn a_host_of_ssh_or_of_a_namespace_is_started_on() {
    assert_eq!(of("-H ssh:db1").unwrap().host, Host::Ssh("db1".into()));
    assert_eq!(of("-H bed:veth").unwrap().host, Host::Bed);
    let namespace = Host::Namespace("blue".into(), "10.0.0.2".into());
    assert_eq!(of("-H netns:blue@10.0.0.2").unwrap().host, namespace);
    for host in [
        "ssh:",
        "bed:tap",
        "ssh:-oProxyCommand=x",
        "netns:blue",
        "netns:../x@1.2.3.4",
        "netns:@1.2.3.4",
    ] {
        line_of(&format!("-H {host}"));
    }
}

#[test]
fn what_is_refused_is_refused_by_name_with_a_reason() {
    for test in ["UDP_MAERTS", "SCTP_STREAM", "TCP_CC", "DLCO_RR", "NOTHING"] {
        let line = line_of(&format!("-t {test}"));
        assert!(line.starts_with(&format!("-t {test}: ")), "{line}");
        assert!(line.contains("supported are TCP_STREAM"), "{line}");
    }
    for options in [
        "-N",
        "-b 1",
        "-w 1",
        "-- -F",
        "-- -V",
        "-- -p 1,2",
        "-t OMNI -- -T sctp",
        "-t OMNI -- -T udp -d recv",
        "-t OMNI -- -T udp -d crr",
        "-t OMNI -- -t dgram",
        "-t OMNI -- -c",
    ] {
        let line = line_of(options);
        assert!(line.contains("supported"), "{line}");
    }
}

#[test]
fn a_test_of_udp_is_a_stream_or_transactions() {
    let rr = of("-t UDP_RR -- -e 1 -n -N -r 100,200").unwrap();
    assert_eq!(
        (rr.transport, rr.direction),
        (Transport::Udp, Direction::Both)
    );
    assert_eq!((rr.request, rr.response, rr.patience), (100, 200, Some(1)));
    assert!(rr.connected.local && rr.connected.remote && rr.routed);
    assert!(rr.notes.is_empty(), "{:?}", rr.notes);
    // A stream does not leave the network unless it is told so.
    let stream = of("-t UDP_STREAM").unwrap();
    assert_eq!((stream.direction, stream.routed), (Direction::Send, false));
    assert!(of("-t omni -- -T udp -d stream -R 1").unwrap().routed);
    assert_eq!(
        of("-t omni -- -T udp -d rr").unwrap().transport,
        Transport::Udp
    );
    assert!(line_of("-t TCP_RR -- -T udp").contains("its own protocol"));
}

#[test]
fn perfkitbenchmarkers_command_lines_are_understood() {
    let crr = of("-p 20000 -j -v2 -t OMNI -H 10.0.0.2 -l 60 -- -T TCP -d CRR -P ,20001 -G 1400b")
        .unwrap();
    assert!(crr.is_connect_test && crr.direction == Direction::Both);
    assert_eq!(crr.mss, Some(1400));
    assert_eq!(crr.notes, ["-- -G 1400b: read as 1400, as netperf does"]);
    let stream = of("-t OMNI -- -T UDP -d STREAM -R 1 -m 1400 -M 1400").unwrap();
    assert_eq!(
        (stream.transport, stream.direction),
        (Transport::Udp, Direction::Send)
    );
    assert_eq!(of("-y 3 -t TCP_RR").unwrap().priority.remote, Some(3));
}

#[test]
fn what_changes_nothing_is_a_note() {
    for options in [
        "-a 8", "-A 8", "-o 0", "-O 0", "-W 2", "-d", "-k 1", "-K 1", "-n 2", "-- -e 1", "-- -I",
        "-- 42424",
    ] {
        let notes = of(options).unwrap().notes;
        assert_eq!(notes.len(), 1, "{options}");
        assert!(notes[0].contains("without effect"), "{notes:?}");
    }
}

#[test]
fn what_is_no_number_is_one_line() {
    for options in [
        "-l x",
        "-l 0",
        "-l 1.5",
        "-l 100000000000000000000",
        "-p 99999",
        "-p x",
        "-f q",
        "-D x",
        "-D 0",
        "-I 90",
        "-I 95,x",
        "-i x",
        "-P y",
        "-v x",
        "-T x",
        "-Y nothing",
        "-L ::1,ipx",
        "-x",
        "-l",
        "-- -m 0",
        "-- -m 1T",
        "-- -r 0",
        "-- -r 1,x",
        "-- -s -1",
        "-- -P 70000",
        "-- -H 10.0.0.0/8",
        "-- -t dgram",
        "-- -K aaaaaaaaaaaaaaaaaaaa",
        "-- -d up",
        "-- -k /no/such/file",
    ] {
        if options == "-- -k /no/such/file" {
            // Looked for when the layout is made.
            continue;
        }
        let line = match options {
            "-- -r 0" | "-- -r 1,x" => format!("-t TCP_RR {options}"),
            "-- -d up" => format!("-t OMNI {options}"),
            options => options.to_string(),
        };
        line_of(&line);
    }
}

proptest! {
    #[test]
    fn any_words_are_a_test_or_one_line(words in proptest::collection::vec("(-[a-zA-Z0-9]|--|[a-zA-Z0-9,.:|?-]{0,8}|\\PC{0,4})", 0..12)) {
        if let Err(failure) = parse(&words) {
            prop_assert!(!failure.text.is_empty());
        }
    }
}

#[test]
fn unknown_test_options_are_complained_of_and_passed_over() {
    let options = of("-- -xD -y 5 -m 100 -M").unwrap();
    assert!(options.nodelay);
    assert_eq!(options.send_size.local, Some(100));
    assert_eq!(
        options.notes,
        [
            "invalid option -- 'x' (after --), without effect",
            "invalid option -- 'y' (after --), without effect",
            "5: not an option, without effect",
            "option requires an argument -- 'M' (after --), without effect",
        ]
    );
    assert_eq!(line_of("-x"), "invalid option -- 'x' (see -h)");
}
