//! docs/commands.md.

use clap::Arg;
use clap::builder::PossibleValue;

use super::pages;
use crate::reference;

/// Returns docs/commands.md.
pub fn markdown() -> String {
    let pages = pages();
    let [root, below @ ..] = &pages[..] else {
        return String::new();
    };
    let mut text = format!("{HEAD}| command | purpose |\n|---|---|\n");
    for page in below {
        let (words, about) = (&page.words, page.about());
        text += &format!(
            "| [`tcpcost {words}`](#tcpcost-{}) | {about} |\n",
            words.replace(' ', "-")
        );
    }
    let codes = reference::exit_codes("");
    let codes: String = codes
        .iter()
        .map(|(code, meaning)| format!("| {code} | {meaning} |\n"))
        .collect();
    text += &format!(
        "\nOptions of every command:\n\n{}{EXIT_CODES}{codes}\n",
        options(root.command.get_arguments()),
    );
    for page in below {
        let known = |arg: &&Arg| {
            root.command
                .get_arguments()
                .all(|one| one.get_id() != arg.get_id())
        };
        let args = page.command.get_arguments().filter(known);
        text += &format!("## tcpcost {}\n\n{}\n\n", page.words, page.about());
        let usage = page.command.clone().render_usage().to_string();
        text += &block(&[
            usage.trim_start_matches("Usage: ").trim_end(),
            page.usage.as_deref().unwrap_or_default(),
        ]);
        text += &options(args);
        if let Some(notes) = &page.notes {
            text += &block(&[notes]);
        }
        text += &(reference::exit_codes_line(&page.words) + "\n");
        for (file, contents) in reference::files(&page.words) {
            text += &format!("\n- `{file}`: {contents}");
        }
        text += "\n\n";
    }
    text.trim_end().to_string() + "\n"
}

/// Returns a table of options and arguments, and the lists in their help. An empty text if there are none.
fn options<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let (mut rows, mut lists) = (String::new(), String::new());
    for arg in args.filter(|arg| !arg.is_hide_set()) {
        let short = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(_)) => format!("-{short}, "),
            _ => String::new(),
        };
        let help = arg.get_long_help().or(arg.get_help());
        let help = help.map(ToString::to_string).unwrap_or_default();
        let (help, list) = help.split_once('\n').unwrap_or((&help, ""));
        if !list.is_empty() && arg.get_id() != "format" {
            lists += &format!("`{arg}`:\n\n{}", block(&[list.trim_matches('\n')]));
        }
        let mut notes = String::new();
        if arg.get_action().takes_values() {
            let defaults = arg.get_default_values().iter();
            notes += &note("default", defaults.map(|one| one.to_string_lossy()));
            let values = arg.get_possible_values();
            notes += &note(
                "possible values",
                values.iter().map(PossibleValue::get_name),
            );
        }
        let help = help.replace('|', "\\|").replace('<', "&lt;");
        let name = format!("{short}{arg}").replace('|', "\\|");
        rows += &format!("| `{name}` | {help}{notes} |\n");
    }
    if rows.is_empty() {
        return rows;
    }
    format!("| option | meaning |\n|---|---|\n{rows}\n{lists}")
}

/// Returns values in brackets, as the help does. An empty text if there are none.
fn note<T: Into<String>>(name: &str, values: impl Iterator<Item = T>) -> String {
    let values: Vec<String> = values.map(Into::into).collect();
    if values.is_empty() {
        return String::new();
    }
    format!(" [{name}: {}]", values.join(", "))
}

/// Returns a block of lines that are kept as they are.
fn block(texts: &[&str]) -> String {
    let texts: Vec<&str> = texts
        .iter()
        .copied()
        .filter(|text| !text.is_empty())
        .collect();
    format!("```text\n{}\n```\n\n", texts.join("\n\n"))
}

const HEAD: &str = "# Commands

Made from the parser of the command line; to make it again: `TCPCOST_REWRITE=1 cargo test -p tcpcost --test generate`.
`tcpcost COMMAND --help` prints the same, and packages have it as manual pages (`man tcpcost-run`). Each `--format` is described
[with the exports](records.md#exports).

";

const EXIT_CODES: &str = "## Exit codes

A command below names those that it has, and what else they mean there.

| code | meaning |
|---|---|
";
