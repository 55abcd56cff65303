//! Test that the parser takes every command of README.md and of the pages for users.

use std::fs;
use std::path::Path;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use crate::cli::Cli;
use crate::screen;

/// Splits text by a shell's rules up to the end of its first command: a pipe, a redirection, `&`, `;` or a
/// comment.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in text.chars() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, '|' | '>' | '<' | '&' | ';') => break,
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Words of the tcpcost command that a line begins with, after `sudo`, `$ ` and settings of the
/// environment.
fn command(line: &str) -> Option<Vec<String>> {
    let mut words = words(line.trim_start().trim_start_matches("$ "));
    let is_before = |word: &String| word == "sudo" || word.contains('=') && !word.contains('/');
    let before = words.iter().take_while(|word| is_before(word)).count();
    words.drain(..before);
    let is_placeholder = words.get(1).is_some_and(|word| word == "COMMAND");
    (words.first()? == "tcpcost" && !is_placeholder).then_some(words)
}

/// A page in which each command is one line, with the values of the variables that it sets, and 1 for the
/// output of a command.
fn expanded(page: &str) -> String {
    let mut page = page.replace("\\\n", " ");
    let set = page
        .lines()
        .filter_map(|line| line.strip_suffix('"')?.split_once("=\""));
    let set: Vec<(String, String)> = set
        .filter(|(name, _)| name.chars().all(|letter| letter.is_ascii_lowercase()))
        .map(|(name, value)| (format!("${name}"), value.to_string()))
        .collect();
    for (name, value) in set {
        page = page.replace(&name, &value);
    }
    while let Some(begin) = page.find("$(") {
        let end = page[begin..]
            .find(')')
            .map_or(page.len(), |end| begin + end + 1);
        page.replace_range(begin..end, "1");
    }
    page
}

/// Commands of a page: lines of its blocks, and what is in backquotes, in which words may be missing or
/// stand for others.
fn commands(page: &str) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for line in expanded(page).lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            found.extend(command(line).map(|words| (words, true)));
        } else {
            // A bar in a table is escaped; brackets hold what may be left out.
            let line = line.replace("\\|", "|").replace(['[', ']'], "");
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(command).map(|words| (words, false)));
        }
    }
    found
}

/// Error of the parser. A command that is quoted in a sentence may lack words.
pub(crate) fn refused(words: &[String], is_whole: bool) -> Option<String> {
    let matches = screen::command().try_get_matches_from(words);
    let error = matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .err()?;
    let lacks = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ErrorKind::InvalidValue,
        ErrorKind::ValueValidation,
    ];
    let is_answered = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    );
    let is_right = is_answered || !is_whole && lacks.contains(&error.kind());
    (!is_right).then(|| {
        error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_string()
    })
}

#[test]
fn the_parser_takes_every_command_of_the_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    let docs = fs::read_dir(root.join("docs")).unwrap();
    paths.extend(docs.map(|entry| entry.unwrap().path()));
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    // It is printed by the parser.
    paths.retain(|path| !path.ends_with("commands.md"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in paths {
        let page = fs::read_to_string(&path).unwrap();
        for (words, is_whole) in commands(&page) {
            count += 1;
            if let Some(error) = refused(&words, is_whole) {
                let name = path.file_name().unwrap().display();
                wrong.push(format!("{name}: {}: {error}", words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 150, "{count}");
}

#[test]
fn a_line_is_split_as_by_a_shell() {
    let line = "$ h=server sudo tcpcost run a.xml --set 'x=1 2' -- \"b c\" > out # comment";
    let expected = ["tcpcost", "run", "a.xml", "--set", "x=1 2", "--", "b c"];
    assert_eq!(command(line).unwrap(), expected);
    assert_eq!(command("cat tcpcost"), None);
}
