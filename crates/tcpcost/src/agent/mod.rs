//! One end of a bed: answers questions on standard input, drives one end's traffic, reads its meters.
//!
//! It decides nothing: which trial, when, and what to make of it is the command's. When its input
//! ends it puts back what it changed and exits at once, whatever it was doing.

mod capture;
mod end;
mod ground;
mod policy;
mod readings;
mod sampler;
mod soak;
#[cfg(feature = "bpf")]
mod thinning;
#[cfg(not(feature = "bpf"))]
#[path = "thinning/absent.rs"]
mod thinning;
mod worker;

use std::convert::Infallible;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use tcpcost_link::{Layer, Offloads, Tap};
use tcpcost_study::End;

use crate::exit::Exit;
use crate::host::journal::Journal;
use crate::host::{link, machine, namespace, sysctl};
use crate::protocol::{Answer, Ask, PROTOCOL, clock_ns};

use self::capture::Capture;
use self::end::AgentEnd;
use self::ground::{Ground, Wires};
use self::worker::Listening;

/// Answers until the input ends: as one end, or as a pair of both.
pub fn main(isolate: bool, pair: bool) -> anyhow::Result<Infallible> {
    // Ctrl-C in a terminal reaches the whole process group; the command decides what it means.
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    if isolate {
        // Before any thread exists: unshare moves only the thread that calls it.
        namespace::enter_new()?;
    }
    let journal = Arc::new(Mutex::new(None));
    let agent = |ground| Agent {
        end: None,
        ground,
        journal: Arc::clone(&journal),
    };
    let (to_client, client_asks) = channel();
    if !pair {
        listen(Arc::clone(&journal), move |line| {
            to_client.send(line).is_ok()
        });
        serve(agent(Ground::Kernel), &client_asks, "");
    }
    let wires = Wires::default();
    let (to_server, server_asks) = channel();
    listen(Arc::clone(&journal), move |line| {
        match line.split_once(' ') {
            Some(("client", ask)) => to_client.send(ask.to_string()),
            Some(("server", ask)) => to_server.send(ask.to_string()),
            _ => return false,
        }
        .is_ok()
    });
    let server = agent(Ground::Memory(wires.clone(), End::Server));
    std::thread::spawn(move || serve(server, &server_asks, &format!("{} ", End::Server)));
    let client = agent(Ground::Memory(wires, End::Client));
    serve(client, &client_asks, &format!("{} ", End::Client))
}

/// Answers each question, every line behind `tag`, until the command is gone.
fn serve(mut agent: Agent, asks: &Receiver<String>, tag: &str) -> ! {
    while let Ok(line) = asks.recv() {
        let answer = match serde_json::from_str::<Ask>(&line) {
            Ok(ask) => agent.answer(ask).unwrap_or_else(|refusal| refusal.into()),
            Err(error) => Answer::Failed {
                reason: format!("did not understand {line:?}: {error}"),
            },
        };
        let line = serde_json::to_string(&answer).expect("answers have only text keys");
        let mut stdout = std::io::stdout().lock();
        if writeln!(stdout, "{tag}{line}")
            .and_then(|()| stdout.flush())
            .is_err()
        {
            break; // Nobody listens any more.
        }
    }
    leave(&agent.journal)
}

/// Reads questions on a thread of its own, so that the end of the input is seen at once, even in
/// the middle of a trial.
fn listen(
    journal: Arc<Mutex<Option<Journal>>>,
    mut hand_over: impl FnMut(String) -> bool + Send + 'static,
) {
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if !hand_over(line) {
                break;
            }
        }
        leave(&journal);
    });
}

/// Puts back what was changed and ends the process. Whoever of the two threads first sees that the
/// command is gone does it; the other waits for the lock until the process has ended.
fn leave(journal: &Mutex<Option<Journal>>) -> ! {
    let mut journal = journal
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // A namespace of ours ends with this process, and a TAP of it with the other end's.
    let of_host = journal.as_mut().filter(|journal| journal.is_of_host());
    let code = match of_host.map_or(Ok(()), Journal::put_back) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            eprintln!("tcpcost agent: put back: {error}; `tcpcost restore` tries again");
            Exit::Failed
        }
    };
    drop(journal.take()); // Takes the file away, if nothing is left in it.
    std::process::exit(code as i32)
}

/// Why a question was not answered as asked.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{knob}: {reason}")]
    Unsupported { knob: String, reason: String },
    #[error("{0}")]
    Failed(String),
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Answer {
        match refusal {
            Refusal::Unsupported { knob, reason } => Answer::Unsupported { knob, reason },
            Refusal::Failed(reason) => Answer::Failed { reason },
        }
    }
}

/// Any error of a library below, as one line with its causes.
fn failed(error: impl Into<anyhow::Error>) -> Refusal {
    Refusal::Failed(format!("{:#}", error.into()))
}

struct Agent {
    /// Set from `Prepare` on.
    end: Option<AgentEnd>,
    ground: Ground,
    journal: Arc<Mutex<Option<Journal>>>,
}

impl Agent {
    fn answer(&mut self, ask: Ask) -> Result<Answer, Refusal> {
        match ask {
            Ask::Hello { .. } => Ok(Answer::Hello {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").to_string(),
                pid: std::process::id(),
                clock_ns: clock_ns(),
                host: Box::new(machine::host()),
            }),
            Ask::Veth {
                device,
                peer_device,
                peer_pid,
            } => {
                link::create_veth(&device, &peer_device, peer_pid).map_err(failed)?;
                Ok(Answer::Done)
            }
            Ask::Tap {
                device,
                address,
                queues,
                peer_pid,
            } => {
                let mut taps = Tap::open_queues(&device, Layer::Ethernet, Offloads::ALL, queues)
                    .map_err(failed)?;
                taps.iter_mut()
                    .for_each(|tap| tap.answer_for(address.into()));
                link::move_to(&device, peer_pid).map_err(failed)?;
                self.ground = Ground::Tap(Arc::new(taps));
                Ok(Answer::Done)
            }
            Ask::Attach {
                device,
                address,
                prefix,
            } => {
                // Or neighbour discovery and multicast reports would be among the packets counted.
                // A kernel without IPv6 has no such sysctl and no such packets.
                let _ = sysctl::set(sysctl::root(), "net.ipv6.conf.all.disable_ipv6", "1");
                link::add_address(&device, address, prefix).map_err(failed)?;
                link::set_up(&device).map_err(failed)?;
                Ok(Answer::Done)
            }
            Ask::Prepare(prepare) => {
                // The last trial's workers, if it failed before `Finish`, end here.
                self.end = None;
                let mut journal = self
                    .journal
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                let (end, environment, cautions) =
                    AgentEnd::prepare(*prepare, self.ground.clone(), &mut journal)?;
                self.end = Some(end);
                Ok(Answer::Prepared {
                    environment: Box::new(environment),
                    cautions,
                })
            }
            Ask::Listen => {
                let Listening { addresses, loaded } = self.end()?.listen()?;
                Ok(Answer::Listening { addresses, loaded })
            }
            Ask::Connect { targets, loaded } => {
                let end = self.end()?;
                end.connect(&targets, &loaded)?;
                end.connected()
            }
            Ask::Accepted => self.end()?.connected(),
            Ask::Soak => {
                self.end()?.soak();
                Ok(Answer::Done)
            }
            Ask::Run(span) => Ok(Answer::Measured(Box::new(self.end()?.run(span)?))),
            Ask::Finish => {
                let capture = self.end.take().and_then(AgentEnd::finish);
                let capture = capture.map(Capture::stop).transpose().map_err(failed)?;
                Ok(Answer::Finished { capture })
            }
        }
    }

    fn end(&mut self) -> Result<&mut AgentEnd, Refusal> {
        self.end
            .as_mut()
            .ok_or_else(|| Refusal::Failed("asked before `prepare`".to_string()))
    }
}
