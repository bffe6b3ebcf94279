"""Suites of probes, each captured in a process of its own: what fails in one of them loses no other's answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from warptile.bench.protocol import environment
from warptile.codegen.nvrtc import compiler_version
from warptile.gpu import driver

SECONDS = 100
"""After so many a suite is given up."""


def about() -> dict[str, object]:
    """Where and how answers were captured."""
    device = driver.device_info()
    return {
        "gpu": device.name,
        "arch": device.arch,
        "driver": environment.describe(None).driver,
        "compiler": compiler_version(),
        "date": environment.now(),
        "git_hash": environment.git_hash(),
    }


def run_each(script: str, names: list[str], folder: Path, *, together: int = 4) -> dict[str, dict[str, np.ndarray]]:
    """Call ``script --out folder --suite NAME`` for each name; what they wrote with `write`, as far as they came."""

    def one(name: str) -> tuple[str, dict[str, np.ndarray]]:
        began = time.monotonic()
        command = [sys.executable, script, "--out", str(folder), "--suite", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
            ended, said = f"exit code {done.returncode}", done.stdout + (done.stderr if done.returncode else "")
        except subprocess.TimeoutExpired as error:
            ended, said = f"given up after {SECONDS} s", str(error.stdout or b"")
        path = part(folder, name)
        found: dict[str, np.ndarray] = {}
        if path.exists():
            with np.load(path) as stored:
                found = {key: stored[key] for key in stored.files}
            path.unlink()
        print(f"{name}: {len(found)} answers, {ended}, {time.monotonic() - began:.1f} s\n{said}", flush=True)
        return name, found

    with ThreadPoolExecutor(together) as pool:
        return dict(pool.map(one, names))


def part(folder: Path, name: str) -> Path:
    """Where a suite's process leaves its answers."""
    return folder / f"part_{name}.npz"


def write(folder: Path, name: str, answers: dict[str, np.ndarray]) -> None:
    """Leave the answers of a suite, or what there is of them."""
    np.savez(part(folder, name), **answers)


def write_json(path: Path, content: dict[str, object]) -> None:
    """A header with what was kept, one line for each entry."""
    path.write_text(json.dumps(content, indent=1) + "\n")
