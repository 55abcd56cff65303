//! Master and slave over loopback, and each against uperf itself where it is on PATH.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tcpcost_study::{UperfProfile, UperfSurroundings, read_uperf_profile};
use tcpcost_testbed::{has_program, skip, until};
use tcpcost_uperf::{Failure, MasterOptions, listen, master, serve};

fn profile(text: &str) -> UperfProfile {
    let surroundings = UperfSurroundings {
        variable: &|_| None,
        files: &|_| Ok(vec![1]),
    };
    read_uperf_profile(text, "p.xml", &surroundings).unwrap().0
}

/// Starts a slave, which ends with the test's process. Returns its port.
fn slave() -> u16 {
    let listeners = listen(&[], 0).unwrap();
    let port = listeners[0].local_addr().unwrap().port();
    std::thread::spawn(move || serve(listeners));
    port
}

fn options(port: u16) -> MasterOptions {
    MasterOptions {
        port,
        with_groups: true,
        with_threads: true,
        with_transactions: true,
        with_flowops: true,
        is_silent: false,
        is_raw: true,
        interval: Duration::from_millis(100),
        history: None,
        width: 80,
    }
}

fn run(text: &str, port: u16) -> Result<(bool, String), Failure> {
    let mut out = Vec::new();
    let is_good = master(&profile(text), options(port), &mut out)?;
    Ok((is_good, String::from_utf8(out).unwrap()))
}

/// Bytes and operations of the last line with this name.
fn last(out: &str, name: &str) -> (u64, u64) {
    let mut lines = out.lines().filter_map(|line| {
        let rest = line.strip_prefix("timestamp_ms:")?.split_once(" name:")?.1;
        let (found, rest) = rest.split_once(" nr_bytes:")?;
        let (bytes, operations) = rest.split_once(" nr_ops:")?;
        (found == name).then(|| (bytes.parse().unwrap(), operations.parse().unwrap()))
    });
    lines
        .next_back()
        .unwrap_or_else(|| panic!("no {name} in {out}"))
}

/// Loops of fixed length, so that both ends' counts are known.
const COUNTED: &str = r#"<profile name="counted">
<group nthreads="3" name="ask">
 <transaction iterations="1"> <flowop type="connect" options="remotehost=127.0.0.1 protocol=tcp tcp_nodelay wndsz=50k"/> </transaction>
 <transaction iterations="100"> <flowop type="write" options="size=90 count=2"/> <flowop type="read" options="size=2k"/> </transaction>
 <transaction iterations="1"> <flowop type="disconnect"/> </transaction>
</group>
</profile>
"#;

#[test]
fn loops_of_fixed_length_are_counted_at_both_ends() {
    let (is_good, out) = run(COUNTED, slave()).unwrap();
    assert!(is_good, "{out}");
    assert!(
        out.starts_with("Starting 3 threads running profile:counted ... "),
        "{out}"
    );
    let bytes = 3 * 100 * (2 * 90 + 2048);
    assert_eq!(last(&out, "Txn1"), (0, 3));
    assert_eq!(last(&out, "Txn2"), (bytes, 3 * 100 * 3));
    // Each thread's end is an operation, too, as in uperf.
    assert_eq!(last(&out, "Total"), (bytes, 3 * 303 - 3 + 3));
    assert_eq!(last(&out, "ask").0, bytes);
    assert_eq!(last(&out, "Thr2").0, bytes / 3);
    let row = |name: &str| {
        let mut rows = out
            .lines()
            .filter(|line| line.split_whitespace().next() == Some(name));
        let row: Vec<&str> = rows.next_back().unwrap().split_whitespace().collect();
        row[1].to_string()
    };
    assert_eq!(
        (row("Txn1"), row("write"), row("read")),
        ("300".into(), "600".into(), "300".into())
    );
    // Both ends moved the same.
    let fields = |host: &str| {
        let mut rows = out.lines().filter(|line| line.starts_with(host));
        let row: Vec<&str> = rows.next_back().unwrap().split_whitespace().collect();
        row[2].to_string()
    };
    assert_eq!(fields("127.0.0.1"), fields("master"));
}

#[test]
fn groups_that_connect_and_accept_and_wait_end_by_their_time() {
    let text = r#"<profile name="two">
<group nthreads="2"> <transaction> <flowop type="connect" options="remotehost=localhost"/> </transaction>
 <transaction duration="300ms"> <flowop type="write" options="size=rand(1,64k)"/> </transaction>
 <transaction> <flowop type="disconnect"/> </transaction> </group>
<group nthreads="2"> <transaction> <flowop type="accept" options="remotehost=localhost"/> </transaction>
 <transaction duration="200ms" rate="100"> <flowop type="read" options="size=10"/> <flowop type="think" options="duration=1ms"/> </transaction>
 <transaction> <flowop type="disconnect"/> </transaction> </group>
</profile>
"#;
    let (is_good, out) = run(text, slave()).unwrap();
    assert!(is_good, "{out}");
    assert!(
        last(&out, "Group0").0 > 0 && last(&out, "Group1").1 > 0,
        "{out}"
    );
}

#[test]
fn a_failure_is_an_error_and_a_canfail_is_not() {
    // The slave's threads have gone when the second connection is made.
    let text = |option: &str| {
        format!(
            "<profile> <group nthreads=\"1\"> <transaction> <flowop type=\"write\" options=\"size=1 {option}\"/> </transaction> </group> </profile>"
        )
    };
    // No connect: there is no slave to ask, and no connection to write to.
    let (is_good, out) = run(&text(""), slave()).unwrap();
    assert!(
        !is_good && out.contains("Errors detected during run"),
        "{out}"
    );
    let (is_good, out) = run(&text("canfail"), slave()).unwrap();
    assert!(is_good, "{out}");
}

#[test]
fn a_host_without_a_slave_is_one_line() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let line = run(COUNTED, port).unwrap_err().to_string();
    assert!(
        line.starts_with("Error connecting to 127.0.0.1: ") && !line.contains('\n'),
        "{line}"
    );
}

#[test]
fn a_slave_answers_nonsense_with_a_reason_and_lives() {
    let port = slave();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for nonsense in [&[0_u8; 352][..], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(nonsense).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(
            answer.is_empty() || answer.starts_with(b"Not OK\0"),
            "{answer:?}"
        );
    }
    assert!(run(COUNTED, port).unwrap().0);
}

/// uperf itself, ended with the test.
struct Original(Child);

impl Drop for Original {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_original_is_understood_and_understands() {
    if !has_program("uperf") {
        skip("uperf itself: not on PATH");
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let mut command = Command::new("uperf");
    command
        .args(["-s", "-P", &port.to_string()])
        .stdout(Stdio::null());
    let _slave = Original(command.spawn().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    until("uperf -s listens", || TcpStream::connect(address).ok());
    let (is_good, out) = run(COUNTED, port).unwrap();
    assert!(is_good, "{out}");
    assert_eq!(last(&out, "Txn2").1, 900);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.xml");
    std::fs::write(&file, COUNTED).unwrap();
    let mut command = Command::new("uperf");
    command.args(["-R", "-a", "-P", &slave().to_string(), "-m"]);
    let ran = command.arg(&file).output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(last(&out, "Total").0, 3 * 100 * (2 * 90 + 2048));
}
