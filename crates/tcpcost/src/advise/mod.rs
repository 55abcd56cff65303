//! `tcpcost advise`: which knob would lower the CPU of a workload, by how much, and the line that proves it.

mod attempt;
mod place;
mod stored;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tcpcost_conduct::StoredRun;
use tcpcost_console::exit::Exit;
use tcpcost_console::format::{Format, Output, TextOrJson};
use tcpcost_console::output;
use tcpcost_counts::{MeterName, Quantity, Source, exact_cost_ns};
use tcpcost_model::advice::{
    Advised, Remarks, SCHEMA_VERSION, Situation, Subject, advise, release,
};
use tcpcost_model::{PriceList, age};
use tcpcost_observe::Observed;

use self::place::{Place, Watcher};
use crate::explain::TargetArgs;
use crate::model::{age_s, kept};

/// `tcpcost advise`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  tcpcost advise --pid 2214 -- sleep 10      a process, while its load goes on\n  tcpcost advise -- ./job                    a command\n  tcpcost advise tcpcost-out/tour-…          each cell of a stored run\n  tcpcost advise slow.pcap                   the packets of a capture alone: no numbers"
)]
pub struct AdviseArgs {
    /// Stored runs, or captures, instead of work that runs now.
    #[arg(value_name = "RUN|CAPTURE", conflicts_with_all = ["pid", "cgroup", "netns", "command", "per", "fresh_netns"])]
    pub files: Vec<PathBuf>,
    /// Work that is advised.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Count the attached work for 2 s with the setting of this rule and for 2 s without, in turn, price both counts, and restore the setting.
    #[arg(long = "try", value_name = "ID", conflicts_with_all = ["files", "command", "per", "fresh_netns"])]
    pub attempt: Option<String>,
    /// Formats of the results.
    #[command(flatten)]
    pub output: Output<TextOrJson>,
}

/// Advice on one workload.
struct Answer {
    subject: Subject,
    remarks: Remarks,
    advised: Advised,
}

/// Runs `tcpcost advise`. Returns the command's own exit code.
///
/// # Errors
/// The work cannot be measured, or a file cannot be read. Missing prices are no error.
pub fn run(args: &AdviseArgs) -> anyhow::Result<ExitCode> {
    args.target.check(&args.files)?;
    let list = kept();
    let prices = || match &list {
        Ok(list) => Ok(list),
        Err(error) => Err(error.to_string()),
    };
    if let Some(id) = &args.attempt {
        let tried = attempt::attempt(&args.target, id, prices())?;
        tried.print(&args.output)?;
        return Ok(Exit::Ok.into());
    }
    if !args.files.is_empty() {
        print(&of_files(&args.files, prices())?, &args.output)?;
        return Ok(Exit::Ok.into());
    }
    let (observed, place) = observe(&args.target)?;
    if !observed.was_started {
        return Ok(observed.code.into());
    }
    print(
        &[live(&args.target, &observed, place, prices())],
        &args.output,
    )?;
    Ok(observed.code.into())
}

/// Measures the work, and looks at its connections meanwhile.
fn observe(target: &TargetArgs) -> anyhow::Result<(Observed, Place)> {
    // A process with two threads cannot enter a user namespace.
    if target.of.fresh_netns {
        let observed = target.observe()?;
        return Ok((observed, Place::loopback()));
    }
    let watcher = Watcher::new(target);
    std::thread::scope(|scope| {
        let place = scope.spawn(|| watcher.watch());
        let observed = target.observe();
        watcher.end();
        let place = place.join().unwrap_or_default();
        Ok((observed?, place))
    })
}

/// Least share of softirqs for other ends on this host from which the counts are of both ends, but the CPU time is not.
const PEERS_LEAST: f64 = 0.02;

fn live(
    target: &TargetArgs,
    observed: &Observed,
    place: Place,
    prices: Result<&PriceList, String>,
) -> Answer {
    let growth = &observed.growth;
    let mut situation = Situation::of(growth, growth.duration_ns as f64);
    let mut notes = observed.unavailable.clone();
    situation.has_both_ends = place.has_both_ends;
    situation.measured_ns = exact_cost_ns(growth);
    let of = |quantity| growth.count(MeterName::Exact, quantity);
    let peers = of(Quantity::ExactPeerSoftirqNs).zip(of(Quantity::ExactOwnSoftirqNs));
    if peers.is_some_and(|(peers, own)| peers > PEERS_LEAST * own) && place.has_both_ends {
        situation.measured_ns = None;
        notes.push("Skbs and ACKs are of both ends, which are on this host, and CPU time is of one: savings are shares of TCP's cost by prices.".to_string());
    } else if !observed.is_alone {
        notes.push("Skbs, ACKs and connections are those of the whole network namespace (--fresh-netns separates a command's).".to_string());
    }
    situation.units = growth.work(Quantity::Transactions);
    situation.settings = place.settings;
    situation.kernel = release(&tcpcost_host::machine::host().kernel);
    situation.prices =
        prices.and_then(|list| fits(list, &place.device, situation.settings.get("driver")));
    notes.extend(growth.warnings.iter().cloned());
    if target.of.per.is_some() && situation.units.is_none() {
        notes.push(
            "--per: no such number in the output, so costs are of the whole run.".to_string(),
        );
    }
    let subject = Subject {
        name: if situation.units.is_some() {
            "A unit".to_string()
        } else {
            target.name()
        },
        target: words(target),
        load: line(&target.command),
        device: place.device,
        within: place.within,
    };
    answer(subject, &situation, notes)
}

/// Prices, if they are of the device that carries the traffic.
fn fits<'a>(
    list: &'a PriceList,
    device: &str,
    driver: Option<&str>,
) -> Result<&'a PriceList, String> {
    let is_virtual = matches!(driver, None | Some("lo" | "veth"));
    if is_virtual && list.place.device == "veth" || driver == Some(list.place.device.as_str()) {
        return Ok(list);
    }
    Err(format!(
        "the prices are of {}, and this traffic passes {device} ({})",
        list.place.device,
        driver.unwrap_or("no driver")
    ))
}

/// Line for a shell that runs a command.
fn line(command: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let words = command.iter().map(|word| match word.chars().all(is_plain) {
        true if !word.is_empty() => word.clone(),
        _ => format!("'{}'", word.replace('\'', "'\\''")),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Options of `tcpcost stat` that name a target.
fn words(target: &TargetArgs) -> String {
    if let Some(name) = &target.of.netns {
        return format!("--netns {name}");
    }
    if let Some(cgroup) = &target.of.cgroup {
        return format!("--cgroup {}", cgroup.display());
    }
    match &target.of.pid[..] {
        [] if target.of.fresh_netns => "--fresh-netns".to_string(),
        [] => String::new(),
        pids => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("--pid {}", pids.join(","))
        }
    }
}

fn of_files(files: &[PathBuf], prices: Result<&PriceList, String>) -> anyhow::Result<Vec<Answer>> {
    let (runs, captures) = stored::parted(files)?;
    let mut answers = Vec::new();
    for path in runs {
        let run = StoredRun::load(&path)?;
        let cells = stored::cells(&run);
        anyhow::ensure!(
            !cells.is_empty(),
            "{}: no trial has CPU time and counts by eBPF: nothing to advise",
            path.display()
        );
        for cell in &cells {
            let situation = cell.situation(prices.clone());
            let name = match situation.units {
                Some(_) => format!("{}: a response", cell.name),
                None => cell.name.clone(),
            };
            let subject = Subject {
                name,
                ..Subject::default()
            };
            let note = "Costs and savings are of both ends together.".to_string();
            answers.push(answer(subject, &situation, vec![note]));
        }
    }
    for path in captures {
        let growth = stored::capture(&path)?;
        let mut situation = Situation::of(&growth, 0.0);
        situation.prices = Err("a capture has no calls and no CPU time".to_string());
        let subject = Subject {
            name: path.display().to_string(),
            ..Subject::default()
        };
        let note = "Counts are of the servers' ends of the captured connections.".to_string();
        answers.push(answer(subject, &situation, vec![note]));
    }
    Ok(answers)
}

fn answer(subject: Subject, situation: &Situation<'_>, notes: Vec<String>) -> Answer {
    let prices = match &situation.prices {
        Ok(list) => format!(
            "Prices: tcpcost model, {} ago, over {}. {}",
            age(age_s(list)),
            list.place.device,
            list.accuracy_text()
        ),
        Err(why) => format!("{}: no numbers: {why}.", subject.name),
    };
    Answer {
        advised: advise(situation),
        subject,
        remarks: Remarks { prices, notes },
    }
}

fn print(answers: &[Answer], output: &Output<TextOrJson>) -> anyhow::Result<()> {
    let text = || -> String {
        let texts = answers
            .iter()
            .map(|one| one.advised.text(&one.subject, &one.remarks));
        texts.collect::<Vec<_>>().join("\n")
    };
    for (format, _) in output.each() {
        match format {
            Format::Json => {
                let advised = answers.iter();
                let advised = advised.map(|one| one.advised.json(&one.subject, &one.remarks));
                let document = serde_json::json!({
                    "schema_version": SCHEMA_VERSION,
                    "advised": advised.collect::<Vec<_>>(),
                });
                output::write_json(&format!("{document}\n"))?
            }
            _ => output::write(&text())?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tcpcost_model::advice::rules;

    use super::*;
    use crate::{compare, pages};

    #[test]
    fn the_parser_takes_the_line_that_verifies_each_rule() {
        let mut subject = Subject {
            name: "nginx".to_string(),
            target: "--pid 2214".to_string(),
            load: "./load :80".to_string(),
            device: "eth0".to_string(),
            within: "nsenter -t 2214 -n ".to_string(),
        };
        for target in [
            "--pid 2214",
            "--netns web",
            "--cgroup /sys/fs/cgroup/web",
            "--fresh-netns",
            "",
        ] {
            subject.target = target.to_string();
            for rule in rules() {
                let line = subject.lines(rule).verify;
                let words = pages::words(&line);
                assert_eq!(pages::refused(&words, true), None, "{}: {line}", rule.id);
                let versus = words.iter().filter(|word| *word == "--versus").count();
                assert_eq!(versus, 1, "{}: {line}", rule.id);
            }
        }
    }

    #[test]
    fn a_command_is_one_line_for_a_shell() {
        let words = ["sh", "-c", "echo 'a b' > c", "x"].map(String::from);
        assert_eq!(line(&words), r"sh -c 'echo '\''a b'\'' > c' x");
    }

    #[test]
    fn each_rule_has_a_study_that_has_its_knobs() {
        let wrong: Vec<String> = rules()
            .filter_map(|rule| {
                let error = compare::tests::check(&pages::words(rule.study)).err()?;
                Some(format!("{}: {}: {error}", rule.id, rule.study))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
