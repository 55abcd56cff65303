//! Shared libraries of a program, as listed by ldd; none for a static program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::GuestError;

/// Paths of the libraries and of the dynamic linker.
///
/// # Errors
/// ldd cannot be started.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, GuestError> {
    let told = Command::new("ldd").arg(program).output();
    let told = told.map_err(|error| GuestError::Program {
        program: "ldd",
        said: format!("{error} (a static program needs none: make static)"),
    })?;
    // For a static program ldd prints "not a dynamic executable" and fails, or prints "statically
    // linked".
    Ok(parse(&String::from_utf8_lossy(&told.stdout)))
}

/// Parses lines `libelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x…)` and
/// `/lib64/ld-linux-x86-64.so.2 (0x…)`. The kernel's vdso has no path and is skipped.
fn parse(list: &str) -> Vec<PathBuf> {
    let paths = list.lines().filter_map(|line| {
        let found = line.split("=>").last()?.split_whitespace().next()?;
        found.starts_with('/').then(|| PathBuf::from(found))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_dynamic_linker_gives_paths() {
        let list = "\tlinux-vdso.so.1 (0x7ffd)\n\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libelf.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(parse(list), expected.map(PathBuf::from));
        assert!(parse("\tstatically linked\n").is_empty());
    }
}
