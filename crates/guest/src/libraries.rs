//! The shared libraries of a program, by the dynamic linker's own list; none of a static one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::GuestError;

/// Paths of the libraries and of the linker itself, as the program asks for them.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, GuestError> {
    let told = Command::new("ldd").arg(program).output();
    let told = told.map_err(|error| GuestError::Program {
        program: "ldd",
        said: format!("{error} (a static program needs none: make static)"),
    })?;
    // "not a dynamic executable" ends with an error, "statically linked" without.
    Ok(parse(&String::from_utf8_lossy(&told.stdout)))
}

/// Lines `libelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x…)` and `/lib64/ld-linux-x86-64.so.2 (0x…)`; the kernel's own vdso
/// has no path.
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
