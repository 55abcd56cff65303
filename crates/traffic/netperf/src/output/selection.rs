//! Parses the selection of results: `all`, a list with commas, blocks separated by `;`, or a file with such
//! lines (netperf's `nettest_omni.c`, `parse_output_selection`).

use std::fs;

use super::selectors::{self, Blocks, Selector};
use crate::Failure;

/// Limit on blocks (`NETPERF_MAX_BLOCKS`).
const BLOCKS: usize = 4;
/// Limit on the bytes of a file of selectors.
const FILE_MAX: u64 = 1 << 20;

/// Parses a selection. An unknown name is omitted, as in netperf, and noted: several scripts name selectors
/// of later versions.
pub fn parse(spec: &str, notes: &mut Vec<String>) -> Result<Blocks, Failure> {
    if spec.eq_ignore_ascii_case("all") {
        return Ok(selectors::all());
    }
    if spec.contains([',', ';', ' ']) || Selector::named(spec).is_some() {
        let blocks = spec.split(';').take(BLOCKS);
        return Ok(blocks
            .map(|block| row(block.split([',', ' ']), notes))
            .filter(|block| !block.is_empty())
            .collect());
    }
    let refused = |why: String| {
        Failure::usage(format!(
            "{spec}: neither a selector of results nor a file of them: {why}"
        ))
    };
    let length = fs::metadata(spec)
        .map_err(|error| refused(error.to_string()))?
        .len();
    if length > FILE_MAX {
        return Err(refused(format!("{length} bytes")));
    }
    let text = fs::read_to_string(spec).map_err(|error| refused(error.to_string()))?;
    Ok(text
        .lines()
        .take(BLOCKS)
        .map(|line| row(line.split(','), notes))
        .filter(|block| !block.is_empty())
        .collect())
}

fn row<'a>(names: impl Iterator<Item = &'a str>, notes: &mut Vec<String>) -> Vec<Selector> {
    let mut row = Vec::new();
    for name in names.map(str::trim).filter(|name| !name.is_empty()) {
        match Selector::named(name) {
            Some(selector) => row.push(selector),
            None => notes.push(format!(
                "{name}: no selector of results (`-k ?` lists them), omitted"
            )),
        }
    }
    row
}
