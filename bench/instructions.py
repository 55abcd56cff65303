#!/usr/bin/env python3
"""Instructions of our TCP per segment, both ends, by callgrind: the same number on a busy machine as on a
quiet one. Fails if one of them has risen by more than 3 % above bench/instructions.txt; --update writes it.

Copies are left out: callgrind counts each byte of a `rep movsb` as an instruction. The set-up is left out by
the difference of two runs. Another compiler gives other numbers, so the file says which one it was.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BASE = ROOT / "bench" / "instructions.txt"
PATHS = ["segments", "segments-summed", "units", "acks", "requests"]
FEW, MANY = 4000, 12000
ALLOWED = 1.03


def run(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()[-500:]}")
    return done.stdout + done.stderr


def instructions(path, count):
    out = TARGET / f"callgrind.{path}.{count}"
    program = TARGET / "release" / "examples" / "count"
    said = run("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, path, str(count))
    total = int(re.search(r"Collected : (\d+)", said)[1])
    rows = run("callgrind_annotate", "--auto=no", "--threshold=100", out).splitlines()
    copies = [row for row in rows if re.search(r":__?mem(cpy|move|set)", row)]
    return total - sum(int(re.match(r"\s*([\d,]+)", row)[1].replace(",", "")) for row in copies)


def main():
    run("cargo", "build", "--release", "-p", "tcpcost-tcp", "--example", "count")
    compiler = run("rustc", "--version").strip()
    found = {}
    for path in PATHS:
        found[path] = round((instructions(path, MANY) - instructions(path, FEW)) / (MANY - FEW))
    lines = [f"# {compiler}"] + [f"{path} {count}" for path, count in found.items()]
    if "--update" in sys.argv:
        BASE.write_text("\n".join(lines) + "\n")
    before = BASE.read_text().splitlines()
    if before[0] != lines[0]:
        print(f"the file is of {before[0][2:]}, this is {compiler}: --update it first")
    base = dict(line.split() for line in before[1:])
    risen = False
    for path, count in found.items():
        ratio = count / int(base[path])
        risen |= ratio > ALLOWED
        print(f"{path:<16} {count:>6} instructions per segment, {ratio:.3f} of {base[path]}")
    sys.exit("some have risen by more than 3 %" if risen else 0)


if __name__ == "__main__":
    main()
