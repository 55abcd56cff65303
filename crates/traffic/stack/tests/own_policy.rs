//! The example runs as its comment says.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tcpcost_testbed::{has_program, in_namespace, skip};

#[test]
fn a_policy_of_ones_own_acknowledges_what_curl_uploads() {
    if !has_program("curl") || !has_program("ip") {
        return;
    }
    in_namespace(|| {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return skip("needs /dev/net/tun");
        }
        let folder = std::env::current_exe().unwrap();
        let example = folder.parent().unwrap().parent().unwrap();
        let example = example.join("examples/own_policy");
        let mut example = Command::new("timeout")
            .arg("90")
            .arg(example)
            .arg("1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(example.stdout.take().unwrap()).lines();
        assert!(said.next().unwrap().unwrap().starts_with("now: curl"));
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(20 << 20).unwrap();
        let curl = Command::new("curl")
            .args(["-sS", "--max-time", "60", "http://10.99.0.2/", "-T"])
            .arg(file.path())
            .output()
            .unwrap();
        assert!(curl.status.success(), "{curl:?}");
        let said = said.next().unwrap().unwrap();
        let counts: Vec<u64> = said
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let [segments, acks] = counts[..] else {
            panic!("{said}");
        };
        // 20 MiB in segments of 1448 bytes; delayed ACKs would be half as many.
        assert!(segments >= 14_483 && acks > 0, "{said}");
        assert!(acks * 8 < segments, "{said}");
        assert!(example.wait().unwrap().success());
    });
}
