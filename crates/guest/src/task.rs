//! Work for a guest, and the file by which the host hands it over.
//!
//! The file is one of QEMU's fw_cfg (docs/specs/fw_cfg.rst), which a guest reads byte by byte
//! whenever it wants. So a guest that was saved while it waited can be given any task. The file
//! begins with a header of [`HEADER`] bytes: the word `save`, or `go SEED LENGTH`. Behind it are
//! LENGTH bytes of files: a line `PATH SIZE`, then SIZE bytes.

use std::net::Ipv4Addr;

use crate::agreed::{ADDRESSES, ARGUMENTS, PADDING, RESULTS, TASK};

/// Work for a guest.
#[derive(Debug, Clone, Default)]
pub struct Task {
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Input files in [`Task::FOLDER`]: name, content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Names of files whose lines are sent to the host after the program has ended. Sending earlier
    /// would add to the measured work.
    pub results: Vec<String>,
    /// Devices that are set up before the program starts: name, address, prefix length.
    pub addresses: Vec<(String, Ipv4Addr, u8)>,
    /// Additions that each system call of the program makes in a filter of its own (seccomp(2)); 0
    /// is no filter. Work of a known size shows how exactly work is counted. At most
    /// [`Task::PADDING_MAX`].
    pub padding: u16,
}

impl Task {
    /// Directory of the input files in the guest.
    pub const FOLDER: &str = TASK;

    /// Limit of [`Task::padding`]: a filter has at most 4096 instructions (`BPF_MAXINSNS`).
    pub const PADDING_MAX: u16 = 4000;

    /// Files for the guest, each with its path.
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let lines =
            |path: &str, lines: &[String]| (path.to_string(), lines.join("\n").into_bytes());
        let addresses = self.addresses.iter();
        let addresses =
            addresses.map(|(device, address, prefix)| format!("{device} {address} {prefix}"));
        let mut files = vec![
            lines(ARGUMENTS, &self.arguments),
            lines(RESULTS, &self.results),
            lines(ADDRESSES, &addresses.collect::<Vec<_>>()),
            lines(PADDING, &[self.padding.to_string()]),
        ];
        let of_task = self.files.iter();
        files.extend(of_task.map(|(name, content)| (format!("{TASK}/{name}"), content.clone())));
        files
    }
}

/// Name of the file in fw_cfg. QEMU leaves names that begin with `opt/` to users.
pub(crate) const FILE: &str = "opt/tcpcost/task";

/// Bytes of a header.
pub(crate) const HEADER: usize = 64;

/// Order to a guest.
#[derive(Debug)]
pub(crate) enum Order<'a> {
    /// Send the symbols, rest, and wait for another order.
    Save,
    /// Run a task with this seed.
    Go {
        /// Seed of random numbers.
        seed: u64,
        /// Work to do.
        task: &'a Task,
    },
}

impl Order<'_> {
    /// Content of the file.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let (first, body) = match self {
            Order::Save => ("save".to_string(), Vec::new()),
            Order::Go { seed, task } => {
                let mut body = Vec::new();
                for (path, content) in task.files() {
                    body.extend_from_slice(format!("{path} {}\n", content.len()).as_bytes());
                    body.extend_from_slice(&content);
                }
                (format!("go {seed} {}", body.len()), body)
            }
        };
        let mut packed = first.into_bytes();
        packed.resize(HEADER, b' ');
        packed.extend_from_slice(&body);
        packed
    }
}

/// Order that a header gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// [`Order::Save`].
    Save,
    /// [`Order::Go`], with the number of bytes behind the header.
    Go {
        /// Seed of random numbers.
        seed: u64,
        /// Bytes of files.
        length: usize,
    },
}

/// Parses a header; `None` if it is none.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    let mut words = std::str::from_utf8(bytes).ok()?.split_whitespace();
    match words.next()? {
        "save" => Some(Header::Save),
        "go" => Some(Header::Go {
            seed: words.next()?.parse().ok()?,
            length: words.next()?.parse().ok()?,
        }),
        _ => None,
    }
}

/// Files behind a header: path, content. `None` if a length is wrong.
pub(crate) fn unpacked(mut body: &[u8]) -> Option<Vec<(String, &[u8])>> {
    let mut files = Vec::new();
    while !body.is_empty() {
        let end = body.iter().position(|&byte| byte == b'\n')?;
        let line = std::str::from_utf8(&body[..end]).ok()?;
        let (path, size) = line.rsplit_once(' ')?;
        let content = body.get(end + 1..)?;
        let (content, rest) = content.split_at_checked(size.parse().ok()?)?;
        files.push((path.to_string(), content));
        body = rest;
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_out_as_it_went_in() {
        let task = Task {
            arguments: vec!["run".into(), "a study.toml".into()],
            files: vec![
                ("a study.toml".into(), b"line\nline 5\n".to_vec()),
                ("empty".into(), Vec::new()),
            ],
            results: vec!["records".into()],
            addresses: vec![("lo".into(), Ipv4Addr::LOCALHOST, 8)],
            padding: 5,
        };
        let packed = Order::Go {
            seed: 1 << 47,
            task: &task,
        }
        .packed();
        let (head, body) = packed.split_at(HEADER);
        let length = body.len();
        assert_eq!(
            header(head),
            Some(Header::Go {
                seed: 1 << 47,
                length
            })
        );
        let files = unpacked(body).unwrap();
        let content = |path: &str| files.iter().find(|(name, _)| name == path).unwrap().1;
        assert_eq!(content(ARGUMENTS), b"run\na study.toml");
        assert_eq!(content(ADDRESSES), b"lo 127.0.0.1 8");
        assert_eq!(content("/task/a study.toml"), b"line\nline 5\n");
        assert_eq!(content("/task/empty"), b"");
        assert_eq!(unpacked(&body[..length - 1]), None);
        assert_eq!(header(&Order::Save.packed()), Some(Header::Save));
        assert_eq!(header(&[0; HEADER]), None);
    }
}
