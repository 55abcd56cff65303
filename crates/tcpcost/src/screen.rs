//! The first screen: the commands in groups.

use clap::{Arg, Command, CommandFactory};

use crate::cli::Cli;
use crate::reference;

/// Groups of commands. Names in one row share its line, and the first one describes them.
const GROUPS: [(&str, &[&[&str]]); 4] = [
    ("Measure", &[&["run"], &["compare"], &["stat"], &["watch"]]),
    (
        "Explain",
        &[&["trace"], &["explain"], &["advise"], &["model"]],
    ),
    (
        "Make traffic",
        &[&["peer"], &["relay"], &["netperf", "netserver", "uperf"]],
    ),
    (
        "Prepare and read",
        &[&["study"], &["report"], &["kernels"], &["doctor"]],
    ),
];

/// Returns the parser of the command line.
pub fn command() -> Command {
    let command = Cli::command();
    let mut rows = String::new();
    for (title, group) in GROUPS {
        rows += &format!("\n{title}:\n");
        for names in group {
            let first = command.find_subcommand(names[0]);
            let about = first.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            match names {
                [name] => rows += &format!("  {name:<8}  {about}\n"),
                names => rows += &format!("  {}\n            {about}\n", names.join(", ")),
            }
        }
    }
    with_exit_codes(shortened(command), "").help_template(format!(
        "{{about}}\n\nUsage: tcpcost COMMAND …      tcpcost COMMAND -h; --help has all\n{rows}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Adds the exit codes to the help of `tcpcost` and to `--help` of each command. `words`: the words that call the command.
fn with_exit_codes(command: Command, words: &str) -> Command {
    let below = if words.is_empty() {
        String::new()
    } else {
        format!("{words} ")
    };
    let command = command.mut_subcommands(|one| {
        let words = format!("{below}{}", one.get_name());
        with_exit_codes(one, &words)
    });
    let codes = reference::exit_codes_line(words);
    if words.is_empty() {
        return command.after_help(codes);
    }
    let text = command
        .get_after_long_help()
        .map(|text| format!("{text}\n\n"));
    command.after_long_help(text.unwrap_or_default() + &codes)
}

/// Makes `-h` of a command and of its subcommands short: the first clause of each option's help.
/// `--help` has the whole text.
fn shortened(command: Command) -> Command {
    command.mut_args(short_arg).mut_subcommands(shortened)
}

fn short_arg(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else {
        return arg;
    };
    let long = arg
        .get_long_help()
        .map_or_else(|| help.clone(), ToString::to_string);
    let short = first_clause(&help);
    arg.help(short).long_help(long)
}

/// Returns a text up to its first `. `, `; ` or `: `, and the default in brackets at its end. The
/// condition of an option (`With --guest: …`) is part of its first clause.
fn first_clause(text: &str) -> String {
    let (body, default) = match text.rfind(" [default: ") {
        Some(at) if text.ends_with(']') => text.split_at(at),
        _ => (text, ""),
    };
    let condition = match body.find(": ") {
        Some(at) if body.starts_with("With ") => at + 1,
        _ => 0,
    };
    let mut ends = body.match_indices(['.', ';', ':']).map(|(at, _)| at);
    let is_end = |at: &usize| {
        *at > condition && body[at + 1..].starts_with(' ') && !body[..*at].ends_with("e.g")
    };
    let end = ends.find(is_end).unwrap_or(body.len());
    format!("{}{default}", &body[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit on the options of all commands together. Lower it when one goes.
    const OPTIONS_MAX: usize = 161;

    /// Options of a command and of those below it, as `run --set`. Not `--help` and `--version`.
    fn options(command: &Command, path: &str, list: &mut Vec<String>) {
        let visible = command.get_arguments().filter(|arg| !arg.is_positional());
        for arg in visible.filter(|arg| !arg.is_hide_set()) {
            let name = match (arg.get_long(), arg.get_short()) {
                (Some(long), _) => format!("--{long}"),
                (None, short) => format!("-{}", short.expect("an option has a name")),
            };
            list.push(format!("{path}{name}"));
        }
        for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            options(below, &format!("{path}{} ", below.get_name()), list);
        }
    }

    #[test]
    fn there_are_few_options() {
        let mut list = Vec::new();
        options(&command(), "", &mut list);
        println!("{}", list.join("\n"));
        let count = list.len();
        assert!(
            count <= OPTIONS_MAX,
            "{count} options:\n{}",
            list.join("\n")
        );
    }

    #[test]
    fn a_clause_ends_at_a_stop_and_keeps_the_default() {
        for (text, clause) in [
            ("Seed.", "Seed."),
            ("Length, e.g. 2s; or so", "Length, e.g. 2s"),
            ("Time: of all. More [default: 1s]", "Time [default: 1s]"),
            ("Time [default: a; b]", "Time [default: a; b]"),
            ("With --x: two; more", "With --x: two"),
        ] {
            assert_eq!(first_clause(text), clause);
        }
    }

    /// Checks the short help of a command and of those below it.
    fn check_short(command: &mut Command, path: &str) {
        let screen = command.render_help().to_string();
        let lines = screen.lines().count();
        assert!(lines <= LINES_MAX, "{path}: {lines} lines\n{screen}");
        for below in command
            .get_subcommands_mut()
            .filter(|one| !one.is_hide_set())
        {
            let path = format!("{path} {}", below.get_name());
            check_short(below, &path);
        }
    }

    /// Lines of a large terminal's screen.
    const LINES_MAX: usize = 40;

    #[test]
    fn the_short_help_of_each_command_fits_a_screen() {
        let mut command = command().term_width(120);
        command.build();
        check_short(&mut command, "tcpcost");
    }

    #[test]
    fn the_first_screen_has_each_command_once_in_at_most_fifteen_rows() {
        let rows = GROUPS.iter().flat_map(|(_, rows)| rows.iter());
        assert!(rows.clone().count() <= 15);
        let mut shown: Vec<&str> = rows.flat_map(|names| names.iter().copied()).collect();
        let command = command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        let mut all: Vec<&str> = visible.map(Command::get_name).collect();
        shown.sort_unstable();
        all.sort_unstable();
        assert_eq!(shown, all);
        let screen = command.clone().render_help().to_string();
        assert!(screen.lines().count() <= 36, "{screen}");
        assert!(
            screen.lines().all(|line| line.chars().count() <= 100),
            "{screen}"
        );
    }
}
