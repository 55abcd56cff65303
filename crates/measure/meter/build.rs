//! eBPF objects: compiled from `src/bpf/*.bpf.c` if clang is found, else those in `bpf/prebuilt`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[path = "src/bpf/layout.rs"]
#[allow(dead_code, reason = "only the headers are of use here")]
mod layout;

/// Names of the programs, and the headers that each shares with its reader.
const OBJECTS: &[(&str, &str)] = &[
    ("exact", layout::exact::HEADER),
    ("calls", layout::calls::HEADER),
    ("profile", layout::profile::HEADER),
    ("segments", layout::segments::HEADER),
    ("ack_filter", layout::ack_filter::HEADER),
    ("symbols", layout::symbols::HEADER),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed=bpf/prebuilt");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_VENDORED").is_none() {
        need_header("libelf.h", "libelf-dev (Fedora: elfutils-libelf-devel)");
        need_header("zlib.h", "zlib1g-dev (Fedora: zlib-devel)");
    }

    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_string());
    let version = Command::new(&clang).arg("--version").output();
    let version = version.ok().filter(|output| output.status.success());
    let built_by = version.as_ref().map(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().next().unwrap_or_default().to_string()
    });
    for (name, header) in OBJECTS {
        let object = out.join(format!("{name}.bpf.o"));
        if built_by.is_some() {
            let path = out.join(format!("{name}.layout.h"));
            fs::write(&path, header)
                .unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
            compile(&clang, name, &out);
        } else {
            let prebuilt = Path::new("bpf/prebuilt").join(format!("{name}.bpf.o"));
            fs::copy(&prebuilt, &object)
                .unwrap_or_else(|error| panic!("copy {}: {error}", prebuilt.display()));
        }
    }
    if built_by.is_none() {
        println!(
            "cargo::warning={clang} not found: using the checked-in eBPF objects; install the package clang to build them"
        );
    }
    let built_by = built_by.unwrap_or_else(|| "checked in".to_string());
    println!("cargo::rustc-env=TCPCOST_BPF_BUILT_BY={built_by}");
}

/// Compiles a program. The flags make the object identical on every machine: it contains no path of this one.
fn compile(clang: &str, name: &str, out: &Path) {
    let folder = env::current_dir().expect("cargo starts build scripts in the package");
    let source = format!("src/bpf/{name}.bpf.c");
    let status = Command::new(clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ])
        .arg(format!("-ffile-prefix-map={}=.", folder.display()))
        .arg(format!("-ffile-prefix-map={}=.", out.display()))
        .arg("-I")
        .arg(out)
        .args(["-fdebug-compilation-dir=.", "-c", &source, "-o"])
        .arg(out.join(format!("{name}.bpf.o")))
        .status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "{clang} could not build {source} ({status:?}); CLANG= takes the checked-in object"
    );
}

/// Fails early if a header is missing: libbpf's own build script fails in many lines that name no package.
fn need_header(header: &str, package: &str) {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let found = Command::new(compiler)
        .args([
            "-E",
            "-include",
            header,
            "-x",
            "c",
            "/dev/null",
            "-o",
            "/dev/null",
        ])
        .stderr(Stdio::null())
        .status();
    // Without a compiler linking fails, too, and that error names what is missing.
    if found.is_ok_and(|status| !status.success()) {
        println!(
            "cargo::error={header} not found: install the package {package}, or build without eBPF: --no-default-features"
        );
    }
}
