"""Running Nsight Compute over a program that says what it launched, and reading the raw page of its report."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from warptile.errors import NoDeviceError, WarptileError

Request = TypeVar("Request")

MOST_TRIES = 8
"""How often a collection is tried again with fewer metrics."""

_LAUNCHED = re.compile(r"^warptile-launch (\d+) (ok|.+)$", re.MULTILINE)
_METRIC_NAME = re.compile(r"[a-z0-9]+__[a-z0-9_]+(?:\.[a-z_.]+)?")


class ProfileError(WarptileError, RuntimeError):
    """Nsight Compute ran and gave no report."""


def find_ncu() -> str:
    """Where Nsight Compute's command line is.

    Raises:
        NoDeviceError: it is not installed.
    """
    found = shutil.which("ncu") or next(
        (str(path) for path in sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)), None
    )
    if found is None:
        raise NoDeviceError(
            "ncu: Nsight Compute is not on the PATH; install it with the CUDA toolkit, or count on the emulator: "
            "warptile profile RUNG --backend emulator"
        )
    return found


def collect(
    program: Sequence[str], report: Path, metrics: Sequence[str], options: Sequence[str], timeout_s: float
) -> tuple[Path, str, list[str]]:
    """Run a program under Nsight Compute, clocks left alone: the report's file, the output, and the metrics that this
    GPU lacks and that were dropped.

    Newer releases add a letter to the report's name.

    Raises:
        NoDeviceError: Nsight Compute is not installed.
        ProfileError: it wrote no report; the message carries the end of its output.
    """
    asked = list(metrics)
    dropped: list[str] = []
    for _ in range(MOST_TRIES):
        command = [find_ncu(), "--clock-control", "none", "--target-processes", "all", "--force-overwrite",
                   "--export", str(report), *options, "--metrics", ",".join(asked), *program]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=dict(os.environ)
        )
        output = done.stdout + done.stderr
        written = sorted(report.parent.glob(f"{report.name}*"))
        if written:
            return written[0], output, dropped
        unknown = unknown_metrics(output, asked)
        if not unknown:
            break
        dropped += unknown
        asked = [metric for metric in asked if metric not in unknown]
    raise ProfileError(f"ncu wrote no report (exit status {done.returncode}). End of its output:\n{output[-3000:]}")


def page(report: Path, *arguments: str, timeout_s: float) -> str:
    """A page of a report as CSV, in base units."""
    command = [find_ncu(), "--import", str(report), "--csv", "--print-units", "base", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True).stdout


def number(text: str) -> float | None:
    """A number as Nsight Compute prints it (``1,234.5``), or None for ``n/a``, ``-`` and words."""
    try:
        return float(text.strip().replace(",", ""))
    except ValueError:
        return None


def parse_kernels(text: str) -> list[tuple[str, dict[str, float]]]:
    """The raw page: name and metrics of each kernel launched, in order."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    start = next((i for i, row in enumerate(rows) if row[0] == "ID"), None)
    if start is None:
        return []
    header = rows[start]
    named = header.index("Kernel Name") if "Kernel Name" in header else 0
    found = []
    for row in rows[start + 1 :]:
        if row[0].strip().isdigit() and len(row) == len(header):
            values = {name: number(value) for name, value in zip(header, row, strict=True) if "__" in name}
            found.append((row[named], {name: value for name, value in values.items() if value is not None}))
    return found


def parse_raw(text: str) -> list[dict[str, float]]:
    """The raw page: one dict of metrics for each launch, in launch order."""
    return [metrics for _, metrics in parse_kernels(text)]


def launch_each(requests: Iterable[Request], launch: Callable[[Request], None]) -> int:
    """The driver program's work: launch all requests and print a line for each, which `launched` reads; 1 when one
    failed, which the others survive."""
    failures = 0
    for index, request in enumerate(requests):
        try:
            launch(request)
            answer = "ok"
        except Exception as error:
            failures += 1
            answer = f"{type(error).__name__}: {' '.join(str(error).split())}"
        print(f"warptile-launch {index} {answer}", flush=True)
    return 1 if failures else 0


def launched(output: str) -> tuple[list[int], dict[int, str]]:
    """From the driver program's output: indices of the launches made, in order, and reasons of those that failed."""
    made: list[int] = []
    failed: dict[int, str] = {}
    for index, answer in _LAUNCHED.findall(output):
        if answer == "ok":
            made.append(int(index))
        else:
            failed[int(index)] = answer
    return made, failed


def unknown_metrics(output: str, asked: Sequence[str]) -> list[str]:
    """Metrics that Nsight Compute's error lines name as unknown."""
    lines = [line for line in output.splitlines() if "==ERROR==" in line or "==WARNING==" in line]
    named = {name for line in lines for name in _METRIC_NAME.findall(line)}
    stems = {name.split(".")[0] for name in named}
    return [metric for metric in asked if metric in named or metric.split(".")[0] in stems]
