"""Try the kernels of tests/found_bugs on a GPU, and count the launches whose results are wrong.

    PYTHONPATH=src:tests/support python tests/gpu/try_found_bugs.py --out tests/data/found_bugs_h200.json

Each kernel is launched many times, corrected and with its bug, in a process of its own, because a launch that faults
takes the process's GPU context with it. Ends with 1 if a corrected kernel was wrong or failed: then the kernel, or the
GPU, is not what it is taken for, and its numbers mean nothing.

With ``--backend emulator`` the same is done in small, to try the script.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import suites
from found_bugs import ARCH, PATTERNS, RECORD_FILE, try_pattern
from warptile.bench.protocol import environment
from warptile.codegen.nvrtc import compiler_version
from warptile.gpu import driver

LAUNCHES = 100
SECONDS = 1.5
"""After so many no more launches of a kernel are begun."""
SECONDS_OF_A_PROCESS = 20.0
"""After so many a process is killed: its kernel does not end."""
TWINS = ("corrected", "faulty")
"""In the order in which they run: a corrected kernel leaves the context intact."""

Counts = dict[str, Any]


def try_here(name: str, backend: str, launches: int) -> None:
    """Try one kernel, and print the counts of each twin as a line of JSON."""
    pattern = next(each for each in PATTERNS if each.name == name)
    for twin in TWINS:
        counts = try_pattern(
            pattern, corrected=twin == "corrected", backend=backend, launches=launches, seconds=SECONDS
        )
        print(json.dumps({twin: counts}), flush=True)


def try_in_a_process(
    name: str, backend: str, launches: int, seconds: float = SECONDS_OF_A_PROCESS
) -> dict[str, Counts]:
    """The same in a process of its own: the counts of both twins, or ``error`` for one that left none."""
    command = [sys.executable, __file__, "--backend", backend, "--launches", str(launches), "--pattern", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        said, ended = done.stdout, _last_line(done.stderr) or f"ended with exit code {done.returncode}"
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        said = output.decode() if isinstance(output, bytes) else output
        ended = "does not end"
    found: dict[str, Counts] = {}
    for line in said.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    missing = [twin for twin in TWINS if twin not in found]
    # What comes behind the twin that ended the process was not tried.
    return found | {twin: {"error": "not tried" if at else ended} for at, twin in enumerate(missing)}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def fails(found: Mapping[str, Counts]) -> bool:
    """Whether a corrected kernel was wrong, or failed."""
    corrected = found["corrected"]
    return "error" in corrected or corrected["wrong_launches"] > 0


def about(backend: str) -> dict[str, object]:
    """Where and how the counts were made."""
    if backend == "gpu":
        return suites.about()
    return {
        "gpu": "emulator", "arch": ARCH, "driver": "none", "compiler": compiler_version(), "date": environment.now(),
        "git_hash": environment.git_hash(),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all kernels, or some; 1 if a corrected one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help=f"the record; {RECORD_FILE.name} in tests/data is that of an H200")
    parser.add_argument("--backend", choices=("gpu", "emulator"), default="gpu")
    parser.add_argument("--launches", type=int, default=LAUNCHES, help="of each twin, unless its time is up before")
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--pattern", choices=[each.name for each in PATTERNS], help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.launches < 1:
        parser.error(f"--launches: got {given.launches}; it takes a whole number from 1")
    if given.pattern is not None:
        try_here(given.pattern, given.backend, given.launches)
        return 0
    names = [each.name for each in PATTERNS if given.only in each.name]
    if not names:
        parser.error(f"--only: no kernel's name contains {given.only!r}; there are {', '.join(_names())}")
    if given.out is None or not given.out.resolve().parent.is_dir():
        parser.error("--out: it takes a file in a folder that exists")
    if given.backend == "emulator" and given.out.resolve() == RECORD_FILE:
        parser.error(f"--out: {RECORD_FILE.name} is the record of a GPU, not of the emulator")
    if given.backend == "gpu":
        if not driver.available():
            parser.error("there is no GPU; --backend emulator tries the script without one")
        if not driver.device_info().runs(ARCH):
            parser.error(f"the kernels are for {ARCH}; this GPU is {driver.device_info().arch}")
    return try_all(names, given.backend, given.launches, given.out)


def try_all(names: Sequence[str], backend: str, launches: int, out: Path) -> int:
    """Try some kernels and write the record; 1 if a corrected one was wrong."""
    patterns: dict[str, dict[str, Counts]] = {}
    for name in names:
        patterns[name] = try_in_a_process(name, backend, launches)
        for twin, counts in patterns[name].items():
            print(f"{name}, {twin}: {', '.join(f'{key} {value}' for key, value in counts.items())}", flush=True)
        # Written after each, so that a record of some is left if the rest takes too long.
        suites.write_json(out, {**about(backend), "patterns": patterns})
    failed = [name for name, found in patterns.items() if fails(found)]
    for name in failed:
        print(f"{name}: the corrected kernel was wrong, or failed", file=sys.stderr)
    return 1 if failed else 0


def _names() -> list[str]:
    return [each.name for each in PATTERNS]


if __name__ == "__main__":
    sys.exit(main())
