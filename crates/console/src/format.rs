//! `--format NAME` and `-o FILE`: one table of formats for all commands.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// A format of results.
#[allow(missing_docs, reason = "the table below describes each format")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Details,
    Json,
    Csv,
    Markdown,
    Ktap,
    Junit,
    Nipa,
    Bmf,
    GithubBenchmark,
    Openmetrics,
    Flame,
    Html,
    Screen,
    Lines,
    Manifest,
}

/// Name and description of each format.
const TABLE: &[(Format, &str, &str)] = &[
    (Format::Text, "text", "for a reader"),
    (
        Format::Details,
        "details",
        "text with all tables: owners of CPU time, methods side by side, ACKs, response times, functions, captures",
    ),
    (
        Format::Json,
        "json",
        "JSON: one document, or one a line from a command that goes on",
    ),
    (Format::Csv, "csv", "rows with one header line"),
    (
        Format::Markdown,
        "markdown",
        "Markdown for a pull request: findings, thresholds, a table",
    ),
    (
        Format::Ktap,
        "ktap",
        "KTAP, as the kernel's tests: a test for each cell and threshold",
    ),
    (Format::Junit, "junit", "the same tests as JUnit's XML"),
    (
        Format::Nipa,
        "nipa",
        "the same tests as JSON of netdev's CI",
    ),
    (Format::Bmf, "bmf", "Bencher Metric Format"),
    (
        Format::GithubBenchmark,
        "github-benchmark",
        "JSON for github-action-benchmark (customSmallerIsBetter)",
    ),
    (
        Format::Openmetrics,
        "openmetrics",
        "OpenMetrics text with timestamps",
    ),
    (
        Format::Flame,
        "flame",
        "flame graph (SVG) of --cell, or the difference of two cells",
    ),
    (Format::Html, "html", "a page with charts"),
    (
        Format::Screen,
        "screen",
        "a screen on a terminal, else lines",
    ),
    (Format::Lines, "lines", "a line of text for each interval"),
    (
        Format::Manifest,
        "manifest",
        "objects of Kubernetes whose pods are the study's hosts",
    ),
];

impl Format {
    fn row(self) -> &'static (Format, &'static str, &'static str) {
        let row = TABLE.iter().find(|row| row.0 == self);
        row.expect("each format has a row")
    }

    /// Returns the name that `--format` takes.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// True if the format is text for a reader.
    pub fn is_text(self) -> bool {
        matches!(self, Format::Text | Format::Details)
    }
}

/// Formats that a command has. The first one is its default.
pub trait Formats {
    /// The formats.
    const FORMATS: &'static [Format];
    /// True if results go to files, too (`-o`).
    const HAS_FILES: bool = true;
}

/// Declares the formats of commands.
macro_rules! formats {
    ($($(#[$doc:meta])* $name:ident($has_files:literal): $($format:ident)+;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub enum $name {}

        impl Formats for $name {
            const FORMATS: &'static [Format] = &[$(Format::$format),+];
            const HAS_FILES: bool = $has_files;
        }
    )+};
}

formats! {
    /// Formats of `run`, `compare`, `kernels` and `kernels bisect`.
    RunFormats(true): Text Details Json Csv Markdown Ktap Junit Nipa Bmf GithubBenchmark Openmetrics;
    /// Formats of `report`.
    ReportFormats(true): Text Details Json Csv Markdown Ktap Junit Nipa Bmf GithubBenchmark Openmetrics Flame;
    /// Formats of `stat`.
    StatFormats(true): Text Json Csv;
    /// Formats of `trace`.
    TraceFormats(true): Text Json Csv Html;
    /// Formats of `watch`.
    WatchFormats(false): Screen Lines Json;
    /// Formats of `study list`.
    ListFormats(false): Text Json Csv;
    /// Formats of `study show`.
    ShowFormats(false): Text Manifest;
    /// Formats of `doctor`, `peer`, `relay`, `model` and `explain`.
    TextOrJson(false): Text Json;
}

/// Value of `--format` and `-o`: the formats asked for, each with its file.
#[derive(Debug, Clone)]
pub struct Output<C> {
    asked: Vec<(Format, Option<PathBuf>)>,
    command: PhantomData<C>,
}

/// The command's default format, printed.
impl<C: Formats> Default for Output<C> {
    fn default() -> Self {
        Self {
            asked: vec![(C::FORMATS[0], None)],
            command: PhantomData,
        }
    }
}

impl<C: Formats> Output<C> {
    /// Returns each format with its file. `None` is standard output.
    pub fn each(&self) -> impl Iterator<Item = (Format, Option<&Path>)> {
        let asked = self.asked.iter();
        asked.map(|(format, file)| (*format, file.as_deref()))
    }

    /// True if this format is asked for.
    pub fn has(&self, format: Format) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == format)
    }

    /// True if a result is written to a file.
    pub fn has_files(&self) -> bool {
        self.asked.iter().any(|(_, file)| file.is_some())
    }

    /// True if every format is text for a reader.
    pub fn is_text(&self) -> bool {
        self.asked.iter().all(|(format, _)| format.is_text())
    }

    /// Returns the same formats for another command.
    ///
    /// # Errors
    /// The first format that the other command does not have, with the formats that it has.
    pub fn into_formats_of<D: Formats>(self) -> anyhow::Result<Output<D>> {
        let unknown = |(format, _): &&(Format, Option<PathBuf>)| !D::FORMATS.contains(format);
        if let Some((format, _)) = self.asked.iter().find(unknown) {
            bail!("--format {}: expected {}", format.name(), names::<D>());
        }
        Ok(Output {
            asked: self.asked,
            command: PhantomData,
        })
    }
}

/// Lists the formats of a command: `text, json or csv`.
fn names<C: Formats>() -> String {
    let names: Vec<&str> = C::FORMATS.iter().map(|format| format.name()).collect();
    let (last, others) = names.split_last().expect("a command has a format");
    match others {
        [] => last.to_string(),
        others => format!("{} or {last}", others.join(", ")),
    }
}

fn parse<C: Formats>(name: &str) -> anyhow::Result<Format> {
    let mut formats = C::FORMATS.iter().copied();
    let found = formats.find(|format| format.name() == name);
    found.with_context(|| format!("expected {}", names::<C>()))
}

impl<C: Formats + 'static> Args for Output<C> {
    fn augment_args(command: Command) -> Command {
        let rows = C::FORMATS.iter().map(|format| format.row());
        let rows = rows.map(|(_, name, doc)| format!("\n  {name:<16}  {doc}"));
        let again = if C::HAS_FILES {
            "; may be repeated"
        } else {
            ""
        };
        let help = format!("Format of the results ({}){again}", names::<C>());
        let format = Arg::new("format")
            .long("format")
            .value_name("NAME")
            .value_parser(parse::<C>)
            .long_help(format!("{help}\n{}", rows.collect::<String>()))
            .help(help);
        if !C::HAS_FILES {
            return command.arg(format);
        }
        let file = Arg::new("output")
            .long("output")
            .short('o')
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .action(ArgAction::Append)
            .help("Write the --format before it to a file, instead of printing it");
        let format = format.action(ArgAction::Append);
        command.arg(format).arg(file)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Formats + 'static> FromArgMatches for Output<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let formats = matches.get_many::<Format>("format").into_iter().flatten();
        let at = matches.indices_of("format").into_iter().flatten();
        let formats: Vec<(usize, Format)> = at.zip(formats.copied()).collect();
        let mut asked: Vec<(Format, Option<PathBuf>)> =
            formats.iter().map(|(_, format)| (*format, None)).collect();
        if asked.is_empty() {
            asked.push((C::FORMATS[0], None));
        }
        if C::HAS_FILES {
            let files = matches.get_many::<PathBuf>("output").into_iter().flatten();
            let at = matches.indices_of("output").into_iter().flatten();
            for (at, file) in at.zip(files) {
                let before = formats.iter().rposition(|(format_at, _)| *format_at < at);
                let (format, taken) = &mut asked[before.unwrap_or(0)];
                if taken.replace(file.clone()).is_some() {
                    let name = format.name();
                    let text =
                        format!("two files for --format {name}: each file follows its --format\n");
                    return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
                }
            }
        }
        if asked.iter().filter(|(_, file)| file.is_none()).count() > 1 {
            let text = "one --format can be printed: give the others a file each (--format NAME -o FILE)\n";
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, text));
        }
        Ok(Self {
            asked,
            command: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Stat {
        #[command(flatten)]
        output: Output<StatFormats>,
    }

    fn asked(line: &str) -> Result<Vec<(Format, Option<String>)>, String> {
        let words = ["stat"].into_iter().chain(line.split_whitespace());
        let stat = Stat::try_parse_from(words).map_err(|error| error.to_string())?;
        let each = stat.output.each();
        Ok(each
            .map(|(format, file)| (format, file.map(|file| file.display().to_string())))
            .collect())
    }

    #[test]
    fn a_file_is_for_the_format_before_it() {
        let file = |name: &str| Some(name.to_string());
        assert_eq!(asked(""), Ok(vec![(Format::Text, None)]));
        assert_eq!(asked("-o a"), Ok(vec![(Format::Text, file("a"))]));
        assert_eq!(
            asked("-o a --format json"),
            Ok(vec![(Format::Json, file("a"))])
        );
        assert_eq!(
            asked("--format text --format json -o a --format csv -o b"),
            Ok(vec![
                (Format::Text, None),
                (Format::Json, file("a")),
                (Format::Csv, file("b")),
            ])
        );
    }

    #[test]
    fn what_a_command_has_not_is_refused_with_what_it_has() {
        let error = asked("--format bmf").unwrap_err();
        assert!(error.contains("expected text, json or csv"), "{error}");
        assert!(asked("--format json --format csv").is_err());
        assert!(asked("--format json -o a -o b").is_err());
        let runs = Output::<RunFormats> {
            asked: vec![(Format::Bmf, None)],
            command: PhantomData,
        };
        let error = runs.into_formats_of::<StatFormats>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "--format bmf: expected text, json or csv"
        );
    }

    #[test]
    fn each_format_has_one_row_and_one_name() {
        for (index, (format, name, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[..index].iter().all(|row| row.1 != *name), "{name}");
            assert_eq!(format.name(), *name);
        }
    }

    /// Commands with their formats, in the order of the page.
    const COMMANDS: &[(&str, &[Format])] = &[
        ("run, compare, kernels", RunFormats::FORMATS),
        ("report", ReportFormats::FORMATS),
        ("stat", StatFormats::FORMATS),
        ("trace", TraceFormats::FORMATS),
        ("watch", WatchFormats::FORMATS),
        ("study list", ListFormats::FORMATS),
        ("study show", ShowFormats::FORMATS),
        ("doctor, peer, relay", TextOrJson::FORMATS),
    ];

    #[test]
    fn the_page_has_every_format_and_the_commands_that_have_it() {
        let mut table = String::from("| `--format` | form | commands |\n|---|---|---|\n");
        for (format, name, form) in TABLE {
            let have = |row: &&(&str, &[Format])| row.1.contains(format);
            let commands: Vec<&str> = COMMANDS.iter().filter(have).map(|row| row.0).collect();
            table += &format!("| `{name}` | {form} | {} |\n", commands.join(", "));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/records.md");
        let page = std::fs::read_to_string(path).unwrap();
        let begin = "<!-- formats: made by TCPCOST_REWRITE=1 cargo test -p tcpcost-console -->\n";
        let (before, rest) = page.split_once(begin).expect("the page has the marker");
        let (_, after) = rest.split_once("<!-- end -->").expect("the table ends");
        let made = format!("{before}{begin}{table}<!-- end -->{after}");
        if std::env::var_os("TCPCOST_REWRITE").is_some() {
            std::fs::write(path, made).unwrap();
        } else {
            assert!(made == page, "docs/records.md needs this:\n{table}");
        }
    }
}
