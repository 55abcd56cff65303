//! Instructions by function of a guest: a plugin of QEMU's TCG counts by address, and the guest's
//! symbols give names.
//!
//! The plugin is one C file, built on demand by the host's compiler: QEMU's plugin interface has
//! versions, and a binary would fit only one of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::caches::{Caches, Misses};
use crate::contexts::{self, Contexts};
use crate::error::GuestError;
use crate::symbols::Symbols;

/// A built plugin; its files are removed with this value.
#[derive(Debug)]
pub struct Plugin {
    folder: TempDir,
    caches: Option<Caches>,
}

/// Instructions by name of the function. User space is [`crate::USER`].
pub type Functions = BTreeMap<String, u64>;

/// Counts of a marked interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Span {
    /// Instructions by function.
    pub functions: Functions,
    /// Instructions by context; `None` if the kernel's functions that begin one are unknown.
    pub contexts: Option<Contexts>,
    /// Misses by function, if caches were modelled.
    pub misses: BTreeMap<String, Misses>,
}

impl Plugin {
    /// Builds the plugin, which also models these caches. A guest then takes two to three times as long.
    ///
    /// # Errors
    /// There is no C compiler, or it fails.
    pub fn build(caches: Option<Caches>) -> Result<Plugin, GuestError> {
        let folder = tempfile::tempdir();
        let folder = folder.map_err(GuestError::file("create", &std::env::temp_dir()))?;
        let source = folder.path().join("functions.c");
        for (name, text) in [
            ("functions.c", include_str!("functions.c")),
            ("caches.h", include_str!("caches.h")),
            ("contexts.h", include_str!("contexts.h")),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).map_err(GuestError::file("write", &path))?;
        }
        let told = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([&folder.path().join(PLUGIN), &source])
            .output();
        match told {
            Ok(output) if output.status.success() => Ok(Plugin { folder, caches }),
            Ok(output) => Err(GuestError::Program {
                program: "cc",
                said: String::from_utf8_lossy(&output.stderr).trim().to_string(),
            }),
            Err(error) => Err(GuestError::Program {
                program: "cc",
                said: format!(
                    "{error} (a C compiler builds the plugin that distinguishes functions)"
                ),
            }),
        }
    }

    /// Options of QEMU that load the plugin into the guest with this number, whose kernel has these functions.
    pub fn options(&self, number: usize, symbols: &Symbols) -> [String; 2] {
        let plugin = self.folder.path().join(PLUGIN);
        let mut option = format!("{},out={}", plugin.display(), self.out(number).display());
        if let Some(caches) = &self.caches {
            option = format!("{option},{}", caches.option());
        }
        for doorway in contexts::doorways(symbols) {
            option = format!("{option},{doorway}");
        }
        ["-plugin".to_string(), option]
    }

    fn out(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("spans-{number}"))
    }

    /// Counts of each marked span, in order; call it after the guest with this number has ended.
    ///
    /// # Errors
    /// QEMU has not written the file: it supports no plugins, or not of this version.
    pub fn spans(&self, number: usize, symbols: &Symbols) -> Result<Vec<Span>, GuestError> {
        let out = self.out(number);
        let text = fs::read_to_string(&out).map_err(GuestError::file("read", &out))?;
        Ok(spans(&text, symbols))
    }
}

const PLUGIN: &str = "functions.so";

fn spans(text: &str, symbols: &Symbols) -> Vec<Span> {
    let (mut spans, mut span) = (Vec::new(), Span::default());
    for line in text.lines() {
        match line.split_once(' ') {
            None if line == "span" => span = Span::default(),
            None if line == "end" => spans.push(std::mem::take(&mut span)),
            Some(("contexts", counts)) => span.contexts = Contexts::parse(counts),
            Some((address, counts)) => {
                let _ = span.add(address, counts, symbols);
            }
            None => {}
        }
    }
    spans
}

impl Span {
    /// Adds a block. `None` if a number is damaged: the line is left out.
    fn add(&mut self, address: &str, counts: &str, symbols: &Symbols) -> Option<()> {
        let name = symbols.name(u64::from_str_radix(address, 16).ok()?);
        let (count, misses) = counts.split_once(' ').unwrap_or((counts, ""));
        *self.functions.entry(name.to_string()).or_insert(0) += count.parse::<u64>().ok()?;
        if !misses.is_empty() {
            let misses: Result<Vec<f64>, _> = misses.split(' ').map(str::parse).collect();
            let of_function = self.misses.entry(name.to_string()).or_default();
            of_function.add(&misses.ok()?)?;
        }
        Some(())
    }
}

/// True if a function only copies or fills memory. In this CPU model that is eight bytes an
/// instruction, on others one or sixty-four, so such functions are shown separately and are in no
/// sum with the others.
pub fn moves_memory(function: &str) -> bool {
    const BEGINNINGS: [&str; 17] = [
        "copy_user",
        "_copy_",
        "rep_movs",
        "rep_stos",
        "memcpy",
        "__memcpy",
        "memset",
        "__memset",
        "memmove",
        "__memmove",
        "clear_page",
        // Linux 7.3 has the clearing of a page inlined there.
        "clear_highpage",
        "copy_page",
        // Functions of arm64: two registers of eight bytes are loaded and stored by an instruction each.
        "__arch_copy_",
        "__arch_clear_user",
        "__pi_mem",
        "__pi_clear_page",
    ];
    BEGINNINGS.iter().any(|start| function.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000100 t tcp_ack.isra.0\nffffffff81000200 d data\nffffffffc0000000 t veth_xmit [veth]\n";

    #[test]
    fn blocks_are_counted_to_the_function_that_they_begin_in() {
        let symbols = Symbols::parse(KALLSYMS);
        let text = "span\ncontexts 11 2 3 4\nffffffff81000104 10\nffffffff81000180 5\n7f0000000000 3\nffffffffc0000010 2\nend\nspan\nffffffff81000104 7 0 1 2 3 0 0 0 4 5 6 0 0 0\nend\n";
        let spans = spans(text, &symbols);
        let expected = [("[user]", 3), ("tcp_ack", 15), ("veth_xmit", 2)];
        let expected = expected.map(|(name, count)| (name.to_string(), count));
        assert_eq!(spans[0].functions, Functions::from(expected));
        assert!(spans[0].misses.is_empty());
        let contexts = spans[0].contexts.unwrap();
        assert_eq!((contexts.task, contexts.hardirq), (11, 4));
        assert_eq!(spans[1].contexts, None);
        assert_eq!(spans[1].functions["tcp_ack"], 7);
        assert_eq!(spans[1].misses["tcp_ack"].lines(), [5.0, 7.0, 9.0]);
        assert_eq!(spans.len(), 2);
    }

    #[test]
    fn copies_and_clears_are_told_apart() {
        for function in [
            "copy_user_enhanced_fast_string",
            "rep_movs_alternative",
            "clear_page_orig",
            "clear_highpages_kasan_tagged",
            "memset_orig",
            "__arch_copy_from_user",
            "__pi_memcpy_generic",
        ] {
            assert!(moves_memory(function), "{function}");
        }
        assert!(!moves_memory("tcp_v4_early_demux"));
    }
}
