//! Kernel modules of a tree, each after those that it needs.
//!
//! A module's dependencies are in its section `.modinfo` (`depends=`), so neither depmod nor its
//! index is needed: a package that was only unpacked has no index. Compressed modules are
//! decompressed here, because a guest may not be able to.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::error::GuestError;

/// A module's name and code.
pub struct Module {
    /// Name as in /proc/modules: with `_` for `-`.
    pub name: String,
    /// ELF file.
    pub code: Vec<u8>,
}

/// Wanted modules that the tree has, and their dependencies, in load order. A module that is not in
/// the tree may be built into the kernel; otherwise the code that needs it reports its absence.
///
/// # Errors
/// A file cannot be read.
pub fn load_order(tree: &Path, wanted: &[&str]) -> Result<Vec<Module>, GuestError> {
    let mut files = BTreeMap::new();
    find(tree, &mut files).map_err(GuestError::file("read", tree))?;
    let mut ordered = Vec::new();
    for name in wanted {
        add(&canonical(name), &mut files, &mut ordered)?;
    }
    Ok(ordered)
}

/// True if a kernel has a module built in by the list in its tree, or if its tree has no such list.
pub fn may_be_built_in(tree: &Path, name: &str) -> bool {
    let Ok(list) = fs::read_to_string(tree.join("modules.builtin")) else {
        return true;
    };
    let paths = list.lines().map(Path::new);
    let mut names = paths.filter_map(|path| path.file_stem()?.to_str());
    names.any(|built_in| canonical(built_in) == canonical(name))
}

/// Adds a module after its dependencies. Takes its file out of `files`, so that each module is added once, also one of a circle.
fn add(
    name: &str,
    files: &mut BTreeMap<String, PathBuf>,
    ordered: &mut Vec<Module>,
) -> Result<(), GuestError> {
    let Some(path) = files.remove(name) else {
        return Ok(());
    };
    let code = read(&path).map_err(GuestError::file("read", &path))?;
    for needed in depends(&code) {
        add(&needed, files, ordered)?;
    }
    ordered.push(Module {
        name: name.to_string(),
        code,
    });
    Ok(())
}

/// Adds the module files of a tree of any shape, by module name.
fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        // `build` and `source` are symbolic links out of the tree, and not followed.
        if kind.is_dir() {
            find(&entry.path(), files)?;
            continue;
        }
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if let Some((stem, "" | ".xz" | ".zst" | ".gz")) = name.split_once(".ko") {
            files.entry(canonical(stem)).or_insert_with(|| entry.path());
        }
    }
    Ok(())
}

/// Name as in /proc/modules.
pub fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// Reads a module's code, decompressed.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut code = Vec::new();
    let file = BufReader::new(File::open(path)?);
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => lzma_rust2::XzReader::new(file, true).read_to_end(&mut code)?,
        Some("gz") => flate2::read::MultiGzDecoder::new(file).read_to_end(&mut code)?,
        Some("zst") => ruzstd::decoding::StreamingDecoder::new(file)
            .map_err(io::Error::other)?
            .read_to_end(&mut code)?,
        _ => BufReader::new(file).read_to_end(&mut code)?,
    };
    Ok(code)
}

/// Names after `depends=`: a zero-terminated list with commas. The key is searched for in all bytes
/// rather than by the ELF headers: no code begins a string with these bytes.
fn depends(code: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = code.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let list = &code[at + KEY.len()..];
    let end = list.iter().position(|&byte| byte == 0).unwrap_or(0);
    let list = String::from_utf8_lossy(&list[..end]);
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(canonical).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_goes_before_it_and_once() {
        let tree = tempfile::tempdir().unwrap();
        let write = |path: &str, depends: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("\x7fELF\0license=GPL\0depends={depends}\0")).unwrap();
        };
        write("net/sched/act-bpf.ko", "");
        write("net/sched/cls_bpf.ko", "act_bpf,x-tables");
        write("net/x_tables.ko", "");
        write("drivers/loop-a.ko", "loop_b");
        write("drivers/loop-b.ko", "loop_a");
        let names = |wanted: &[&str]| -> Vec<String> {
            let order = load_order(tree.path(), wanted).unwrap();
            order.into_iter().map(|module| module.name).collect()
        };
        assert_eq!(
            names(&["act-bpf", "cls-bpf", "built-in"]),
            ["act_bpf", "x_tables", "cls_bpf"]
        );
        assert_eq!(names(&["loop_a"]), ["loop_b", "loop_a"], "a circle");
        assert!(may_be_built_in(tree.path(), "veth"), "there is no list");
        fs::write(tree.path().join("modules.builtin"), "kernel/net/ve-th.ko\n").unwrap();
        assert!(may_be_built_in(tree.path(), "ve_th"));
        assert!(!may_be_built_in(tree.path(), "veth"));
    }
}
