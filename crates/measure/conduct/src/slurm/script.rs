//! Job that runs a study: its batch script, and its submission by sbatch.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use tcpcost_console::output;

/// A job to submit.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// Name of the study.
    pub study: &'a str,
    /// Directory of the run: an absolute path that the nodes see, too.
    pub directory: &'a Path,
    /// Path of this program: an absolute path that the nodes see, too.
    pub program: &'a Path,
    /// Number of nodes; `None` if the study does not say.
    pub nodes: Option<usize>,
    /// True if the study's own commands may run.
    pub allows_exec: bool,
}

impl Job<'_> {
    /// Returns the batch script. Its #SBATCH lines are defaults: options on sbatch's command line
    /// override them.
    ///
    /// A task of a job array runs its share of the repetitions. A failed node does not end the job,
    /// because changes on the other nodes must be restored first. A requeued job resumes its run.
    pub fn script(&self) -> String {
        let nodes = match self.nodes {
            Some(nodes) => format!("#SBATCH --nodes={}\n", nodes.max(1)),
            None => String::new(),
        };
        let directory = self.directory.to_string_lossy();
        // sbatch replaces fields that begin with %; %% is a literal %.
        let log = directory.replace('%', "%%") + "/slurm-%j.out";
        format!(
            "\
#!/bin/sh
#SBATCH --job-name={name}
{nodes}#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --no-kill
#SBATCH --output={log}
#SBATCH --open-mode=append
if [ -n \"$SLURM_ARRAY_TASK_ID\" ]; then
    set -- --share \"$(((SLURM_ARRAY_TASK_ID - SLURM_ARRAY_TASK_MIN) / ${{SLURM_ARRAY_TASK_STEP:-1}}))/$SLURM_ARRAY_TASK_COUNT\"
fi
exec {program} run --slurm{allow} --resume {directory} \"$@\"
",
            allow = if self.allows_exec { " --allow-exec" } else { "" },
            name = quoted(&format!("tcpcost-{}", self.study)),
            log = quoted(&log),
            program = quoted(&self.program.to_string_lossy()),
            directory = quoted(&directory),
        )
    }
}

/// Quotes a text as one word for a shell, or for an #SBATCH line.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./%,:+@".contains(c);
    if text.chars().all(is_plain) && !text.is_empty() {
        text.to_string()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Submits a script with these options of sbatch, and prints the job's number. Returns when sbatch
/// ends: with its option `--wait`, when the job has ended. True if sbatch exited with 0.
///
/// # Errors
/// sbatch cannot be started, or refuses the job.
pub fn submit(script: &str, options: &[String], directory: &Path) -> anyhow::Result<bool> {
    let mut child = Command::new("sbatch")
        .arg("--parsable")
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start sbatch")?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A failed write is no error: sbatch does not read the script if it refuses its options. Its
    // message on standard error has the reason.
    let _ = stdin.write_all(script.as_bytes());
    drop(stdin);
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout is piped");
    let mut stdout = BufReader::new(stdout.take(SAID_BYTES_MAX));
    stdout.read_line(&mut line).context("read from sbatch")?;
    // Format: `JOB;CLUSTER`.
    let job = line.trim().split(';').next().unwrap_or_default();
    if !job.is_empty() {
        output::say!(
            "tcpcost: job {job}; records and report: {}",
            directory.display()
        );
    }
    let mut said = String::new();
    let stderr = child.stderr.take().expect("stderr is piped");
    let _ = stderr.take(SAID_BYTES_MAX).read_to_string(&mut said);
    let status = child.wait().context("wait for sbatch")?;
    let said: Vec<&str> = said.lines().collect();
    if job.is_empty() {
        bail!("{}", said.join("; "));
    }
    if !status.success() {
        let why = said.first().copied().unwrap_or("see there");
        output::say!("tcpcost: job {job} did not end well ({status}): {why}");
    }
    Ok(status.success())
}

/// Limit of the bytes read from each of sbatch's outputs: the job's number, or the reason for
/// refusal.
const SAID_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_asks_for_the_nodes_and_goes_on_with_the_run() {
        let job = Job {
            study: "acks",
            directory: Path::new("/home/a user/out 50%"),
            program: Path::new("/usr/bin/tcpcost"),
            nodes: Some(2),
            allows_exec: false,
        };
        let script = job.script();
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "#!/bin/sh",
                "#SBATCH --job-name=tcpcost-acks",
                "#SBATCH --nodes=2"
            ]
        );
        assert!(
            lines.contains(&"#SBATCH --output='/home/a user/out 50%%/slurm-%j.out'"),
            "{script}"
        );
        let last = "exec /usr/bin/tcpcost run --slurm --resume '/home/a user/out 50%' \"$@\"";
        assert_eq!(lines.last(), Some(&last));
        let without = Job {
            nodes: None,
            allows_exec: true,
            ..job
        }
        .script();
        assert!(!without.contains("--nodes"), "{without}");
        assert!(
            without.contains(" run --slurm --allow-exec --resume "),
            "{without}"
        );
    }

    #[test]
    fn a_word_stays_one_word() {
        for (text, word) in [
            ("a-b/c.d", "a-b/c.d"),
            ("", "''"),
            ("it's $HOME", "'it'\\''s $HOME'"),
        ] {
            assert_eq!(quoted(text), word);
        }
    }

    /// Runs the script in a shell, with `echo` in place of the program.
    #[test]
    fn a_task_of_an_array_does_its_share() {
        let job = Job {
            study: "s",
            directory: Path::new("/d"),
            program: Path::new("echo"),
            nodes: None,
            allows_exec: false,
        };
        let run = |variables: &[(&str, &str)]| {
            let mut shell = Command::new("/bin/sh");
            shell
                .arg("-c")
                .arg(job.script())
                .env_clear()
                .env("PATH", "/bin:/usr/bin");
            let output = shell.envs(variables.iter().copied()).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(run(&[]), "run --slurm --resume /d\n");
        let of_array = [
            ("SLURM_ARRAY_TASK_ID", "14"),
            ("SLURM_ARRAY_TASK_MIN", "10"),
            ("SLURM_ARRAY_TASK_STEP", "2"),
            ("SLURM_ARRAY_TASK_COUNT", "5"),
        ];
        assert_eq!(run(&of_array), "run --slurm --resume /d --share 2/5\n");
    }
}
