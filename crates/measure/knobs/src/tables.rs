//! Knobs and ACK policies as Markdown tables, for pages of `docs/`.

use crate::ack_policies::AckKind;
use crate::knobs::KNOBS;
use crate::row::{AppliesTo, FileTable, Required};

/// Renders the knobs as a Markdown table, which `docs/study-file.md` contains; a test compares
/// them.
pub fn knob_table(file_table: FileTable) -> String {
    let of_ends = file_table == FileTable::Bed;
    let mut table = String::from("| key | takes | default | needs |");
    table += if of_ends {
        " each host | kernel's TCP | our TCP |"
    } else {
        " each group |"
    };
    table += " meaning |\n|---|---|---|---|---|";
    table += if of_ends { "---|---|" } else { "" };
    table += "---|\n";
    for knob in KNOBS.iter().filter(|knob| knob.table == file_table) {
        let name = if knob.key == knob.name {
            format!("`{}`", knob.name)
        } else {
            format!("`{}` (in `[vary]`: `{}`)", knob.key, knob.name)
        };
        table += &format!(
            "| {name} | {} | `{}` | {} |",
            knob.expected(),
            knob.default,
            knob.needs_text()
        );
        if of_ends {
            let end = if knob.per_end { "yes" } else { "" };
            let (kernel, user) = match knob.applies_to {
                AppliesTo::Link(kernel, user) | AppliesTo::Tcp(kernel, user) => {
                    (kernel.to_string(), user.to_string())
                }
                AppliesTo::Workload | AppliesTo::Host => (String::new(), String::new()),
            };
            table += &format!(" {end} | {kernel} | {user} |");
        } else {
            table += if knob.per_group { " yes |" } else { " |" };
        }
        table += &format!(" {} |\n", knob.doc);
    }
    table
}

/// Renders the knobs of an end's TCP, with their support in the kernel's TCP, as a Markdown table,
/// which `docs/policies.md` contains; a test compares them.
pub fn tcp_table() -> String {
    let mut table =
        String::from("| knob | needs | the kernel's TCP | meaning |\n|---|---|---|---|\n");
    for knob in KNOBS {
        let AppliesTo::Tcp(kernel, _) = knob.applies_to else {
            continue;
        };
        table += &format!(
            "| `{}` | {} | {kernel} | {} |\n",
            knob.name,
            knob.needs_text(),
            knob.doc
        );
    }
    table
}

/// Renders the ACK policies as a Markdown table, which `docs/policies.md` contains; a test compares
/// them.
pub fn ack_policy_table() -> String {
    let mut table = String::from("| policy | acknowledges | knobs | from |\n|---|---|---|---|\n");
    for word in AckKind::WORDS {
        let row = AckKind::from_word(word).expect("its own word").row();
        let ms = row.delay_max.as_millis();
        let mut knobs = vec![format!("`ack_delay` {ms}ms")];
        if let Some([initial, max]) = row.limits {
            knobs.push(format!("`ack_limit_initial` {initial}"));
            knobs.push(format!("`ack_limit_max` {max} or `ack_segments`"));
        } else if let Some(segments) = row.segments {
            knobs.push(format!("`ack_segments` {segments}"));
        }
        // Knobs that need this policy by its name.
        for knob in KNOBS {
            let mut terms = knob.needs.iter().flat_map(|need| need.any_of);
            let names_it = terms.any(|term| {
                term.knob == "ack_policy"
                    && matches!(term.required, Required::OneOf(words) if words.contains(word))
            });
            if names_it {
                knobs.push(format!("`{}`", knob.name));
            }
        }
        table += &format!(
            "| `{word}` | {} | {} | {} |\n",
            row.doc,
            knobs.join(", "),
            row.from
        );
    }
    table
}
