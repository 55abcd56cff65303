//! JUnit XML for CI systems: the same tests as in KTAP, a suite for each run.

use std::fmt::Write;

use super::ktap::{Result, Test, tests};
use crate::summary::Summary;

/// JUnit document of all runs.
pub fn junit(summaries: &[Summary]) -> String {
    let suites: Vec<(&Summary, Vec<Test>)> = summaries.iter().zip(tests(summaries)).collect();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (summary, tests) in suites {
        let count = |is: fn(&Result) -> bool| tests.iter().filter(|test| is(&test.result)).count();
        let _ = writeln!(
            out,
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">",
            escaped(&summary.study.name),
            tests.len(),
            count(|result| matches!(result, Result::NotOk)),
            count(|result| matches!(result, Result::Skip(_)))
        );
        for test in &tests {
            out += &case(&summary.study.name, test);
        }
        out += "</testsuite>\n";
    }
    out + "</testsuites>\n"
}

fn case(study: &str, test: &Test) -> String {
    let said = escaped(&test.diagnostics.join("\n"));
    let result = match &test.result {
        Result::Ok => String::new(),
        Result::NotOk => format!("<failure message=\"{said}\"/>"),
        Result::Skip(reason) => format!("<skipped message=\"{}\"/>", escaped(reason)),
    };
    format!(
        "<testcase classname=\"tcpcost.{}\" name=\"{}\">{result}<system-out>{said}</system-out></testcase>\n",
        escaped(study),
        escaped(&test.name)
    )
}

/// Text escaped for XML: it ends no attribute and no element, and has only characters that XML 1.0
/// allows.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\n' => out += "&#10;",
            '\u{FFFE}' | '\u{FFFF}' => out.push('\u{FFFD}'),
            char if char.is_control() => out.push('\u{FFFD}'),
            char => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests_of_text {
    use super::escaped;

    #[test]
    fn no_text_ends_an_attribute() {
        assert_eq!(
            escaped("a\"<b>&\u{1b}\n"),
            "a&quot;&lt;b&gt;&amp;\u{fffd}&#10;"
        );
    }
}
