//! `tcpcost generate`: man pages, completions and docs/commands.md, made from the parser of the command line. The program
//! prints them itself, so a package needs no second build for them.

mod man;
mod markdown;

use clap::builder::{Resettable, StyledStr};
use clap::{Command, CommandFactory};
use clap_complete::Generator;
use clap_complete::shells::{Bash, Fish, Zsh};

use crate::cli::{Cli, GenerateCommand};
use crate::{fronts, screen};

/// Returns the text to print.
pub fn generate(command: &GenerateCommand) -> anyhow::Result<String> {
    match command {
        GenerateCommand::Man { directory } => man::write(directory).map(|()| String::new()),
        GenerateCommand::Bash => completions(Bash),
        GenerateCommand::Zsh => completions(Zsh),
        GenerateCommand::Fish => completions(Fish),
        GenerateCommand::Commands => Ok(markdown::markdown()),
    }
}

fn completions(shell: impl Generator) -> anyhow::Result<String> {
    let mut script = Vec::new();
    let mut command = visible(&screen::command());
    clap_complete::generate(shell, &mut command, "tcpcost", &mut script);
    Ok(String::from_utf8(script)?)
}

/// Copies a command for completions, which would offer hidden commands, too.
fn visible(command: &Command) -> Command {
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    Command::new(command.get_name().to_string())
        .about(command.get_about().cloned().unwrap_or_default())
        .disable_help_subcommand(true)
        .args(command.get_arguments())
        .groups(command.get_groups())
        .subcommands(below.map(visible))
}

/// A command, and what is said about it beyond its options.
struct Page {
    /// Words that call the command: "" for `tcpcost` itself, `kernels bisect`.
    words: String,
    command: Command,
    /// Usage text of a command that parses its own options.
    usage: Option<String>,
    /// Examples or notes.
    notes: Option<String>,
}

impl Page {
    fn about(&self) -> String {
        self.command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// Returns `tcpcost` and each visible command below it, in the order of the help.
fn pages() -> Vec<Page> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add_pages(root, String::new(), &mut pages);
    pages
}

fn add_pages(command: Command, words: String, pages: &mut Vec<Page>) {
    let below: Vec<Command> = command
        .get_subcommands()
        .filter(|one| !one.is_hide_set())
        .cloned()
        .collect();
    let notes = command.get_after_long_help().map(ToString::to_string);
    let reset = || Resettable::<StyledStr>::Reset;
    let mut command = command.after_long_help(reset()).after_help(reset());
    let mut usage = None;
    if let Some(front) = fronts::usage(&words) {
        let (line, options) = front.text.split_once('\n').unwrap_or((&front.text, ""));
        let line = line.replacen("Usage: ", "tcpcost ", 1);
        command = command.override_usage(line).mut_args(|arg| arg.hide(true));
        usage = Some(options.trim_matches('\n').to_string());
    }
    pages.push(Page {
        words: words.clone(),
        command,
        usage,
        notes,
    });
    for one in below {
        let words = format!("{words} {}", one.get_name())
            .trim_start()
            .to_string();
        add_pages(one, words, pages);
    }
}
