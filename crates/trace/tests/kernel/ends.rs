//! Two ends: sockets of the kernel, or curl and nginx.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tcpcost_link::Impairment;
use tcpcost_testbed::{until, with_bed};
use tcpcost_trace::{Segment, flag, read};

use super::wire::{Carried, SERVER, over_wire};

/// Operation of an application; each begins after the one before.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    Send(usize),
    /// Sends bytes, in chunks of a size, one at each interval.
    SendSlowly(usize, usize, Duration),
    Receive(usize),
    ReceiveSlowly(usize, usize, Duration),
    Wait(Duration),
}

/// Limits of buffers in the kernels of both ends, as in tcp_rmem and tcp_wmem, bytes, and the congestion control.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    pub receive: u32,
    pub send: u32,
    pub congestion_control: &'static str,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            receive: 4 << 20,
            send: 256 << 10,
            // In every kernel; others pace, or are missing.
            congestion_control: "reno",
        }
    }
}

impl Buffers {
    /// Sets the limits in the namespace of the calling thread.
    fn set(self) {
        let set = |name: &str, value: &str| {
            fs::write(format!("/proc/sys/net/ipv4/{name}"), value)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        };
        let three = |usual: u32, most: u32| format!("4096 {usual} {most}");
        // The receive buffer has its full size from the start, because a short transfer would wait
        // for one that grows.
        set("tcp_rmem", &three(self.receive, self.receive));
        set("tcp_wmem", &three(self.send / 2, self.send));
        // Some may be set outside alone; a namespace begins with the host's.
        let control = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        if control.trim() != self.congestion_control {
            set("tcp_congestion_control", self.congestion_control);
        }
    }
}

/// Two programs over the kernel's sockets, the client's first.
#[derive(Clone, Copy)]
pub struct Sockets<'a> {
    pub buffers: Buffers,
    pub programs: &'a [Vec<Op>; 2],
    /// True if Nagle's rule applies.
    pub nagle: bool,
}

impl Sockets<'_> {
    /// Runs both programs over a wire in user space.
    pub fn over_wire(self, path: Impairment) -> Carried {
        let (ready_sender, ready) = mpsc::channel();
        let (over_sender, over) = mpsc::channel::<()>();
        over_wire(
            path,
            move || {
                ready.recv().unwrap();
                self.client(SERVER);
                drop(over_sender);
            },
            move || {
                self.server(SERVER, &ready_sender);
                // Both ends have all data before the wire ends.
                let _ = over.recv();
            },
        )
    }

    /// Runs both programs over a veth, with super-segments. Returns the captures of tcpdump at the
    /// client and at the server. `None` if namespaces cannot be made.
    pub fn over_veth(self) -> Option<[Vec<u8>; 2]> {
        let (ready_sender, ready) = mpsc::channel();
        let at = tcpcost_testbed::SERVER;
        let files = with_bed(
            move || {
                let dump = Tcpdump::start("c");
                ready.recv().unwrap();
                self.client(at);
                dump.end()
            },
            move || {
                let dump = Tcpdump::start("s");
                self.server(at, &ready_sender);
                dump.end()
            },
        )?;
        Some(files.into())
    }

    fn client(self, to: Ipv4Addr) {
        self.buffers.set();
        let mut stream = TcpStream::connect((to, 80)).unwrap();
        stream.set_nodelay(!self.nagle).unwrap();
        play(&mut stream, &self.programs[0]);
        stream.shutdown(Shutdown::Write).unwrap();
        let _ = stream.read(&mut [0]);
    }

    fn server(self, at: Ipv4Addr, ready: &mpsc::Sender<()>) {
        self.buffers.set();
        let listener = TcpListener::bind((at, 80)).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = accept(&listener);
        stream.set_nodelay(!self.nagle).unwrap();
        play(&mut stream, &self.programs[1]);
        let _ = stream.read(&mut [0]);
    }
}

/// Capture by tcpdump of a device in the calling thread's namespace.
struct Tcpdump {
    child: Child,
    file: tempfile::NamedTempFile,
    _said: BufReader<ChildStderr>,
}

impl Tcpdump {
    fn start(device: &str) -> Tcpdump {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new("tcpdump")
            .args(["-i", device, "-s", "96", "--immediate-mode", "-U"])
            .args(["-w", "-", "tcp"])
            .stdout(file.reopen().unwrap())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "tcpdump: {line}");
        }
        Tcpdump {
            child,
            file,
            _said: said,
        }
    }

    /// Returns the capture once both FINs are in it.
    fn end(mut self) -> Vec<u8> {
        let path = self.file.path().to_path_buf();
        let captured = until("both FINs in the capture", || {
            let captured = fs::read(&path).unwrap();
            let mut fins = 0;
            let _ = read(&captured[..], &mut |segment: &Segment| {
                fins += usize::from(segment.any(flag::FIN));
            });
            (fins >= 2).then_some(captured)
        });
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        captured
    }
}

fn accept(listener: &TcpListener) -> (TcpStream, std::net::SocketAddr) {
    listener.set_nonblocking(true).unwrap();
    let accepted = until("a connection", || match listener.accept() {
        Ok(accepted) => Some(accepted),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    });
    accepted.0.set_nonblocking(false).unwrap();
    accepted.0.set_read_timeout(Some(LONGEST)).unwrap();
    accepted
}

fn play(stream: &mut TcpStream, program: &[Op]) {
    stream.set_read_timeout(Some(LONGEST)).unwrap();
    stream.set_write_timeout(Some(LONGEST)).unwrap();
    for op in program {
        match *op {
            Op::Send(bytes) => stream.write_all(&vec![7; bytes]).unwrap(),
            Op::SendSlowly(bytes, chunk, every) => {
                for at in (0..bytes).step_by(chunk) {
                    stream.write_all(&vec![7; chunk.min(bytes - at)]).unwrap();
                    pause(every);
                }
            }
            Op::Receive(bytes) => stream.read_exact(&mut vec![0; bytes]).unwrap(),
            Op::ReceiveSlowly(bytes, chunk, every) => {
                for at in (0..bytes).step_by(chunk) {
                    stream
                        .read_exact(&mut vec![0; chunk.min(bytes - at)])
                        .unwrap();
                    pause(every);
                }
            }
            Op::Wait(time) => pause(time),
        }
    }
}

/// Pauses like a slow application; nothing is waited for.
fn pause(time: Duration) {
    let begin = Instant::now();
    while let Some(left) = time
        .checked_sub(begin.elapsed())
        .filter(|left| !left.is_zero())
    {
        thread::park_timeout(left);
    }
}

const LONGEST: Duration = Duration::from_secs(60);

/// Settings of nginx and curl.
#[derive(Debug, Clone, Copy)]
pub struct Web {
    /// Bytes of the file `/file`.
    pub file_bytes: usize,
    /// Further arguments of curl.
    pub curl: &'static [&'static str],
    /// Number of requests, on one connection.
    pub times: usize,
    /// Application behind nginx that answers instead of the file: after this time, in this many
    /// pieces.
    pub backend: Option<(Duration, usize)>,
    /// True if nginx sends small segments at once.
    pub nodelay: bool,
    /// Time for which curl is stopped again and again; between, it runs for a quarter of that time.
    pub stopped: Option<Duration>,
}

impl Default for Web {
    fn default() -> Web {
        Web {
            file_bytes: 0,
            curl: &[],
            times: 1,
            backend: None,
            nodelay: true,
            stopped: None,
        }
    }
}

/// Runs curl at the client and nginx at the server.
pub fn web(path: Impairment, client: Buffers, web: &Web) -> Carried {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("file"), vec![b'x'; web.file_bytes]).unwrap();
    fs::write(folder.join("nginx.conf"), configuration(folder, web)).unwrap();
    let (ready_sender, ready) = mpsc::channel();
    let (over_sender, over) = mpsc::channel::<()>();
    over_wire(
        path,
        move || {
            client.set();
            ready.recv().unwrap();
            let page = if web.backend.is_some() {
                "slow"
            } else {
                "file"
            };
            let mut curl = Command::new("curl")
                .args(["--silent", "--fail", "--max-time", "60"])
                .args(web.curl)
                .args((0..web.times).flat_map(|_| {
                    [
                        "-o".to_string(),
                        "/dev/null".into(),
                        format!("http://{SERVER}/{page}"),
                    ]
                }))
                .spawn()
                .unwrap();
            let status = match web.stopped {
                Some(time) => now_and_then(&mut curl, time),
                None => curl.wait().unwrap(),
            };
            assert!(status.success(), "curl: {status}");
            drop(over_sender);
        },
        move || {
            Buffers::default().set();
            let log = fs::File::create(folder.join("said")).unwrap();
            let mut nginx = Command::new("nginx")
                .args(["-e", "stderr", "-p"])
                .arg(folder)
                .arg("-c")
                .arg(folder.join("nginx.conf"))
                .stdin(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            let backend = web
                .backend
                .map(|_| TcpListener::bind("127.0.0.1:8081").unwrap());
            until("nginx", || {
                let said = || fs::read_to_string(folder.join("said")).unwrap_or_default();
                assert!(nginx.try_wait().unwrap().is_none(), "nginx: {}", said());
                TcpStream::connect("127.0.0.1:80").ok()
            });
            ready_sender.send(()).unwrap();
            if let (Some(listener), Some((time, pieces))) = (backend, web.backend) {
                for _ in 0..web.times {
                    answer(&listener, time, pieces);
                }
            }
            let _ = over.recv();
            nginx.kill().unwrap();
            nginx.wait().unwrap();
        },
    )
}

fn configuration(folder: &Path, web: &Web) -> String {
    let folder = folder.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|of| format!("{of}_temp_path {folder}/{of};\n"))
        .collect();
    let nodelay = if web.nodelay { "on" } else { "off" };
    format!(
        "user root; daemon off; master_process off; pid {folder}/pid; error_log stderr;\n\
         events {{}}\n\
         http {{ access_log off; {paths}\n\
         server {{ listen 80; root {folder}; tcp_nodelay {nodelay};\n\
         location /slow {{ proxy_pass http://127.0.0.1:8081; proxy_buffering off; }} }} }}\n"
    )
}

/// Answers one request as the application behind nginx: 100 bytes a piece, 3 ms between pieces.
fn answer(listener: &TcpListener, time: Duration, pieces: usize) {
    let (mut stream, _) = accept(listener);
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        asked.push(byte[0]);
    }
    pause(time);
    let length = 100 * pieces;
    write!(
        stream,
        "HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n"
    )
    .unwrap();
    for piece in 0..pieces {
        if piece > 0 {
            pause(Duration::from_millis(3));
        }
        stream.write_all(&[b'x'; 100]).unwrap();
    }
}

/// Lets a program run for a fifth of the time.
fn now_and_then(child: &mut Child, time: Duration) -> std::process::ExitStatus {
    let id = Pid::from_child(child);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        // The child was not waited for yet, so its id is not reused.
        kill_process(id, Signal::STOP).unwrap();
        pause(time);
        kill_process(id, Signal::CONT).unwrap();
        pause(time / 4);
    }
}
